#include "plan.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace rlflow::gpu {

int64_t count_of(const Dims& dims) { return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()); }

Dims strides_of(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

size_t item_bytes(int dtype) { return static_cast<size_t>(dtype_bytes(dtype)); }
bool is_real(int dtype) { return dtype == kF32 || dtype == kF16 || dtype == kBF16 || dtype == kF64; }

std::string dims_text(const Dims& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) text += (i ? "," : "") + std::to_string(dims[i]);
  return text + "]";
}

int storage_dtype(int dtype, Precision precision) {
  if (dtype == kF32 && precision == Precision::kFloat16) return kF16;
  if (dtype == kF32 && precision == Precision::kBFloat16) return kBF16;
  return dtype;
}

DevicePtr Plan::address(Ref r, int copy) const {
  const Tensor& t = tensors[root(r)];
  if (t.place == Tensor::Place::kConstant) return constants.at(static_cast<size_t>(copy) * constant_bytes + t.offset);
  return arena.at(t.offset);
}

void Planner::refuse(NodeId n, const std::string& why) const {
  throw Failure("The cudnn back end cannot run " + g_.op(n).name + " here: " + why + ".");
}

std::optional<double> Planner::number(ValueId v) const {
  const ConstInfo* c = g_.constant(v);
  if (!c || !c->inline_values || count_of(dims(v)) != 1) return std::nullopt;
  if (c->floats.size() == 1) return c->floats[0];
  if (c->ints.size() == 1) return static_cast<double>(c->ints[0]);
  return std::nullopt;
}

Ref Planner::temporary(int dtype, const Dims& dims) {
  Tensor t;
  t.dtype = dtype;
  t.dims = dims;
  t.bytes = static_cast<size_t>(count_of(dims)) * item_bytes(dtype);
  t.place = Tensor::Place::kArena;
  plan_.tensors.push_back(t);
  return static_cast<Ref>(plan_.tensors.size() - 1);
}

Ref Planner::constant(int dtype, const Dims& dims, std::string content) {
  Ref r = temporary(dtype, dims);
  plan_.tensors[r].place = Tensor::Place::kConstant;
  plan_.contents.emplace_back(r, std::move(content));
  return r;
}

Ref Planner::read(Ref r) {
  r = plan_.root(r);
  Tensor& t = plan_.tensors[r];
  if (t.place == Tensor::Place::kNowhere) throw Failure("a step reads a tensor that nothing computes (a fault of the planner)");
  int stage = static_cast<int>(plan_.stages.size());
  t.first = std::min(t.first, stage);
  t.last = std::max(t.last, stage);
  return r;
}
Ref Planner::written(Ref r) {
  Tensor& t = plan_.tensors[plan_.root(r)];
  if (t.place == Tensor::Place::kNowhere) t.place = Tensor::Place::kArena;
  return read(r);
}

// What is known without computing: shapes of tensors, and what follows from them.
bool Planner::is_known(NodeId n) const {
  const Node& node = g_.node(n);
  for (uint32_t o = 0; o < node.out_count; ++o)
    if (plan_.tensors[node.out_begin + o].place != Tensor::Place::kConstant) return false;
  return true;
}

namespace {
template <class T>
std::string bytes_of(const IntVec& values) {
  std::string out(values.size() * sizeof(T), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    T v = static_cast<T>(values[i]);
    std::memcpy(out.data() + i * sizeof(T), &v, sizeof(T));
  }
  return out;
}
}  // namespace

void Planner::place_values(const std::vector<std::pair<ValueId, std::string>>& constants) {
  plan_.tensors.resize(g_.value_capacity());
  for (NodeId n : g_.order()) {
    const Node& node = g_.node(n);
    for (uint32_t o = 0; o < node.out_count; ++o) {
      ValueId v = node.out_begin + o;
      const TensorType& type = type_of(g_.type(v));
      Tensor& t = plan_.tensors[v];
      if (type.rank < 0 || !element_count(type)) {
        if (node.flags & kConst || !used_at_all(v)) continue;
        refuse(n, "its result has the type " + type_text(g_.type(v)) + ", expected numbers for all dimensions");
      }
      t.dtype = storage_dtype(type.dtype, plan_.settings.precision);
      t.dims.assign(type.dims.begin(), type.dims.end());
      t.bytes = static_cast<size_t>(count_of(t.dims)) * item_bytes(t.dtype);
      if (node.op == kOpInput) {
        t.place = Tensor::Place::kArena;
        t.first = -1;
        t.last = INT32_MAX;
        continue;
      }
      const IntVec* data = g_.data(v);
      bool whole = data && !(node.flags & kConst) && (type.dtype == kI64 || type.dtype == kI32) &&
                   std::all_of(data->begin(), data->end(), is_plain) && static_cast<int64_t>(data->size()) == count_of(t.dims);
      if (whole) {
        t.place = Tensor::Place::kConstant;
        plan_.contents.emplace_back(v, type.dtype == kI64 ? bytes_of<int64_t>(*data) : bytes_of<int32_t>(*data));
      }
    }
  }
  for (const auto& [v, content] : constants) {
    Tensor& t = plan_.tensors[v];
    if (content.size() != t.bytes)
      throw Failure("a constant has " + std::to_string(content.size()) + " bytes, expected " + std::to_string(t.bytes) + " for " +
                    type_text(g_.type(v)));
    t.place = Tensor::Place::kConstant;
    plan_.contents.emplace_back(v, content);
  }
}

