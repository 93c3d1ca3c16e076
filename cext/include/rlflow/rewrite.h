// Applying a match: the child graph, first in reusable scratch memory (enough to hash and price it), then as a value of its own.
#pragma once
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "rlflow/graph.h"
#include "rlflow/match.h"

namespace rlflow {

// What a rewrite changed, counted over nodes that do work at run time (constant subexpressions are free).
struct ChangeCount {
  int nodes_added = 0, nodes_removed = 0, edges_added = 0, edges_removed = 0;
};

// Scratch for one thread; build() may be called any number of times.
class ChildGraph {
 public:
  // False when the move is refused; `reason` says why.
  bool build(const Graph& parent, const Rule& rule, const Bindings& bindings);
  const std::string& reason() const { return reason_; }
  // Valid until the next build(): nodes, types, uses, digests; no order() and no positions.
  const Graph& graph() const { return g_; }
  // Nodes that are new, dead, read something else than before, or whose users changed.
  std::span<const NodeId> changed() const { return changed_; }
  ChangeCount count() const;
  GraphPtr materialise();                           // a graph of its own, with order and positions

 private:
  struct Scope;
  bool refuse(std::string why);
  void start(const Graph& parent);
  ValueId target_value(int term, Scope& s);
  std::vector<ValueId> target_values(int term, Scope& s);          // a starred or spread term: several
  std::vector<ValueId> node_outputs(int term, Scope& s);           // all outputs of the node the term makes
  std::vector<ValueId> children(const Term& t, Scope& s);
  int star_length(int term, const Scope& s) const;
  ValueId make_node(OpId op, AttrSet attrs, std::span<const ValueId> in, int outputs);
  ValueId make_constant(ConstId c);
  ValueId append(OpId op, AttrId attrs, std::span<const ValueId> in, std::span<const InferOutput> outs, bool is_const);
  bool pair_roots(const Bindings& b, const std::vector<std::vector<ValueId>>& targets);
  bool replace(ValueId old_value, ValueId new_value);
  void redirect(ValueId from, ValueId to);
  bool makes_cycle() const;
  void release(NodeId n);
  void collect();
  void rehash();
  void merge_duplicate(NodeId from, NodeId into);
  void note(NodeId n);

  const Graph* parent_ = nullptr;
  const Rule* rule_ = nullptr;
  Graph g_;
  std::string reason_;
  std::vector<std::pair<ValueId, ValueId>> replaced_;
  std::vector<uint32_t> uses_;                      // live uses of each value, graph outputs included
  std::vector<NodeId> changed_, redirected_, dead_;
  std::vector<uint8_t> noted_, dirty_;
  NodeId first_new_ = 0;
  int guard_ = 0;
};

}  // namespace rlflow
