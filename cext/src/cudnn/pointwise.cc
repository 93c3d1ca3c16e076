// Chains of pointwise operators as one kernel: a program over the elements of the result, operands read through strides.
#include <algorithm>
#include <cstring>
#include <exception>

#include "plan.h"

namespace rlflow::gpu {
namespace {

struct TooLarge : std::exception {};         // more operands or instructions than a kernel takes

bool wide(int dtype) { return dtype == kF64 || dtype == kI64 || dtype == kI32 || dtype == kU32 || dtype == kU64; }

struct Leaf {
  Ref tensor;
  Dims dims;                                 // aligned to the right of the result's
  friend bool operator==(const Leaf&, const Leaf&) = default;
};

constexpr int kResult = 1000;                // registers from here on are results, below operands

}  // namespace

// Lowers one group for one shape of result.
class Fuser {
 public:
  Fuser(Planner& planner, const std::vector<NodeId>& group, const std::set<ValueId>& ready) : p_(planner), g_(planner.g_), ready_(ready) {
    for (NodeId n : group)
      for (uint32_t o = 0; o < g_.node(n).out_count; ++o) inside_[g_.node(n).out_begin + o] = n;
  }

  Step build(const std::vector<ValueId>& wanted) {
    if (wanted.size() > kernels::kMaxOuts) throw TooLarge{};
    std::vector<int> results;
    results.reserve(wanted.size());
    for (ValueId v : wanted) results.push_back(value(v));
    return finish(wanted, results);
  }

 private:
  using C = kernels::Code;

  int emit(C op, int a = 0, int b = 0, int c = 0, double imm = 0) {
    long long bits;
    std::memcpy(&bits, &imm, sizeof bits);
    kernels::Instruction i{op, a, b, c, bits};
    for (size_t k = 0; k < code_.size(); ++k)
      if (std::memcmp(&code_[k], &i, sizeof i) == 0) return kResult + static_cast<int>(k);
    if (code_.size() == kernels::kMaxCode) throw TooLarge{};
    code_.push_back(i);
    return kResult + static_cast<int>(code_.size()) - 1;
  }
  int number(double v) { return emit(C::kConst, 0, 0, 0, v); }

  int leaf(Ref tensor, const Dims& dims) {
    Leaf l{tensor, dims};
    auto at = std::find(leaves_.begin(), leaves_.end(), l);
    if (at == leaves_.end()) {
      if (leaves_.size() == kernels::kMaxIns) throw TooLarge{};
      leaves_.push_back(l);
      return static_cast<int>(leaves_.size()) - 1;
    }
    return static_cast<int>(at - leaves_.begin());
  }

  int value(ValueId v) {
    if (auto at = done_.find(v); at != done_.end()) return at->second;
    int r;
    if (auto at = inside_.find(v); at != inside_.end() && !ready_.contains(v)) {
      r = lower(at->second);
      is_wide_ = is_wide_ || wide(p_.dtype(v));
    } else if (auto known = p_.number(v)) {
      r = number(*known);
    } else {
      r = leaf(p_.of(v), p_.dims(v));
      is_wide_ = is_wide_ || wide(p_.dtype(v));
    }
    return done_[v] = r;
  }

