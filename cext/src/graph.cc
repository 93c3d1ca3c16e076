#include "rlflow/graph.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <ranges>
#include <shared_mutex>

namespace rlflow {
namespace {

// Known integer elements of shape tensors, interned; entry 0 stands for "nothing known".
struct DataTable {
  std::shared_mutex mutex;
  std::deque<IntVec> items{IntVec{}};
  std::unordered_map<Hash128, uint32_t, Hash128Hasher> index;
};
DataTable& data_table() {
  static DataTable* t = new DataTable;
  return *t;
}

bool all_plain(const IntVec& v) {
  return std::all_of(v.begin(), v.end(), [](Int x) { return is_plain(x) && std::llabs(x) < (Int{1} << 53); });
}

}  // namespace

void coerce_floats(const OpInfo& op, AttrSet& attrs) {
  for (const auto& d : op.defaults) {
    if (!std::holds_alternative<double>(d.value)) continue;
    for (auto& [name, value] : attrs.items)
      if (name == d.name && std::holds_alternative<Int>(value)) value = static_cast<double>(std::get<Int>(value));
  }
}

ConstantNode::ConstantNode(ConstId c) {
  const ConstInfo& info = const_of(c);
  AttrSet a;
  a.set("value", ConstRef{c});
  attrs = intern_attrs(a);
  output.type = info.type;
  const TensorType& t = type_of(info.type);
  if (info.inline_values && (t.dtype == kI64 || t.dtype == kI32) && t.rank <= 1 && info.ints.size() <= 64) {
    output.has_data = true;
    output.data = info.ints;
  }
}

uint32_t intern_data(const IntVec& v) {
  Hasher h(7);
  for (Int x : v) h.add(is_plain(x) ? Hash128{1, static_cast<uint64_t>(x)} : int_digest(x));
  h.add(v.size());
  Hash128 key = h.finish();
  DataTable& t = data_table();
  {
    std::shared_lock lock(t.mutex);
    auto it = t.index.find(key);
    if (it != t.index.end()) return it->second;
  }
  std::unique_lock lock(t.mutex);
  auto [it, fresh] = t.index.try_emplace(key, static_cast<uint32_t>(t.items.size()));
  if (fresh) t.items.push_back(v);
  return it->second;
}

const IntVec& data_of(uint32_t id) {
  DataTable& t = data_table();
  std::shared_lock lock(t.mutex);
  return t.items[id];
}

const IntVec* Graph::data(ValueId v) const { return value_data_[v] ? &data_of(value_data_[v]) : nullptr; }

const ConstInfo* Graph::constant(ValueId v) const {
  const Node& n = nodes_[value_node_[v]];
  if (n.op != kOpConstant) return nullptr;
  return &const_of(std::get<ConstRef>(*attrs_of(n.attrs).find("value")).id);
}

Hasher Graph::hash_head(NodeId id) const {
  const Node& n = nodes_[id];
  Hasher h(n.op == kOpInput ? 1 : 2);
  if (n.op == kOpInput) {
    h.add(static_cast<uint64_t>(attrs_of(n.attrs).get_int("position")));
    h.add(type_digest(value_type_[n.out_begin]));
    return h;
  }
  // Operators are hashed by name, so that a digest survives a new row in the table.
  static const std::vector<Hash128>* names = [] {
    auto* v = new std::vector<Hash128>;
    for (const auto& op : op_table()) v->push_back(hash_bytes(op.name));
    return v;
  }();
  h.add((*names)[n.op]);
  h.add(attrs_digest(n.attrs));
  h.add((static_cast<uint64_t>(n.in_count) << 32) | n.out_count);
  return h;
}

Hash128 Graph::hash_node(NodeId id) const {
  const Node& n = nodes_[id];
  Hasher h = id < node_head_.size() ? node_head_[id] : hash_head(id);
  for (uint32_t i = 0; i < n.in_count; ++i) {
    ValueId v = pool_[n.in_begin + i];
    if (v == kNoValue) {
      h.add(0x5bd1e995u);
      continue;
    }
    NodeId p = value_node_[v];
    const Hash128& d = node_digest_[p];
    h.add(d.hi);
    h.add(d.lo ^ (static_cast<uint64_t>(v - nodes_[p].out_begin) * 0x9e3779b97f4a7c15ULL));
  }
  return h.finish();
}

void Graph::index() {
  order_.clear();
  position_.assign(nodes_.size(), UINT32_MAX);
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> state(nodes_.size(), kNew);
  for (NodeId n : graph_inputs_) {
    state[n] = kDone;
    position_[n] = static_cast<uint32_t>(order_.size());
    order_.push_back(n);
  }
  std::vector<std::pair<NodeId, uint32_t>> stack;
  for (ValueId out : outputs_) {
    NodeId root = value_node_[out];
    if (state[root] == kDone) continue;
    stack.emplace_back(root, 0);
    state[root] = kOpen;
    while (!stack.empty()) {
      auto& [n, next] = stack.back();
      const Node& node = nodes_[n];
      NodeId child = kNoNode;
      while (next < node.in_count) {
        ValueId v = pool_[node.in_begin + next++];
        if (v == kNoValue) continue;
        NodeId p = value_node_[v];
        if (state[p] == kDone) continue;
        if (state[p] == kOpen) throw Error(ErrorKind::kGraph, "the graph has a cycle through a " + op_info(node.op).name + " node");
        child = p;
        break;
      }
      if (child != kNoNode) {
        state[child] = kOpen;
        stack.emplace_back(child, 0);
        continue;
      }
      state[n] = kDone;
      position_[n] = static_cast<uint32_t>(order_.size());
      order_.push_back(n);
      stack.pop_back();
    }
  }
  for (NodeId n = 0; n < nodes_.size(); ++n)
    if (state[n] != kDone) nodes_[n].flags |= kDead;
  index_uses_of(order());
}

// A counting sort of the operands, node by node.
template <class Nodes>
void Graph::index_uses_of(Nodes nodes) {
  const size_t values = value_type_.size();
  use_end_.assign(values + 1, 0);
  for (NodeId n : nodes)
    for (ValueId v : inputs(n))
      if (v != kNoValue) ++use_end_[v + 1];
  for (size_t v = 0; v < values; ++v) use_end_[v + 1] += use_end_[v];
  uses_.resize(use_end_[values]);
  use_begin_.assign(use_end_.begin(), use_end_.end() - 1);
  use_end_.assign(use_begin_.begin(), use_begin_.end());
  for (NodeId n : nodes) {
    auto in = inputs(n);
    for (uint32_t s = 0; s < in.size(); ++s)
      if (in[s] != kNoValue) uses_[use_end_[in[s]]++] = {n, s};
  }
  output_uses_.assign(values, 0);
  for (ValueId v : outputs_) ++output_uses_[v];
}

void Graph::index_uses() {
  index_uses_of(std::views::iota(NodeId{0}, static_cast<NodeId>(nodes_.size())) | std::views::filter([this](NodeId n) { return alive(n); }));
}

void Graph::hash_outputs() {
  Hasher h(3);
  h.add(graph_inputs_.size());
  for (NodeId n : graph_inputs_) h.add(node_digest_[n]);
  for (ValueId v : outputs_) {
    h.add(node_digest_[value_node_[v]]);
    h.add(static_cast<uint64_t>(output_index(v)));
  }
  digest_ = h.finish();
}

void Graph::hash_heads() {
  node_head_.reserve(nodes_.size());
  for (NodeId n = static_cast<NodeId>(node_head_.size()); n < nodes_.size(); ++n) node_head_.push_back(hash_head(n));
}

void Graph::build_digest_table() {
  size_t size = 16;
  while (size < 2 * order_.size() + 2) size *= 2;
  digest_table_.assign(size, kNoNode);
  for (NodeId n : order_) {
    size_t slot = node_digest_[n].lo & (size - 1);
    while (digest_table_[slot] != kNoNode) slot = (slot + 1) & (size - 1);
    digest_table_[slot] = n;
  }
}

void Graph::hash() {
  hash_heads();
  node_digest_.resize(nodes_.size());
  for (NodeId n : order_) node_digest_[n] = hash_node(n);
  build_digest_table();
  hash_outputs();
}

NodeId Graph::find_node(const Hash128& d) const {
  if (digest_table_.empty()) return kNoNode;
  size_t mask = digest_table_.size() - 1;
  for (size_t slot = d.lo & mask; digest_table_[slot] != kNoNode; slot = (slot + 1) & mask)
    if (node_digest_[digest_table_[slot]] == d) return digest_table_[slot];
  return kNoNode;
}

bool Graph::depends_on(NodeId user, NodeId source) const {
  if (user == source) return true;
  const uint32_t floor = position_[source];
  if (position_[user] < floor) return false;
  std::vector<NodeId> stack{user};
  // Only nodes after `source` in topological order can lie on a path.
  std::vector<uint8_t> mark(order_.size() - floor, 0);
  while (!stack.empty()) {
    NodeId n = stack.back();
    stack.pop_back();
    for (ValueId v : inputs(n)) {
      if (v == kNoValue) continue;
      NodeId p = value_node_[v];
      if (p == source) return true;
      if (position_[p] < floor || mark[position_[p] - floor]) continue;
      mark[position_[p] - floor] = 1;
      stack.push_back(p);
    }
  }
  return false;
}

size_t Graph::memory_bytes() const {
  auto bytes = [](const auto& v) { return v.capacity() * sizeof(v[0]); };
  return sizeof(Graph) + bytes(nodes_) + bytes(pool_) + bytes(value_node_) + bytes(value_type_) + bytes(value_data_) + bytes(outputs_) +
         bytes(graph_inputs_) + bytes(order_) + bytes(position_) + bytes(use_begin_) + bytes(use_end_) + bytes(uses_) + bytes(output_uses_) +
         bytes(node_digest_) + bytes(node_head_) + bytes(digest_table_);
}

std::string input_name(const Graph& g, NodeId n) { return g.attrs(n).get_string("name"); }

// ---------------------------------------------------------------------------------------------------------------- builder

const IntVec* GraphBuilder::data(ValueId v) const { return g_.data(v); }
bool GraphBuilder::is_const(ValueId v) const { return g_.is_const(v); }

ValueId GraphBuilder::append(OpId op, AttrId attrs, std::span<const ValueId> inputs, std::span<const InferOutput> outs, bool is_const) {
  Node n{op,
         static_cast<uint16_t>(is_const ? kConst : 0),
         attrs,
         static_cast<uint32_t>(g_.pool_.size()),
         static_cast<uint32_t>(g_.value_type_.size()),
         static_cast<uint16_t>(inputs.size()),
         static_cast<uint16_t>(outs.size())};
  if (inputs.size() > UINT16_MAX || outs.size() > UINT16_MAX)
    throw Error(ErrorKind::kGraph, op_info(op).name + " has more than 65535 inputs or outputs");
  NodeId id = static_cast<NodeId>(g_.nodes_.size());
  g_.nodes_.push_back(n);
  g_.pool_.insert(g_.pool_.end(), inputs.begin(), inputs.end());
  for (const auto& o : outs) {
    g_.value_node_.push_back(id);
    g_.value_type_.push_back(o.type);
    g_.value_data_.push_back(o.has_data ? intern_data(o.data) : 0);
  }
  g_.node_digest_.push_back({});
  g_.node_digest_[id] = g_.hash_node(id);
  if (op_info(op).has(kPure) || op == kOpConstant || op == kOpOpaque) {
    auto [it, fresh] = by_digest_.try_emplace(g_.node_digest_[id], id);
    if (!fresh) {  // the same computation is there already: take the new node back
      g_.nodes_.pop_back();
      g_.pool_.resize(n.in_begin);
      g_.value_node_.resize(n.out_begin);
      g_.value_type_.resize(n.out_begin);
      g_.value_data_.resize(n.out_begin);
      g_.node_digest_.pop_back();
      return g_.nodes_[it->second].out_begin;
    }
  }
  return n.out_begin;
}

ValueId GraphBuilder::input(std::string_view name, TypeId type) {
  AttrSet a;
  a.set("name", std::string(name));
  a.set("position", static_cast<Int>(g_.graph_inputs_.size()));
  InferOutput out;
  out.type = type;
  NodeId id = static_cast<NodeId>(g_.nodes_.size());
  ValueId v = append(kOpInput, intern_attrs(a), {}, {&out, 1}, false);
  g_.graph_inputs_.push_back(id);
  return v;
}

ValueId GraphBuilder::constant(ConstId c) {
  const ConstantNode node(c);
  return append(kOpConstant, node.attrs, {}, {&node.output, 1}, true);
}

ValueId GraphBuilder::add(OpId op, AttrSet attrs, std::span<const ValueId> inputs, int outputs) {
  const OpInfo& row = op_info(op);
  if (op == kOpInput || op == kOpConstant || op == kOpOpaque)
    throw Error(ErrorKind::kUsage, row.name + " nodes are made by input(), constant() and opaque()");
  std::vector<ValueId> in(inputs.begin(), inputs.end());
  while (!in.empty() && in.back() == kNoValue) in.pop_back();
  int count = static_cast<int>(in.size());
  if (count < row.min_inputs || (row.max_inputs >= 0 && count > row.max_inputs))
    throw Error(ErrorKind::kGraph, row.name + " takes " + std::to_string(row.min_inputs) +
                                       (row.max_inputs < 0                 ? " or more"
                                        : row.max_inputs == row.min_inputs ? ""
                                                                           : " to " + std::to_string(row.max_inputs)) +
                                       " inputs, got " + std::to_string(count));
  std::vector<InferInput> facts(in.size());
  bool constant = row.has(kPure) && !in.empty();
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] == kNoValue) continue;
    if (in[i] >= g_.value_type_.size()) throw Error(ErrorKind::kGraph, row.name + ": input " + std::to_string(i) + " is not a value of this graph");
    facts[i] = {true, g_.value_type_[in[i]], g_.data(in[i]), g_.constant(in[i])};
    constant = constant && g_.is_const(in[i]);
  }
  if (row.name == "Identity") return in[0];
  coerce_floats(row, attrs);
  std::vector<InferOutput> outs;
  infer(op, attrs, facts, outs, outputs);
  // A shape computation whose result is certain is a constant.
  if (row.has(kPure) && outs.size() == 1 && outs[0].has_data && all_plain(outs[0].data)) {
    const TensorType& t = type_of(outs[0].type);
    if ((t.dtype == kI64 || t.dtype == kI32) && (t.rank == 0 || t.rank == 1) && (t.rank == 1 || outs[0].data.size() == 1)) {
      std::vector<double> values(outs[0].data.begin(), outs[0].data.end());
      IntVec dims;
      if (t.rank == 1) dims.push_back(static_cast<Int>(values.size()));
      return constant_from(t.dtype, dims, values);
    }
  }
  return append(op, intern_attrs(attrs), in, outs, constant);
}

