// Shapes, split positions and prices of Tensat's operators.
//
// Shapes are those of the operator table: each operator names the row that computes the same, and the row's rule is asked. What
// TASO (src/core/*.cc), which Tensat calls, does otherwise stands before the question, each time with "TASO:" and the reason. Split
// positions are TASO's own; the table has nothing like them.
#include "rlflow/egraph_tensat.h"

#include <algorithm>
#include <charconv>
#include <climits>

#include "rlflow/ops.h"

namespace rlflow::egraph {
namespace {

using Tensor = TensatLanguage::Tensor;
using Facts = TensatLanguage::Facts;
using Cuts = std::vector<int>;

struct OpRow {
  std::string_view name;
  int arity;
  std::string_view rule = {};               // the row of the operator table that is asked for shapes; none: a leaf, or a name of ours for a part
};
// clang-format off
constexpr OpRow kOps[kTensatOps] = {
    {"num", 0}, {"var", 0}, {"input", 1}, {"weight", 1},
    {"ewadd", 2, "Add"}, {"ewmul", 2, "Mul"}, {"smul", 2}, {"transpose", 3, "Transpose"}, {"matmul", 3, "MatMul"},
    {"conv2d", 6, "Conv"}, {"enlarge", 2, "Pad"}, {"dropout", 1, "Identity"}, {"relu", 1, "Relu"}, {"tanh", 1, "Tanh"},
    {"sigmoid", 1, "Sigmoid"}, {"poolmax", 7, "MaxPool"}, {"poolavg", 7, "AveragePool"}, {"concat", 4, "Concat"},
    {"concat3", 5, "Concat"}, {"concat4", 6, "Concat"}, {"concat5", 7, "Concat"}, {"split", 2, "Split"}, {"split_0", 1},
    {"split_1", 1}, {"merge", 2, "Tile"}, {"reshape", 2, "Reshape"}, {"noop", 2}, {"batchnorm", 5, "BatchNormalization"},
};
// clang-format on
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

using Dims = std::vector<int>;
using Attribute = std::pair<std::string_view, AttrValue>;

// Extents of an operator's results by its row's rule; nothing where that finds a contradiction, or an extent that is no positive int.
std::optional<std::vector<Dims>> asked(uint32_t op, std::initializer_list<Attribute> attributes, std::span<const Dims* const> operands,
                                       int results = 1) {
  AttrSet attrs;
  for (const auto& [name, value] : attributes) attrs.set(name, value);
  std::vector<InferInput> inputs;
  for (const Dims* dims : operands) inputs.push_back({.present = true, .type = make_type(kF32, IntVec(dims->begin(), dims->end()))});
  std::vector<InferOutput> inferred;
  if (!rlflow::infers(find_op(kOps[op].rule), attrs, inputs, inferred, results)) return std::nullopt;
  std::vector<Dims> out;
  for (const InferOutput& one : inferred) {
    Dims& dims = out.emplace_back();
    for (const Int d : type_of(one.type).dims) {
      if (d < 1 || d > INT_MAX) return std::nullopt;
      dims.push_back(static_cast<int>(d));
    }
  }
  return out;
}

// The same of an operator with one result, with the split positions of `x`; the caller mends those that do not stay.
std::optional<Tensor> asked_with_cuts(uint32_t op, std::initializer_list<Attribute> attributes, const Tensor& x) {
  const Dims* const operand = &x.dims;
  std::optional<std::vector<Dims>> dims = asked(op, attributes, {&operand, 1});
  if (!dims) return std::nullopt;
  return Tensor{std::move((*dims)[0]), x.cuts};
}

std::optional<Tensor> elementwise(uint32_t op, const Tensor& a, const Tensor& b) {
  const Dims* const operands[] = {&a.dims, &b.dims};
  std::optional<std::vector<Dims>> dims = asked(op, {}, operands);
  if (!dims) return std::nullopt;
  const size_t rank = (*dims)[0].size();
  Tensor out{std::move((*dims)[0]), std::vector<Cuts>(rank)};
  const Cuts none;
  for (size_t i = 0; i < rank; ++i) {       // from the right
    const auto cuts_of = [&](const Tensor& t) -> const Cuts* {
      return i < t.dims.size() && t.dims[t.dims.size() - 1 - i] > 1 ? &t.cuts[t.dims.size() - 1 - i] : nullptr;
    };
    const Cuts *left = cuts_of(a), *right = cuts_of(b);
    const bool differ = left && right && *left != *right;
    out.cuts[rank - 1 - i] = differ ? none : left ? *left : right ? *right : none;
  }
  return out;
}

std::optional<Tensor> matmul(const Tensor& a, const Tensor& b) {
  const size_t rank = a.dims.size();
  // TASO: its kernel has one batch size for both operands, so nothing broadcasts.
  if (rank < 2 || rank != b.dims.size() || !std::equal(a.dims.begin(), a.dims.end() - 2, b.dims.begin())) return std::nullopt;
  const Dims* const operands[] = {&a.dims, &b.dims};
  std::optional<std::vector<Dims>> dims = asked(kTMatmul, {}, operands);
  if (!dims) return std::nullopt;
  Tensor out{std::move((*dims)[0]), a.cuts};
  for (size_t i = 0; i + 2 < rank; ++i)
    if (a.cuts[i] != b.cuts[i]) out.cuts[i].clear();
  out.cuts[rank - 1] = b.cuts[rank - 1];
  return out;
}

// TASO: PSAME (0) or PVALID (1), and no other padding.
AttrValue padding_mode(int padding) { return std::string(padding == 0 ? "SAME_UPPER" : "VALID"); }

std::optional<Tensor> convolution(int sh, int sw, int padding, const Tensor& x, const Tensor& w) {
  if (x.dims.size() != 4 || w.dims.size() != 4) return std::nullopt;
  // TASO: no operand says how many groups there are; the channels do.
  const Int group = x.dims[1] / w.dims[1];
  const Dims* const operands[] = {&x.dims, &w.dims};
  std::optional<std::vector<Dims>> dims =
      asked(kTConv2d, {{"group", group}, {"strides", IntVec{sh, sw}}, {"auto_pad", padding_mode(padding)}}, operands);
  if (!dims) return std::nullopt;
  return Tensor{std::move((*dims)[0]), {x.cuts[0], w.cuts[0], {}, {}}};
}

std::optional<Tensor> concatenation(uint32_t op, int axis, int rank, std::span<const Facts* const> parts) {
  // TASO: the rank is said twice, by an operand and by the tensors; axes count from the front.
  if (axis < 0 || static_cast<int>(parts[0]->first.dims.size()) != rank) return std::nullopt;
  std::vector<const Dims*> operands;
  for (const Facts* part : parts) operands.push_back(&part->first.dims);
  std::optional<std::vector<Dims>> dims = asked(op, {{"axis", Int{axis}}}, operands);
  if (!dims) return std::nullopt;
  Tensor out{std::move((*dims)[0]), parts[0]->first.cuts};
  int joined = parts[0]->first.dims[axis];
  for (const Facts* part : parts.subspan(1)) {
    const Tensor& t = part->first;
    for (int i = 0; i < rank; ++i)
      if (i != axis && t.cuts[i] != out.cuts[i]) out.cuts[i].clear();
    if (!append_cuts(out.cuts[axis], joined, t.cuts[axis])) return std::nullopt;
    joined += t.dims[axis];
  }
  return out;
}

std::optional<Facts> split(int axis, const Tensor& x) {
  // TASO: a tensor is split where it was joined last, and nowhere else.
  if (axis < 0 || axis >= static_cast<int>(x.dims.size()) || x.cuts[axis].empty()) return std::nullopt;
  Facts out{Facts::kPair, 0, x, x, false};
  int middle = 0;
  out.first.cuts[axis].clear();
  out.second.cuts[axis].clear();
  divide_cuts(x.cuts[axis], out.first.cuts[axis], out.second.cuts[axis], middle);
  const Dims* const operand = &x.dims;
  std::optional<std::vector<Dims>> dims = asked(kTSplit, {{"axis", Int{axis}}, {"split", IntVec{middle, x.dims[axis] - middle}}}, {&operand, 1}, 2);
  if (!dims) return std::nullopt;
  out.first.dims = std::move((*dims)[0]);
  out.second.dims = std::move((*dims)[1]);
  return out;
}

Tensor uncut(Dims dims) {
  const size_t rank = dims.size();
  return {std::move(dims), std::vector<Cuts>(rank)};
}

std::optional<Tensor> transposed(const Tensor& x, const std::vector<int>& perm) {
  std::optional<Tensor> out = asked_with_cuts(kTTranspose, {{"perm", IntVec(perm.begin(), perm.end())}}, x);
  for (size_t i = 0; out && i < perm.size(); ++i) out->cuts[i] = x.cuts[perm[i]];
  return out;
}

// "name@2_3_4": the shape stands in the name. There are no empty tensors.
std::optional<Tensor> named_tensor(std::string_view name) {
  const size_t at = name.rfind('@');
  if (at == std::string_view::npos) return std::nullopt;
  Tensor out = uncut(numbers(name.substr(at + 1)));
  if (out.dims.empty() || *std::min_element(out.dims.begin(), out.dims.end()) < 1) return std::nullopt;
  return out;
}

// A kernel padded to the spatial extents of another. TASO: only of rank 4, and nothing is cut off.
std::optional<Tensor> enlarged(const Tensor& x, const Tensor& like) {
  if (x.dims.size() != 4 || like.dims.size() != 4 || x.dims[2] > like.dims[2] || x.dims[3] > like.dims[3]) return std::nullopt;
  return asked_with_cuts(kTEnlarge, {{"pads", IntVec{0, 0, 0, 0, 0, 0, like.dims[2] - x.dims[2], like.dims[3] - x.dims[3]}}}, x);
}

// Parameters: two kernel extents, two strides, the padding.
std::optional<Tensor> pooled(uint32_t op, const Tensor& x, const std::vector<int>& p) {
  if (x.dims.size() != 4) return std::nullopt;
  std::optional<Tensor> out =
      asked_with_cuts(op, {{"kernel_shape", IntVec{p[0], p[1]}}, {"strides", IntVec{p[2], p[3]}}, {"auto_pad", padding_mode(p[4])}}, x);
  for (size_t i = 2; out && i < 4; ++i) out->cuts[i].clear();
  return out;
}

// The weights of a grouped convolution with `count` times fewer groups: blocks on a diagonal, as wide as `count` copies side by side.
std::optional<Tensor> merged_groups(const Tensor& weights, int count) {
  if (weights.dims.size() != 4) return std::nullopt;
  std::optional<Tensor> out = asked_with_cuts(kTMerge, {{"repeats", IntVec{1, count, 1, 1}}}, weights);
  for (size_t i = 1; out && i < 4; ++i) out->cuts[i].clear();
  return out;
}

// TASO: a shape is extents; it has neither ONNX's 0 (the operand's own) nor its -1 (the rest).
std::optional<Tensor> reshaped(const Tensor& x, const std::vector<int>& shape) {
  if (shape.empty() || *std::min_element(shape.begin(), shape.end()) < 1) return std::nullopt;
  const Dims* const operand = &x.dims;
  std::optional<std::vector<Dims>> dims = asked(kTReshape, {{"shape", IntVec(shape.begin(), shape.end())}}, {&operand, 1});
  if (!dims) return std::nullopt;
  return uncut(std::move((*dims)[0]));
}

std::optional<Tensor> batch_normalisation(std::span<const Facts* const> in) {
  std::vector<const Dims*> operands;
  for (const Facts* one : in) operands.push_back(&one->first.dims);
  if (!asked(kTBatchnorm, {}, operands)) return std::nullopt;
  return in[0]->first;
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
    case kTEwmul: return elementwise(op, in(0), in(1));
    case kTTranspose: return transposed(in(0), numbers(o.text));
    case kTMatmul: return matmul(in(0), in(1));
    case kTConv2d: return convolution(o.value[0], o.value[1], o.value[2], in(0), in(1));
    case kTEnlarge: return enlarged(in(0), in(1));
    case kTDropout:
    case kTRelu:
    case kTTanh:
    case kTSigmoid: return asked_with_cuts(op, {}, in(0));
    case kTBatchnorm: return batch_normalisation(o.in);
    case kTSmul:                            // TASO: whatever the shape of the scalar
    case kTSplit0: return in(0);            // what was inferred for the pair
    case kTSplit1: return o.in[0]->second;
    case kTPoolmax:
    case kTPoolavg: return pooled(op, in(0), o.value);
    case kTConcat:
    case kTConcat3:
    case kTConcat4:
    case kTConcat5: return concatenation(op, o.value[0], o.value[1], o.in);
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