  int lower(NodeId n) {
    const std::string& op = g_.op(n).name;
    auto in = g_.inputs(n);
    const AttrSet& attrs = g_.attrs(n);
    auto x = [&](size_t i) { return value(in[i]); };
    auto has = [&](size_t i) { return i < in.size() && in[i] != kNoValue; };
    auto attr = [&](const char* name) { return attrs.get_float(name); };
    static const std::map<std::string, C> kUnary = {
        {"Abs", C::kAbs},   {"Neg", C::kNeg},     {"Exp", C::kExp},          {"Log", C::kLog},     {"Sqrt", C::kSqrt},   {"Reciprocal", C::kRecip},
        {"Erf", C::kErf},   {"Tanh", C::kTanh},   {"Sigmoid", C::kSigmoid},  {"Floor", C::kFloor}, {"Ceil", C::kCeil},   {"Round", C::kRound},
        {"Sign", C::kSign}, {"Sin", C::kSin},     {"Cos", C::kCos},          {"Tan", C::kTan},     {"Asin", C::kAsin},   {"Acos", C::kAcos},
        {"Atan", C::kAtan}, {"Sinh", C::kSinh},   {"Cosh", C::kCosh},        {"Asinh", C::kAsinh}, {"Acosh", C::kAcosh}, {"Atanh", C::kAtanh},
        {"Not", C::kNot},   {"IsNaN", C::kIsNan}, {"Softplus", C::kSoftplus}};
    static const std::map<std::string, C> kBinary = {
        {"Add", C::kAdd}, {"Sub", C::kSub},  {"Mul", C::kMul},    {"Pow", C::kPow},           {"And", C::kAnd}, {"Or", C::kOr},
        {"Xor", C::kXor}, {"Equal", C::kEq}, {"Greater", C::kGt}, {"GreaterOrEqual", C::kGe}, {"Less", C::kLt}, {"LessOrEqual", C::kLe}};
    if (auto at = kUnary.find(op); at != kUnary.end()) return emit(at->second, x(0));
    if (auto at = kBinary.find(op); at != kBinary.end()) return emit(at->second, x(0), x(1));
    if (op == "Identity") return x(0);
    if (op == "Div") return emit(dtype_is_int(p_.dtype(in[0])) ? C::kIntDiv : C::kDiv, x(0), x(1));
    if (op == "Mod") return emit(attrs.get_int("fmod") ? C::kFmod : C::kMod, x(0), x(1));
    if (op == "Relu") return emit(C::kMax, x(0), number(0));
    if (op == "Where") return emit(C::kSelect, x(1), x(2), x(0));
    if (op == "IsInf")
      return emit(C::kIsInf, x(0), 0, 0, static_cast<double>(attrs.get_int("detect_positive") + 2 * attrs.get_int("detect_negative")));
    if (op == "LeakyRelu") return select(C::kGe, x(0), x(0), emit(C::kMul, x(0), number(attr("alpha"))));
    if (op == "PRelu") return select(C::kGe, x(0), x(0), emit(C::kMul, x(0), x(1)));
    if (op == "ThresholdedRelu") return emit(C::kSelect, x(0), number(0), emit(C::kGt, x(0), number(attr("alpha"))));
    if (op == "Elu") return select(C::kGe, x(0), x(0), scaled(exp_minus_one(x(0)), attr("alpha")));
    if (op == "Selu") return scaled(select(C::kGe, x(0), x(0), scaled(exp_minus_one(x(0)), attr("alpha"))), attr("gamma"));
    if (op == "Celu") return select(C::kGe, x(0), x(0), scaled(exp_minus_one(emit(C::kDiv, x(0), number(attr("alpha")))), attr("alpha")));
    if (op == "HardSigmoid") return clamp(emit(C::kAdd, scaled(x(0), attr("alpha")), number(attr("beta"))), 0, 1);
    if (op == "HardSwish") return emit(C::kMul, x(0), clamp(emit(C::kAdd, scaled(x(0), 1.0 / 6), number(0.5)), 0, 1));
    if (op == "Softsign") return emit(C::kDiv, x(0), emit(C::kAdd, number(1), emit(C::kAbs, x(0))));
    if (op == "Mish") return emit(C::kMul, x(0), emit(C::kTanh, emit(C::kSoftplus, x(0))));
    if (op == "Swish") return emit(C::kMul, x(0), emit(C::kSigmoid, scaled(x(0), attr("alpha"))));
    if (op == "Shrink") {
      int low = emit(C::kLt, x(0), number(-attr("lambd"))), high = emit(C::kGt, x(0), number(attr("lambd")));
      int up = emit(C::kAdd, x(0), number(attr("bias"))), down = emit(C::kSub, x(0), number(attr("bias")));
      return emit(C::kSelect, up, emit(C::kSelect, down, number(0), high), low);
    }
    if (op == "Gelu") return gelu(x(0), attrs.get_string("approximate") == "tanh");
    if (op == "Clip") {
      int r = x(0);
      if (has(1)) r = emit(C::kMax, r, x(1));
      return has(2) ? emit(C::kMin, r, x(2)) : r;
    }
    if (op == "Sum" || op == "Mean" || op == "Max" || op == "Min") {
      C fold = op == "Max" ? C::kMax : op == "Min" ? C::kMin : C::kAdd;
      int r = x(0);
      for (size_t i = 1; i < in.size(); ++i) r = emit(fold, r, x(i));
      return op == "Mean" ? scaled(r, 1.0 / static_cast<double>(in.size())) : r;
    }
    if (op == "Cast") return cast(n, x(0));
    if (op == "BatchNormalization") return batch_normalisation(n);
    p_.refuse(n, "there is no kernel for it");
  }

