// Shapes, split positions and prices of Tensat's operators. The rules are TASO's (src/core/*.cc), which Tensat calls.
#include "rlflow/egraph_tensat.h"

#include <algorithm>
#include <charconv>

namespace rlflow::egraph {
namespace {

using Tensor = TensatLanguage::Tensor;
using Facts = TensatLanguage::Facts;
using Cuts = std::vector<int>;

struct OpRow {
  std::string_view name;
  int arity;
};
constexpr OpRow kOps[kTensatOps] = {
    {"num", 0},       {"var", 0},     {"input", 1},   {"weight", 1},  {"ewadd", 2},   {"ewmul", 2},   {"smul", 2},
    {"transpose", 3}, {"matmul", 3},  {"conv2d", 6},  {"enlarge", 2}, {"dropout", 1}, {"relu", 1},    {"tanh", 1},
    {"sigmoid", 1},   {"poolmax", 7}, {"poolavg", 7}, {"concat", 4},  {"concat3", 5}, {"concat4", 6}, {"concat5", 7},
    {"split", 2},     {"split_0", 1}, {"split_1", 1}, {"merge", 2},   {"reshape", 2}, {"noop", 2},    {"batchnorm", 5},
};
constexpr size_t kMaxCuts = 31;             // TASO's SplitInfo holds no more

std::vector<int> numbers(std::string_view text) {
  std::vector<int> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('_'), text.size());
    int value = 0;
    const std::string part(text.substr(0, end));
    const auto [rest, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc{} || rest != part.data() + part.size()) return {};
    out.push_back(value);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

int64_t elements(const Tensor& t) {
  int64_t n = 1;
  for (const int d : t.dims) n *= d;
  return n;
}

// TASO's SplitInfo: a flat list whose last element is the cut of the outermost concatenation.
bool append_cuts(Cuts& cuts, int offset, const Cuts& next) {
  if (cuts.size() + 1 + next.size() > kMaxCuts) return false;
  for (const int c : next) cuts.push_back(offset + c);
  cuts.push_back(offset);
  return true;
}

void divide_cuts(const Cuts& cuts, Cuts& left, Cuts& right, int& middle) {
  middle = cuts.back();
  size_t i = 0;
  while (i < cuts.size() && cuts[i] < middle) left.push_back(cuts[i++]);
  while (i + 1 < cuts.size()) right.push_back(cuts[i++] - middle);
}

std::optional<Tensor> elementwise(const Tensor& a, const Tensor& b) {
  const size_t rank = std::max(a.dims.size(), b.dims.size());
  Tensor out{std::vector<int>(rank), std::vector<Cuts>(rank)};
  for (size_t i = 0; i < rank; ++i) {       // from the right
    const size_t o = rank - 1 - i;
    const int ia = static_cast<int>(a.dims.size()) - 1 - static_cast<int>(i), ib = static_cast<int>(b.dims.size()) - 1 - static_cast<int>(i);
    const int da = ia >= 0 ? a.dims[ia] : 1, db = ib >= 0 ? b.dims[ib] : 1;
    if (da != db && da != 1 && db != 1) return std::nullopt;
    out.dims[o] = std::max(da, db);
    if (da > 1 && db > 1) {
      if (a.cuts[ia] == b.cuts[ib]) out.cuts[o] = a.cuts[ia];
    } else if (da > 1) {
      out.cuts[o] = a.cuts[ia];
    } else if (db > 1) {
      out.cuts[o] = b.cuts[ib];
    }
  }
  return out;
}

std::optional<Tensor> matmul(const Tensor& a, const Tensor& b) {
  const size_t rank = a.dims.size();
  if (rank < 2 || rank != b.dims.size() || a.dims[rank - 1] != b.dims[rank - 2]) return std::nullopt;
  Tensor out = a;
  for (size_t i = 0; i + 2 < rank; ++i) {
    if (a.dims[i] != b.dims[i]) return std::nullopt;
    if (a.cuts[i] != b.cuts[i]) out.cuts[i].clear();
  }
  out.dims[rank - 1] = b.dims[rank - 1];
  out.cuts[rank - 1] = b.cuts[rank - 1];
  return out;
}

// One spatial extent: PSAME (0) keeps ceil(extent / stride), PVALID (1) drops the border.
int window(int extent, int kernel, int stride, int padding) { return padding == 0 ? (extent + stride - 1) / stride : (extent - kernel) / stride + 1; }

std::optional<Tensor> convolution(int sh, int sw, int padding, const Tensor& x, const Tensor& w) {
  if (x.dims.size() != 4 || w.dims.size() != 4 || x.dims[1] % w.dims[1] != 0) return std::nullopt;
  if (w.dims[0] % (x.dims[1] / w.dims[1]) != 0) return std::nullopt;
  Tensor out{{x.dims[0], w.dims[0], window(x.dims[2], w.dims[2], sh, padding), window(x.dims[3], w.dims[3], sw, padding)}, {}};
  if (out.dims[2] <= 0 || out.dims[3] <= 0) return std::nullopt;
  out.cuts = {x.cuts[0], w.cuts[0], {}, {}};
  return out;
}

std::optional<Tensor> concatenation(int axis, int rank, std::span<const Facts* const> parts) {
  Tensor out = parts[0]->first;
  if (axis < 0 || axis >= rank) return std::nullopt;
  for (size_t k = 0; k < parts.size(); ++k) {
    const Tensor& t = parts[k]->first;
    if (static_cast<int>(t.dims.size()) != rank) return std::nullopt;
    if (k == 0) continue;
    for (int i = 0; i < rank; ++i) {
      if (i == axis) continue;
      if (t.dims[i] != out.dims[i]) return std::nullopt;
      if (t.cuts[i] != out.cuts[i]) out.cuts[i].clear();
    }
    if (!append_cuts(out.cuts[axis], out.dims[axis], t.cuts[axis])) return std::nullopt;
    out.dims[axis] += t.dims[axis];
  }
  return out;
}

std::optional<Facts> split(int axis, const Tensor& x) {
  if (axis < 0 || axis >= static_cast<int>(x.dims.size()) || x.cuts[axis].empty()) return std::nullopt;
  Facts out{Facts::kPair, 0, x, x, false};
  int middle = 0;
  out.first.cuts[axis].clear();
  out.second.cuts[axis].clear();
  divide_cuts(x.cuts[axis], out.first.cuts[axis], out.second.cuts[axis], middle);
  out.first.dims[axis] = middle;
  out.second.dims[axis] = x.dims[axis] - middle;
  if (middle <= 0 || out.second.dims[axis] <= 0) return std::nullopt;
  return out;
}

Tensor uncut(std::vector<int> dims) {
  const size_t rank = dims.size();
  return {std::move(dims), std::vector<Cuts>(rank)};
}

std::optional<Tensor> transposed(const Tensor& x, const std::vector<int>& perm) {
  if (perm.size() != x.dims.size()) return std::nullopt;
  Tensor out = x;
  std::vector<bool> seen(perm.size(), false);
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] < 0 || perm[i] >= static_cast<int>(perm.size()) || seen[perm[i]]) return std::nullopt;
    seen[perm[i]] = true;
    out.dims[i] = x.dims[perm[i]];
    out.cuts[i] = x.cuts[perm[i]];
  }
  return out;
}

