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

// Scratch for one thread; build() may be called any number of times. It keeps a copy of the last parent and takes back what a child
// changed before it makes the next one, so that a child costs what the rewrite touches and the digests below it, not a copy of the graph.
class ChildGraph {
 public:
  // False when the move is refused; `reason` says why.
  bool build(const GraphPtr& parent, const Rule& rule, const Bindings& bindings);
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
  void start(const GraphPtr& parent);
  void copy(const GraphPtr& parent);
  void undo();
  ValueId target_value(int term, Scope& s);
  std::vector<ValueId> target_values(int term, Scope& s);          // a starred or spread term: several
  std::vector<ValueId> node_outputs(int term, Scope& s);           // all outputs of the node the term makes
  std::vector<ValueId> children(const Term& t, Scope& s);
  ValueId literal(const Term& t, Scope& s);
  void set_attributes(const Term& t, OpId op, const Scope& s, AttrSet& attrs) const;
  int star_length(int term, const Scope& s) const;
  ValueId make_node(OpId op, AttrSet attrs, std::span<const ValueId> in, int outputs);
  ValueId make_constant(ConstId c);
  ValueId append(OpId op, AttrId attrs, std::span<const ValueId> in, std::span<const InferOutput> outs, bool is_const);
  bool pair_roots(const Bindings& b, const std::vector<std::vector<ValueId>>& targets);
  bool replace(ValueId old_value, ValueId new_value);
  bool exchange();                                  // the new values in the place of the old ones; false if that closes a cycle
  void grow();
  void add_use(ValueId v, NodeId user, uint32_t slot);
  void redirect(ValueId from, ValueId to);
  bool keeps_order() const;
  bool may_merge() const;
  bool makes_cycle() const;
  void release(NodeId n);
  void collect();
  bool sweep();
  bool has_twins();
  void list_uses();
  void rehash();
  std::vector<NodeId> dirty_cone();
  std::vector<NodeId> operands_first(const std::vector<NodeId>& cone);
  void refresh_constness(NodeId n);
  using FreshNodes = std::unordered_map<Hash128, NodeId, Hash128Hasher>;  // pure nodes of the child by digest
  NodeId equal_node(NodeId n, FreshNodes& fresh) const;
  void merge_duplicate(NodeId from, NodeId into);
  void note(NodeId n);
  void touch(ValueId v);

  struct AddedUse {
    ValueId value;
    Graph::Use use;
  };
  GraphPtr parent_;
  const Rule* rule_ = nullptr;
  Graph g_;
  bool rebuilt_ = false;                            // g_ went through rehash(): the journal below does not lead back
  std::string reason_;
  std::vector<std::pair<ValueId, ValueId>> replaced_;
  std::vector<uint32_t> live_uses_;                 // of each value, graph outputs included
  std::vector<NodeId> changed_, redirected_, dead_, rehashed_;
  std::vector<ValueId> touched_;                    // whose users changed
  std::vector<AddedUse> added_;
  std::vector<uint8_t> noted_, dirty_, touched_mark_;
  std::vector<NodeId> twins_;                       // open addressing by digest
  NodeId first_new_ = 0;
  uint32_t floor_ = 0;                              // position of the first node that reads something else than before
  int guard_ = 0;
};

}  // namespace rlflow