  int select(C compare, int x, int yes, int no) { return emit(C::kSelect, yes, no, emit(compare, x, number(0))); }
  int scaled(int x, double by) { return emit(C::kMul, x, number(by)); }
  int clamp(int x, double low, double high) { return emit(C::kMin, emit(C::kMax, x, number(low)), number(high)); }
  int exp_minus_one(int x) { return emit(C::kSub, emit(C::kExp, x), number(1)); }
  int gelu(int x, bool approximate) {
    int inner;
    if (approximate) {
      int cube = emit(C::kMul, emit(C::kMul, x, x), x);
      inner = emit(C::kTanh, scaled(emit(C::kAdd, x, scaled(cube, 0.044715)), 0.7978845608028654));
    } else {
      inner = emit(C::kErf, scaled(x, 0.7071067811865476));
    }
    return emit(C::kMul, scaled(x, 0.5), emit(C::kAdd, inner, number(1)));
  }
  int cast(NodeId n, int x) {
    int from = type_of(g_.type(g_.inputs(n)[0])).dtype, to = type_of(g_.type(g_.node(n).out_begin)).dtype;
    if (to == kBool) return emit(C::kToBool, x);
    if (dtype_is_int(to)) return dtype_is_float(from) ? emit(C::kTrunc, x) : x;
    if (to == kF16) return emit(C::kToHalf, x);
    if (to == kBF16) return emit(C::kToBFloat, x);
    return x;
  }
  int batch_normalisation(NodeId n) {
    auto in = g_.inputs(n);
    Dims channels{p_.dims(in[0]).size() > 1 ? p_.dims(in[0])[1] : 1};
    channels.resize(std::max<size_t>(p_.dims(in[0]).size(), 2) - 1, 1);
    int r[5];
    for (size_t i = 1; i < 5; ++i) r[i] = leaf(p_.of(in[i]), channels);
    int deviation = emit(C::kSqrt, emit(C::kAdd, r[4], number(g_.attrs(n).get_float("epsilon"))));
    int normal = emit(C::kDiv, emit(C::kSub, value(in[0]), r[3]), deviation);
    return emit(C::kAdd, emit(C::kMul, normal, r[1]), r[2]);
  }

  // Strides over the result's dims of a tensor aligned to their right; 0 along broadcast axes.
  static Dims spread(const Dims& own, const Dims& result) {
    Dims plain = strides_of(own), out(result.size(), 0);
    for (size_t i = 0; i < own.size(); ++i) {
      size_t at = result.size() - own.size() + i;
      if (own[i] != 1) out[at] = plain[i];
    }
    return out;
  }

  Step finish(const std::vector<ValueId>& wanted, const std::vector<int>& results) {
    Dims extent = p_.dims(wanted[0]);
    std::vector<Dims> strides;
    strides.reserve(leaves_.size() + wanted.size());
    for (const Leaf& l : leaves_) strides.push_back(spread(l.dims, extent));
    for (size_t i = 0; i < wanted.size(); ++i) strides.push_back(strides_of(extent));
    merge(extent, strides);
    if (extent.size() > kernels::kMaxDims) throw Failure("a pointwise operator has operands whose strides need more than 6 axes");
    kernels::Pointwise f{};
    f.count = count_of(extent);
    f.dims = static_cast<long long>(extent.size());
    std::copy(extent.begin(), extent.end(), f.extent);
    f.ins = static_cast<long long>(leaves_.size());
    f.outs = static_cast<long long>(wanted.size());
    f.steps = static_cast<long long>(code_.size());
    std::vector<Ref> in, out;
    for (size_t i = 0; i < leaves_.size(); ++i) {
      f.in[i].dtype = p_.plan_.tensors[leaves_[i].tensor].dtype;
      std::copy(strides[i].begin(), strides[i].end(), f.in[i].stride);
      in.push_back(leaves_[i].tensor);
    }
    auto number_of = [&](long long r) { return r >= kResult ? f.ins + r - kResult : r; };
    for (size_t i = 0; i < wanted.size(); ++i) {
      f.out[i].dtype = p_.dtype(wanted[i]);
      is_wide_ = is_wide_ || wide(p_.dtype(wanted[i]));
      std::copy(strides[leaves_.size() + i].begin(), strides[leaves_.size() + i].end(), f.out[i].stride);
      f.result[i] = number_of(results[i]);
      out.push_back(wanted[i]);
    }
    for (size_t i = 0; i < code_.size(); ++i) {
      const kernels::Instruction& c = code_[i];
      f.code[i] = {c.op, number_of(c.a), number_of(c.b), number_of(c.c), c.bits};
    }
    f.wide = is_wide_;
    return p_.launch_pointwise(f, in, out);
  }

 public:
  // Drops axes of extent 1 and joins neighbours over which every tensor moves evenly.
  static void merge(Dims& extent, std::vector<Dims>& strides) {
    Dims joined;
    std::vector<Dims> moved(strides.size());
    for (size_t d = 0; d < extent.size(); ++d) {
      if (extent[d] == 1) continue;
      bool even = !joined.empty();
      for (size_t t = 0; t < strides.size() && even; ++t) even = moved[t].back() == strides[t][d] * extent[d];
      if (even) {
        joined.back() *= extent[d];
        for (size_t t = 0; t < strides.size(); ++t) moved[t].back() = strides[t][d];
      } else {
        joined.push_back(extent[d]);
        for (size_t t = 0; t < strides.size(); ++t) moved[t].push_back(strides[t][d]);
      }
    }
    extent = joined;
    strides = std::move(moved);
  }

