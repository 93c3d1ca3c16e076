// The immutable graph value (DESIGN C1): flat arrays, persistent node and value ids, Merkle digests, canonical order.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rlflow/ops.h"

namespace rlflow {

using NodeId = uint32_t;
using ValueId = uint32_t;
inline constexpr ValueId kNoValue = UINT32_MAX;   // an absent optional input
inline constexpr NodeId kNoNode = UINT32_MAX;

enum NodeFlag : uint16_t { kDead = 1, kConst = 2 };  // kConst: a pure function of constants; costs nothing, folded at export

struct Node {
  OpId op;
  uint16_t flags;
  AttrId attrs;
  uint32_t in_begin;
  uint32_t out_begin;                              // its outputs are values out_begin .. out_begin+out_count-1
  uint16_t in_count, out_count;
};

class Graph {
 public:
  size_t node_capacity() const { return nodes_.size(); }        // ids are below this; some are dead
  size_t value_capacity() const { return value_type_.size(); }
  size_t node_count() const { return order_.size(); }           // alive
  const Node& node(NodeId n) const { return nodes_[n]; }
  bool alive(NodeId n) const { return n < nodes_.size() && !(nodes_[n].flags & kDead); }
  const OpInfo& op(NodeId n) const { return op_info(nodes_[n].op); }
  const AttrSet& attrs(NodeId n) const { return attrs_of(nodes_[n].attrs); }
  std::span<const ValueId> inputs(NodeId n) const { return {pool_.data() + nodes_[n].in_begin, nodes_[n].in_count}; }
  NodeId producer(ValueId v) const { return value_node_[v]; }
  int output_index(ValueId v) const { return static_cast<int>(v - nodes_[value_node_[v]].out_begin); }
  TypeId type(ValueId v) const { return value_type_[v]; }
  const IntVec* data(ValueId v) const;                           // known integer elements, or nullptr
  bool is_const(ValueId v) const { return nodes_[value_node_[v]].flags & kConst; }
  const ConstInfo* constant(ValueId v) const;                    // the Constant behind v, or nullptr
  std::span<const ValueId> outputs() const { return outputs_; }
  std::span<const NodeId> graph_inputs() const { return graph_inputs_; }
  // Alive nodes in canonical topological order: depth-first post-order from the outputs (after the graph inputs).
  std::span<const NodeId> order() const { return order_; }
  uint32_t position(NodeId n) const { return position_[n]; }     // index in order(); undefined for dead nodes
  // (user node, input slot) pairs of a value, in order() order. Graph outputs are not users: see output_uses.
  struct Use {
    NodeId node;
    uint32_t slot;
  };
  std::span<const Use> users(ValueId v) const { return {uses_.data() + use_begin_[v], use_end_[v] - use_begin_[v]}; }
  int output_uses(ValueId v) const { return output_uses_[v]; }
  const Hash128& node_digest(NodeId n) const { return node_digest_[n]; }
  const Hash128& digest() const { return digest_; }
  NodeId find_node(const Hash128& node_digest) const;            // common subexpressions; kNoNode if absent
  bool depends_on(NodeId user, NodeId source) const;             // a path source -> ... -> user (or equal)
  std::string text() const;                                      // the text form; parse_graph reads it back
  size_t memory_bytes() const;

 private:
  friend class GraphBuilder;
  friend class Rewriter;
  friend class ChildGraph;
  void index();                                                  // order, positions, uses; throws Error(kGraph) on a cycle
  void index_uses();                                             // uses alone, by node id (a scratch graph has no order)
  template <class Nodes> void index_uses_of(Nodes nodes);       // those that the nodes make, in their order
  void hash();                                                   // node digests and the graph digest
  void hash_heads();                                             // of the nodes that have none yet
  void hash_outputs();                                           // the graph digest from the node digests
  void build_digest_table();
  Hasher hash_head(NodeId n) const;                              // what a node is apart from its operands
  Hash128 hash_node(NodeId n) const;                             // from its inputs' node digests
  std::vector<Node> nodes_;
  std::vector<ValueId> pool_;
  std::vector<NodeId> value_node_;
  std::vector<TypeId> value_type_;
  std::vector<uint32_t> value_data_;                             // 0 none, else interned data id
  std::vector<ValueId> outputs_;
  std::vector<NodeId> graph_inputs_;
  std::vector<NodeId> order_;
  std::vector<uint32_t> position_;
  std::vector<uint32_t> use_begin_, use_end_;                    // by value: its part of uses_ (a scratch graph moves single parts to the end)
  std::vector<Use> uses_;
  std::vector<uint16_t> output_uses_;
  std::vector<Hash128> node_digest_;
  std::vector<Hasher> node_head_;                                // hash_head of the nodes that a finished graph has; new ones come after them
  std::vector<NodeId> digest_table_;                             // open addressing by node digest; kNoNode = free
  Hash128 digest_;
};
using GraphPtr = std::shared_ptr<const Graph>;

std::string input_name(const Graph& g, NodeId n);                // of an Input node
// Attributes are written as 1 or 1.0 by people; the table's default says which kind is meant.
void coerce_floats(const OpInfo& op, AttrSet& attrs);
// What a Constant node carries; short integer vectors are known element by element.
struct ConstantNode {
  explicit ConstantNode(ConstId c);
  AttrId attrs;
  InferOutput output;
};
uint32_t intern_data(const IntVec& v);                           // 0 is "none"
const IntVec& data_of(uint32_t id);

// Builds a graph node by node; types are inferred, duplicates of pure nodes are shared, Identity is forwarded.
class GraphBuilder {
 public:
  ValueId input(std::string_view name, TypeId type);             // the name is not part of the digest, the position is
  ValueId constant(ConstId c);
  // Returns the first output's value id; outputs are consecutive.
  ValueId add(OpId op, AttrSet attrs, std::span<const ValueId> inputs, int outputs = 0);
  // An operator the table does not know. `payload` identifies its content (attributes, bodies); impure ones are never shared.
  ValueId opaque(std::string_view name, std::string_view payload, bool pure, std::span<const ValueId> inputs, std::span<const TypeId> output_types);
  TypeId type(ValueId v) const { return g_.value_type_[v]; }
  const IntVec* data(ValueId v) const;
  bool is_const(ValueId v) const;
  size_t value_count() const { return g_.value_type_.size(); }
  GraphPtr finish(std::span<const ValueId> outputs);             // drops what no output needs (graph inputs stay)

 private:
  ValueId constant_from(int dtype, const IntVec& dims, const std::vector<double>& values);
  ValueId append(OpId op, AttrId attrs, std::span<const ValueId> inputs, std::span<const InferOutput> outs, bool is_const);
  Graph g_;
  std::unordered_map<Hash128, NodeId, Hash128Hasher> by_digest_;
  Int impure_ = 0;
};

// Text form:   x: f32[2,N] = input      w: f32[3,4] = const       s: f32[] = const 0.5     t: i64[2] = const [1,2]
//              u: f32[9,9] = const @<32 hex digits> min=0 max=1 uniform finite
//              y = MatMul(x, w)         a, b = Split{axis=1, split=[2,2]}(y)     z = Clip(x, _, s)
//              return a, b              # comments run to the end of the line
// A `const` without payload stands for an unknown tensor whose digest comes from its name and type.
GraphPtr parse_graph(std::string_view text);                     // throws Error with line number

// Replaces symbolic dims by values and infers again (used for --freeze and for pricing at --dim). Unlisted symbols stay.
GraphPtr bind_symbols(const Graph& g, std::span<const std::pair<std::string, Int>> values);

}  // namespace rlflow