ValueId GraphBuilder::constant_from(int dtype, const IntVec& dims, const std::vector<double>& values) {
  return constant(inline_const(dtype, dims, values));
}

ValueId GraphBuilder::opaque(std::string_view name, std::string_view payload, bool pure, std::span<const ValueId> inputs,
                             std::span<const TypeId> output_types) {
  AttrSet a;
  a.set("name", std::string(name));
  a.set("payload", std::string(payload));
  std::vector<std::string> types;
  std::vector<InferOutput> outs;
  for (TypeId t : output_types) {
    types.push_back(type_text(t));
    outs.emplace_back();
    outs.back().type = t;
  }
  a.set("types", types);
  if (!pure) a.set("instance", impure_++);
  for (ValueId v : inputs)
    if (v != kNoValue && v >= g_.value_type_.size()) throw Error(ErrorKind::kGraph, std::string(name) + ": an input is not a value of this graph");
  return append(kOpOpaque, intern_attrs(a), inputs, outs, false);
}

GraphPtr GraphBuilder::finish(std::span<const ValueId> outputs) {
  for (ValueId v : outputs)
    if (v >= g_.value_type_.size()) throw Error(ErrorKind::kGraph, "a graph output is not a value of this graph");
  auto g = std::make_shared<Graph>(g_);
  g->outputs_.assign(outputs.begin(), outputs.end());
  g->index();
  g->hash();
  return g;
}