// "name@2_3_4": the shape stands in the name.
std::optional<Tensor> named_tensor(std::string_view name) {
  const size_t at = name.rfind('@');
  if (at == std::string_view::npos) return std::nullopt;
  Tensor out = uncut(numbers(name.substr(at + 1)));
  if (out.dims.empty()) return std::nullopt;
  return out;
}

// A kernel padded to the spatial extents of another.
std::optional<Tensor> enlarged(const Tensor& x, const Tensor& like) {
  if (x.dims.size() != 4 || like.dims.size() != 4 || x.dims[2] > like.dims[2] || x.dims[3] > like.dims[3]) return std::nullopt;
  Tensor out = x;
  out.dims[2] = like.dims[2];
  out.dims[3] = like.dims[3];
  return out;
}

// Parameters: two kernel extents, two strides, the padding.
std::optional<Tensor> pooled(const Tensor& x, const std::vector<int>& parameters) {
  if (x.dims.size() != 4) return std::nullopt;
  Tensor out = x;
  for (size_t i = 0; i < 2; ++i) {
    out.dims[2 + i] = window(x.dims[2 + i], parameters[i], parameters[2 + i], parameters[4]);
    out.cuts[2 + i].clear();
    if (out.dims[2 + i] <= 0) return std::nullopt;
  }
  return out;
}