void Planner::run(const std::vector<std::pair<ValueId, std::string>>& constants) {
  place_values(constants);
  Pricer pricer = Pricer::table(fusion_rules(plan_.settings.fusion, 0));
  for (const Region& region : pricer.regions(g_)) plan_region(region.nodes);
  for (ValueId v : g_.outputs()) {
    Tensor& t = plan_.tensors[plan_.root(v)];
    if (t.place == Tensor::Place::kNowhere) refuse(g_.producer(v), "nothing computes its result");
    t.last = INT32_MAX;
  }
}

namespace {
bool holds(const std::vector<NodeId>& nodes, NodeId n) { return std::find(nodes.begin(), nodes.end(), n) != nodes.end(); }
}  // namespace

bool Planner::swaps_last_axes(NodeId n) const {
  IntVec perm = g_.attrs(n).get_ints("perm");
  size_t r = perm.size();
  bool swap = r >= 2 && perm[r - 1] == static_cast<Int>(r) - 2 && perm[r - 2] == static_cast<Int>(r) - 1;
  for (size_t i = 0; i + 2 < r; ++i) swap = swap && perm[i] == static_cast<Int>(i);
  return swap;
}

// A Mul or Div of `operand` by one number; the number goes into alpha, what is scaled into `operand`.
bool Planner::scales_by_number(NodeId n, ValueId& operand, double& alpha) const {
  const bool product = g_.op(n).name == "Mul";
  if (!product && g_.op(n).name != "Div") return false;
  auto in = g_.inputs(n);
  size_t at = number(in[1]) ? 1 : 0;
  std::optional<double> factor = number(in[at]);
  if (!factor || (!product && at == 0) || dims(in[1 - at]) != dims(operand)) return false;
  alpha = product ? alpha * *factor : alpha / *factor;
  operand = in[1 - at];
  return true;
}

// A product's operand behind transposes of its last two axes and scales by numbers, which the product does itself.
ValueId Planner::behind(ValueId v, const std::vector<NodeId>& nodes, bool& turned, double& alpha, std::set<NodeId>& taken) const {
  for (;;) {
    NodeId p = g_.producer(v);
    if (!holds(nodes, p) || !used_once(v)) return v;
    if (g_.op(p).name == "Transpose" && swaps_last_axes(p)) {
      turned = !turned;
      v = g_.inputs(p)[0];
    } else if (!scales_by_number(p, v, alpha)) {
      return v;
    }
    taken.insert(p);
  }
}

// A convolution's operand behind a Pad with zeros, which are added to its own padding.
ValueId Planner::behind_padding(NodeId conv, const std::vector<NodeId>& nodes, IntVec& pads, std::set<NodeId>& taken) const {
  const ValueId x = g_.inputs(conv)[0];
  const NodeId p = g_.producer(x);
  if (!holds(nodes, p) || g_.op(p).name != "Pad" || !used_once(x)) return x;
  const AttrSet& attrs = g_.attrs(p);
  if (!attrs.find_ints("pads") || attrs.get_float("value", 0.0) != 0 || g_.inputs(p).size() != 1 ||
      attrs.get_string("mode", "constant") != "constant" || attrs.find_ints("axes"))
    return x;
  const IntVec& more = attrs.get_ints("pads");
  size_t r = dims(x).size(), s = r - 2;
  bool spatial =
      more[0] == 0 && more[1] == 0 && more[r] == 0 && more[r + 1] == 0 && std::all_of(more.begin(), more.end(), [](Int m) { return m >= 0; });
  if (!spatial) return x;
  for (size_t i = 0; i < s; ++i) pads[i] += more[2 + i], pads[s + i] += more[r + 2 + i];
  taken.insert(p);
  return g_.inputs(p)[0];
}