GraphPtr bind_symbols(const Graph& g, std::span<const std::pair<std::string, Int>> values) {
  GraphBuilder b;
  std::vector<ValueId> to(g.value_capacity(), kNoValue);
  auto bound_type = [&](TypeId id) {
    TensorType t = type_of(id);
    for (Int& d : t.dims) d = int_substitute(d, values);
    return intern_type(t);
  };
  auto bound_attrs = [&](const AttrSet& a) {
    AttrSet out = a;
    for (auto& [name, value] : out.items) {
      if (auto* i = std::get_if<Int>(&value)) *i = int_substitute(*i, values);
      if (auto* v = std::get_if<IntVec>(&value))
        for (Int& x : *v) x = int_substitute(x, values);
    }
    return out;
  };
  for (NodeId n : g.order()) {
    const Node& node = g.node(n);
    std::vector<ValueId> in;
    for (ValueId v : g.inputs(n)) in.push_back(v == kNoValue ? kNoValue : to[v]);
    ValueId first;
    if (node.op == kOpInput) {
      first = b.input(input_name(g, n), bound_type(g.type(node.out_begin)));
    } else if (node.op == kOpConstant) {
      first = b.constant(std::get<ConstRef>(*g.attrs(n).find("value")).id);
    } else if (node.op == kOpOpaque) {
      std::vector<TypeId> types;
      types.reserve(node.out_count);
      for (int k = 0; k < node.out_count; ++k) types.push_back(bound_type(g.type(node.out_begin + k)));
      first = b.opaque(g.attrs(n).get_string("name"), g.attrs(n).get_string("payload"), !g.attrs(n).find("instance"), in, types);
    } else {
      first = b.add(node.op, bound_attrs(g.attrs(n)), in, node.out_count);
    }
    for (int k = 0; k < node.out_count; ++k) to[node.out_begin + k] = first + k;
  }
  std::vector<ValueId> outs;
  for (ValueId v : g.outputs()) outs.push_back(to[v]);
  return b.finish(outs);
}

}  // namespace rlflow