// The weights of a grouped convolution with `count` times fewer groups.
std::optional<Tensor> merged_groups(const Tensor& weights, int count) {
  if (weights.dims.size() != 4 || count <= 0) return std::nullopt;
  Tensor out = uncut(weights.dims);
  out.dims[1] *= count;
  out.cuts[0] = weights.cuts[0];
  return out;
}

std::optional<Tensor> reshaped(const Tensor& x, std::vector<int> dims) {
  Tensor out = uncut(std::move(dims));
  if (elements(out) != elements(x)) return std::nullopt;
  return out;
}

// Parameters that are text: a name with a shape, a permutation, a shape. The others are numbers.
bool is_text_parameter(uint32_t op, size_t child) { return op == kTInput || op == kTWeight || (op == kTTranspose && child == 1) || op == kTReshape; }

// Which children must be tensors, for a node's kind check: all that are not parameters.
bool is_parameter(uint32_t op, size_t child) {
  switch (op) {
    case kTInput:
    case kTWeight: return true;
    case kTTranspose: return child > 0;
    case kTMatmul: return child == 0;
    case kTConv2d: return child < 4;
    case kTPoolmax:
    case kTPoolavg: return child > 0;
    case kTConcat:
    case kTConcat3:
    case kTConcat4:
    case kTConcat5: return child < 2;
    case kTSplit: return child == 0;
    case kTMerge:
    case kTReshape: return child == 1;
    default: return false;
  }
}

}  // namespace

int TensatLanguage::op_of(std::string_view name) {
  for (int i = kTInput; i < static_cast<int>(kTensatOps); ++i)
    if (kOps[i].name == name) return i;
  return -1;
}

std::string TensatLanguage::op_name(uint32_t op) const { return op < kTensatOps ? std::string(kOps[op].name) : "?"; }

std::string TensatLanguage::data_text(DataId data) const {
  const Facts& f = *facts_[data];
  const auto shape = [](const Tensor& t) {
    std::string out = "[";
    for (const int d : t.dims) out += (out.size() > 1 ? "," : "") + std::to_string(d);
    return out + "]";
  };
  switch (f.kind) {
    case Facts::kNumber: return std::to_string(f.value);
    case Facts::kName: return symbols_[f.value];
    case Facts::kTensor: return shape(f.first) + (f.weights_only ? " const" : "");
    case Facts::kPair: return "(" + shape(f.first) + ", " + shape(f.second) + ")" + (f.weights_only ? " const" : "");
    default: return "nothing";
  }
}

DataId TensatLanguage::intern(const Facts& facts) {
  const auto [it, fresh] = ids_.emplace(facts, static_cast<DataId>(facts_.size()));
  if (fresh) facts_.push_back(&it->first);
  return it->second;
}

DataId TensatLanguage::merge(DataId kept, DataId absorbed) {
  if (facts_[kept]->weights_only || !facts_[absorbed]->weights_only) return kept;
  Facts merged = *facts_[kept];
  merged.weights_only = true;
  return intern(merged);
}

// The operands of a node by their roles.
struct TensatLanguage::Operands {
  std::vector<int> value;            // number parameters, in order
  std::string text;
  std::vector<const Facts*> in;      // tensors, or the pair that a split gives
  bool weights_only = true;
};

// nullopt where an operand is not of the kind that its place wants.
std::optional<TensatLanguage::Operands> TensatLanguage::operands(uint32_t op, std::span<const DataId> children) const {
  Operands o;
  for (size_t i = 0; i < children.size(); ++i) {
    const Facts& f = *facts_[children[i]];
    const bool parameter = is_parameter(op, i);
    if (parameter && is_text_parameter(op, i)) {
      if (f.kind != Facts::kNumber && f.kind != Facts::kName) return std::nullopt;
      o.text = f.kind == Facts::kNumber ? std::to_string(f.value) : symbols_[f.value];  // a shape of one extent reads as a number
    } else if (parameter) {
      if (f.kind != Facts::kNumber) return std::nullopt;
      o.value.push_back(f.value);
    } else {
      const bool pair = op == kTSplit0 || op == kTSplit1;
      if (op != kTNoop && f.kind != (pair ? Facts::kPair : Facts::kTensor)) return std::nullopt;
      o.in.push_back(&f);
      o.weights_only = o.weights_only && f.weights_only;
    }
  }
  return o;
}