// Products with the pointwise nodes behind them, groups of pointwise nodes, and every other node by itself.
void Planner::plan_region(const std::vector<NodeId>& all) {
  std::vector<NodeId> nodes, group;
  for (NodeId n : all)
    if (!is_known(n)) nodes.push_back(n);
  std::set<NodeId> taken;
  std::map<NodeId, ProductOperands> products;
  for (NodeId n : nodes) {
    const std::string& op = g_.op(n).name;
    if (op != "MatMul" && op != "Gemm" && op != "Conv") continue;
    ProductOperands o{g_.inputs(n)[0], g_.inputs(n)[1], false, false, 1, {}};
    if (op == "Conv") {
      o.pads = g_.attrs(n).get_ints("pads");
      o.a = behind_padding(n, nodes, o.pads, taken);
    } else {
      o.a = behind(o.a, nodes, o.turned_a, o.alpha, taken);
      o.b = behind(o.b, nodes, o.turned_b, o.alpha, taken);
    }
    products[n] = o;
  }
  auto flush = [&] {
    plan_group(group);
    group.clear();
  };
  for (size_t i = 0; i < nodes.size(); ++i) {
    NodeId n = nodes[i];
    if (taken.contains(n)) continue;
    auto product = products.find(n);
    if (product == products.end() && is_pointwise(g_, n)) {
      group.push_back(n);
      continue;
    }
    flush();
    if (product == products.end()) {
      plan_node(n);
      continue;
    }
    std::vector<NodeId> tail(nodes.begin() + static_cast<std::ptrdiff_t>(i) + 1, nodes.end());
    if (!std::all_of(tail.begin(), tail.end(), [&](NodeId t) { return is_pointwise(g_, t) && !taken.contains(t); })) tail.clear();
    if (g_.op(n).name == "Conv") plan_convolution(n, tail, product->second.a, product->second.pads);
    else plan_matmul(n, tail, product->second);
    taken.insert(tail.begin(), tail.end());
  }
  flush();
}

void Planner::plan_view(NodeId n) {
  ValueId from = g_.inputs(n)[0], to = g_.node(n).out_begin;
  if (g_.is_const(to)) return;
  if (plan_.tensors[plan_.root(from)].bytes != plan_.tensors[to].bytes) refuse(n, "its result has another size than its operand");
  plan_.tensors[to].alias = plan_.root(from);
}

void Planner::plan_node(NodeId n) {
  using Plan1 = void (Planner::*)(NodeId);
  static const std::map<std::string, Plan1> kPlans = {{"Transpose", &Planner::plan_transpose},
                                                      {"Concat", &Planner::plan_concat},
                                                      {"Split", &Planner::plan_split},
                                                      {"Slice", &Planner::plan_slice},
                                                      {"Expand", &Planner::plan_expand},
                                                      {"Tile", &Planner::plan_tile},
                                                      {"DepthToSpace", &Planner::plan_blocks},
                                                      {"SpaceToDepth", &Planner::plan_blocks},
                                                      {"Pad", &Planner::plan_pad},
                                                      {"Resize", &Planner::plan_resize},
                                                      {"Gather", &Planner::plan_gather},
                                                      {"MaxPool", &Planner::plan_pool},
                                                      {"AveragePool", &Planner::plan_pool},
                                                      {"GlobalAveragePool", &Planner::plan_reduce},
                                                      {"GlobalMaxPool", &Planner::plan_reduce},
                                                      {"ArgMax", &Planner::plan_reduce},
                                                      {"ArgMin", &Planner::plan_reduce},
                                                      {"Softmax", &Planner::plan_softmax},
                                                      {"LogSoftmax", &Planner::plan_softmax},
                                                      {"LayerNormalization", &Planner::plan_normalise},
                                                      {"RMSNormalization", &Planner::plan_normalise},
                                                      {"InstanceNormalization", &Planner::plan_normalise}};
  const OpInfo& op = g_.op(n);
  if (op.fusion == FusionClass::kView) return plan_view(n);
  if (auto at = kPlans.find(op.name); at != kPlans.end()) return (this->*at->second)(n);
  if (op.has(kReduce)) return plan_reduce(n);
  refuse(n, "there is no kernel for it");
}

}  // namespace rlflow::gpu