 private:
  Planner& p_;
  const Graph& g_;
  const std::set<ValueId>& ready_;
  std::map<ValueId, NodeId> inside_;
  std::map<ValueId, int> done_;
  std::vector<Leaf> leaves_;
  std::vector<kernels::Instruction> code_;
  bool is_wide_ = false;
};

namespace {
// Whether threads may take four neighbours at a time: all operands lie side by side along the last axis or stay, at multiples of four.
bool takes_lanes(const kernels::Pointwise& f) {
  static constexpr long long kLanes = 4, kLeast = 4096, kMostSteps = 24;  // each instruction is compiled four times
  const long long last = f.dims - 1;
  if (last < 0 || f.extent[last] % kLanes != 0 || f.count < kLeast || f.steps > kMostSteps) return false;
  auto fits = [&](const kernels::Operand& o, bool may_stay) {
    if (o.stride[last] == 0 && may_stay) return true;
    return o.stride[last] == 1 && o.offset % kLanes == 0 && std::all_of(o.stride, o.stride + last, [](long long s) { return s % kLanes == 0; });
  };
  return std::all_of(f.in, f.in + f.ins, [&](const auto& o) { return fits(o, true); }) &&
         std::all_of(f.out, f.out + f.outs, [&](const auto& o) { return fits(o, false); });
}
}  // namespace

// One kernel serves all counts of elements that lie side by side.
Step Planner::launch_pointwise(kernels::Pointwise f, const std::vector<Ref>& in, const std::vector<Ref>& out) {
  f.lanes = takes_lanes(f) ? 4 : 1;
  const int64_t blocks = blocks_for(f.count / f.lanes);
  Dims sizes;
  if (f.dims == 1 && f.count <= INT32_MAX) sizes = {f.count}, f.count = kernels::kGiven, f.extent[0] = 1;
  return launch(f, in, out, blocks, 256, sizes);
}

bool Planner::is_pointwise(const Graph& g, NodeId n) { return g.op(n).fusion == FusionClass::kElementwise || g.op(n).name == "BatchNormalization"; }

// Values of the group that something outside it reads.
std::vector<ValueId> Planner::leaving(const std::vector<NodeId>& group) const {
  std::vector<ValueId> found;
  for (NodeId n : group) {
    ValueId v = g_.node(n).out_begin;
    bool outside = g_.output_uses(v) > 0;
    for (const Graph::Use& u : g_.users(v)) outside = outside || std::find(group.begin(), group.end(), u.node) == group.end();
    if (outside) found.push_back(v);
  }
  return found;
}

// Steps that compute what leaves the group, except what is `ready`. Halves what is too large for one kernel.
std::vector<Step> Planner::group_steps(const std::vector<NodeId>& group, const std::set<ValueId>& ready) {
  std::vector<Step> steps;
  std::vector<ValueId> wanted;
  for (ValueId v : leaving(group))
    if (!ready.contains(v) && count_of(dims(v)) > 0) wanted.push_back(v);
  try {
    while (!wanted.empty()) {
      std::vector<ValueId> alike, rest;
      for (ValueId v : wanted) (alike.size() < kernels::kMaxOuts && dims(v) == dims(wanted[0]) ? alike : rest).push_back(v);
      steps.push_back(Fuser(*this, group, ready).build(alike));
      wanted = rest;
    }
  } catch (const TooLarge&) {
    if (group.size() < 2) refuse(group[0], "it has more operands than a kernel takes");
    auto middle = group.begin() + static_cast<std::ptrdiff_t>(group.size() / 2);
    steps.clear();
    for (const std::vector<NodeId>& half : {std::vector<NodeId>(group.begin(), middle), std::vector<NodeId>(middle, group.end())})
      for (Step& s : group_steps(half, ready)) steps.push_back(std::move(s));
  }
  return steps;
}

void Planner::plan_group(const std::vector<NodeId>& group) {
  if (group.empty()) return;
  begin("");
  offer("pointwise" + names(group), group_steps(group, {}));
}

std::string Planner::names(const std::vector<NodeId>& group) const {
  std::string text;
  for (NodeId n : group) text += " " + g_.op(n).name;
  return text;
}

void merge_axes(Dims& extent, std::vector<Dims>& strides) { Fuser::merge(extent, strides); }

}  // namespace rlflow::gpu