std::optional<TensatLanguage::Tensor> TensatLanguage::result(uint32_t op, const Operands& o) {
  auto in = [&](size_t i) -> const Tensor& { return o.in[i]->first; };
  switch (op) {
    case kTInput:
    case kTWeight: return named_tensor(o.text);
    case kTEwadd:
    case kTEwmul: return elementwise(in(0), in(1));
    case kTTranspose: return transposed(in(0), numbers(o.text));
    case kTMatmul: return matmul(in(0), in(1));
    case kTConv2d: return convolution(o.value[0], o.value[1], o.value[2], in(0), in(1));
    case kTEnlarge: return enlarged(in(0), in(1));
    case kTDropout:
    case kTRelu:
    case kTTanh:
    case kTSigmoid:
    case kTSmul:
    case kTBatchnorm:
    case kTSplit0: return in(0);
    case kTSplit1: return o.in[0]->second;
    case kTPoolmax:
    case kTPoolavg: return pooled(in(0), o.value);
    case kTConcat:
    case kTConcat3:
    case kTConcat4:
    case kTConcat5: return concatenation(o.value[0], o.value[1], o.in);
    case kTMerge: return merged_groups(in(0), o.value[0]);
    case kTReshape: return reshaped(in(0), numbers(o.text));
    case kTNoop: return Tensor{};
    default: return std::nullopt;
  }
}

std::optional<DataId> TensatLanguage::infer(uint32_t op, uint32_t attr, std::span<const DataId> children) {
  if (op >= kTensatOps || static_cast<int>(children.size()) != kOps[op].arity) return std::nullopt;
  if (op == kTNum || op == kTVar) return intern({op == kTNum ? Facts::kNumber : Facts::kName, static_cast<int>(attr), {}, {}, false});
  const std::optional<Operands> o = operands(op, children);
  if (!o) return std::nullopt;
  if (op == kTSplit) {
    std::optional<Facts> pair = split(o->value[0], o->in[0]->first);
    if (!pair) return std::nullopt;
    pair->weights_only = o->weights_only;
    return intern(*pair);
  }
  std::optional<Tensor> tensor = result(op, *o);
  if (!tensor) return std::nullopt;
  const bool source = op == kTInput || op == kTWeight;
  const bool weights_only = source ? op == kTWeight : o->weights_only && op != kTNoop;
  return intern({op == kTNoop ? Facts::kNothing : Facts::kTensor, 0, std::move(*tensor), {}, weights_only});
}

double TensatLanguage::cost(const EGraph& g, ENodeId n, const TensatDevice& device) const {
  const ENode& node = g.node(n);
  const Facts& out = facts(g.data(node.cls));
  std::vector<const Facts*> in;
  bool weights_only = true;
  for (size_t i = 0; i < node.arity; ++i) {
    if (is_parameter(node.op, i)) continue;
    in.push_back(&facts(g.data(g.children(n)[i])));
    weights_only = weights_only && in.back()->weights_only;
  }
  if (in.empty() || weights_only) return 0;
  double flops = 0, bytes = 4.0 * static_cast<double>(elements(out.first));
  switch (node.op) {
    case kTNoop:
    case kTTranspose:
    case kTReshape:
    case kTDropout:
    case kTSplit:
    case kTSplit0:
    case kTSplit1:
    case kTEnlarge:
    case kTMerge: return 0;
    case kTMatmul: flops = 2.0 * static_cast<double>(elements(out.first)) * in[0]->first.dims.back(); break;
    case kTConv2d: {
      const Tensor& w = in[1]->first;
      flops = 2.0 * static_cast<double>(elements(out.first)) * w.dims[1] * w.dims[2] * w.dims[3];
      break;
    }
    default: flops = static_cast<double>(elements(out.first)); break;
  }
  for (const Facts* f : in) bytes += 4.0 * static_cast<double>(elements(f->first));
  return device.overhead_us * 1e-3 + std::max(flops / (device.gflops * 1e6), bytes / (device.gbps * 1e6));
}

}  // namespace rlflow::egraph
