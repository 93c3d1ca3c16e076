// The second half of applying a match: new values take the place of old ones, what nobody reads dies, digests follow.
#include <algorithm>

#include "rlflow/rewrite.h"

namespace rlflow {

// ---- the copy of the parent, and the way back to it

void ChildGraph::start(const GraphPtr& parent) {
  if (parent_ == parent && !rebuilt_) undo();
  else copy(parent);
  replaced_.clear();
  changed_.clear();
  redirected_.clear();
  dead_.clear();
  rehashed_.clear();
  touched_.clear();
  added_.clear();
  reason_.clear();
  guard_ = 0;
}

void ChildGraph::copy(const GraphPtr& parent) {
  const Graph& p = *parent;
  parent_ = parent;
  rebuilt_ = false;
  g_.nodes_ = p.nodes_;
  g_.pool_ = p.pool_;
  g_.value_node_ = p.value_node_;
  g_.value_type_ = p.value_type_;
  g_.value_data_ = p.value_data_;
  g_.outputs_ = p.outputs_;
  g_.graph_inputs_ = p.graph_inputs_;
  g_.use_begin_ = p.use_begin_;
  g_.use_end_ = p.use_end_;
  g_.uses_ = p.uses_;
  g_.output_uses_ = p.output_uses_;
  g_.node_digest_ = p.node_digest_;
  g_.node_head_ = p.node_head_;
  first_new_ = static_cast<NodeId>(p.nodes_.size());
  noted_.assign(p.nodes_.size(), 0);
  dirty_.assign(p.nodes_.size(), 0);
  const size_t values = p.value_capacity();
  touched_mark_.assign(values, 0);
  live_uses_.resize(values);
  for (ValueId v = 0; v < values; ++v) live_uses_[v] = p.use_end_[v] - p.use_begin_[v] + p.output_uses_[v];
}

void ChildGraph::undo() {
  const Graph& p = *parent_;
  for (NodeId n : changed_) {
    noted_[n] = 0;
    if (n >= first_new_) continue;
    const Node& node = p.nodes_[n];
    g_.nodes_[n].flags = node.flags;
    std::copy_n(p.pool_.begin() + node.in_begin, node.in_count, g_.pool_.begin() + node.in_begin);
  }
  for (NodeId n : redirected_) dirty_[n] = 0;
  for (NodeId n : rehashed_) {
    dirty_[n] = 0;
    g_.node_digest_[n] = p.node_digest_[n];
  }
  const size_t nodes = p.nodes_.size(), values = p.value_capacity();
  for (ValueId v : touched_) {
    touched_mark_[v] = 0;
    if (v >= values) continue;
    live_uses_[v] = p.use_end_[v] - p.use_begin_[v] + p.output_uses_[v];
    g_.use_begin_[v] = p.use_begin_[v];
    g_.use_end_[v] = p.use_end_[v];
    g_.output_uses_[v] = p.output_uses_[v];
  }
  g_.nodes_.resize(nodes);
  g_.node_digest_.resize(nodes);
  noted_.resize(nodes);
  dirty_.resize(nodes);
  g_.pool_.resize(p.pool_.size());
  g_.uses_.resize(p.uses_.size());
  g_.value_node_.resize(values);
  g_.value_type_.resize(values);
  g_.value_data_.resize(values);
  g_.use_begin_.resize(values);
  g_.use_end_.resize(values);
  g_.output_uses_.resize(values);
  live_uses_.resize(values);
  touched_mark_.resize(values);
  g_.outputs_ = p.outputs_;
}

// Room for what belongs to the new nodes and their values.
void ChildGraph::grow() {
  const size_t nodes = g_.nodes_.size(), values = g_.value_type_.size();
  noted_.resize(nodes, 0);
  dirty_.resize(nodes, 0);
  g_.use_begin_.resize(values, 0);
  g_.use_end_.resize(values, 0);
  g_.output_uses_.resize(values, 0);
  live_uses_.resize(values, 0);
  touched_mark_.resize(values, 0);
}

void ChildGraph::note(NodeId n) {
  if (noted_[n]) return;
  noted_[n] = 1;
  changed_.push_back(n);
}

void ChildGraph::touch(ValueId v) {
  if (touched_mark_[v]) return;
  touched_mark_[v] = 1;
  touched_.push_back(v);
}

// ---- the exchange

bool ChildGraph::exchange() {
  grow();
  for (NodeId n = first_new_; n < g_.nodes_.size(); ++n) {
    auto in = g_.inputs(n);
    for (uint32_t slot = 0; slot < in.size(); ++slot)
      if (in[slot] != kNoValue) add_use(in[slot], n, slot);
  }
  const bool merging = may_merge();
  for (auto [from, to] : replaced_) redirect(from, to);
  floor_ = UINT32_MAX;
  for (NodeId n : redirected_) floor_ = std::min(floor_, parent_->position(n));
  const bool ordered = keeps_order();
  if (!ordered && makes_cycle()) return false;
  collect();
  if (ordered && sweep() && !(merging && has_twins())) {
    list_uses();
    g_.hash_outputs();
  } else {
    rehash();
  }
  return true;
}

void ChildGraph::add_use(ValueId v, NodeId user, uint32_t slot) {
  touch(v);
  ++live_uses_[v];
  added_.push_back({v, {user, slot}});
}

void ChildGraph::redirect(ValueId from, ValueId to) {
  note(g_.value_node_[from]);
  note(g_.value_node_[to]);
  touch(from);
  touch(to);
  for (const auto& use : parent_->users(from)) {
    ValueId& slot = g_.pool_[g_.nodes_[use.node].in_begin + use.slot];
    if (slot != from) continue;
    slot = to;
    --live_uses_[from];
    add_use(to, use.node, use.slot);
    redirected_.push_back(use.node);
    note(use.node);
  }
  for (ValueId& v : g_.outputs_)
    if (v == from) {
      v = to;
      --live_uses_[from];
      ++live_uses_[to];
      --g_.output_uses_[from];
      ++g_.output_uses_[to];
    }
}

// Whether the parent's order is one of the child too, with the new nodes before the first that reads them. A constant never depends on
// what is redirected, because only work is rewritten.
bool ChildGraph::keeps_order() const {
  auto early = [&](ValueId v) {
    if (v == kNoValue) return true;
    NodeId p = g_.value_node_[v];
    return p >= first_new_ || (g_.nodes_[p].flags & kConst) || parent_->position(p) < floor_;
  };
  for (auto [from, to] : replaced_)
    if (g_.is_const(from) || !early(to)) return false;
  for (NodeId n = first_new_; n < g_.nodes_.size(); ++n)
    for (ValueId v : g_.inputs(n))
      if (!early(v)) return false;
  return true;
}

// Whether two nodes may have become one. Two readers differ as long as their operands do: a value that the parent does not have, in the
// place of one other and read by nothing else, keeps them apart.
bool ChildGraph::may_merge() const {
  for (size_t k = 0; k < replaced_.size(); ++k) {
    ValueId to = replaced_[k].second;
    if (g_.value_node_[to] < first_new_ || live_uses_[to]) return true;
    for (size_t j = 0; j < k; ++j)
      if (replaced_[j].second == to) return true;
  }
  return false;
}

// Replacing roots may close a cycle: a path from what takes a place, through redirected users, back to itself. That may be a new node, where
// several roots are replaced, or one that was there and reads a root (the transpose of x xᵀ, in place of x xᵀ).
bool ChildGraph::makes_cycle() const {
  std::vector<uint8_t> state(g_.nodes_.size(), 0);  // 1 on the path, 2 done
  uint32_t floor = UINT32_MAX;                      // nothing before the first root can depend on a redirected node
  for (auto [from, to] : replaced_) floor = std::min(floor, parent_->position(g_.value_node_[from]));
  std::vector<std::pair<NodeId, uint32_t>> stack;
  std::vector<NodeId> starts;
  for (auto [from, to] : replaced_) starts.push_back(g_.value_node_[to]);
  for (NodeId n = first_new_; n < g_.nodes_.size(); ++n) starts.push_back(n);
  for (NodeId start : starts) {
    if (state[start] || (start < first_new_ && parent_->position(start) <= floor)) continue;
    stack.emplace_back(start, 0);
    state[start] = 1;
    while (!stack.empty()) {
      auto& [n, next] = stack.back();
      const Node& node = g_.nodes_[n];
      if (next == node.in_count) {
        state[n] = 2;
        stack.pop_back();
        continue;
      }
      ValueId v = g_.pool_[node.in_begin + next++];
      if (v == kNoValue) continue;
      NodeId p = g_.value_node_[v];
      if (state[p] == 1) return true;
      if (state[p] || (p < first_new_ && parent_->position(p) <= floor)) continue;
      state[p] = 1;
      stack.emplace_back(p, 0);
    }
  }
  return false;
}

// Nodes without users die, and what only they used after them.
void ChildGraph::release(NodeId n) {
  std::vector<NodeId> stack{n};
  while (!stack.empty()) {
    NodeId m = stack.back();
    stack.pop_back();
    Node& node = g_.nodes_[m];
    if ((node.flags & kDead) || node.op == kOpInput) continue;
    bool used = false;
    for (int k = 0; k < node.out_count; ++k) used = used || live_uses_[node.out_begin + k];
    if (used) continue;
    node.flags |= kDead;
    dead_.push_back(m);
    note(m);
    for (ValueId v : g_.inputs(m)) {
      if (v == kNoValue) continue;
      touch(v);
      --live_uses_[v];
      note(g_.value_node_[v]);
      if (!live_uses_[v]) stack.push_back(g_.value_node_[v]);
    }
  }
}

void ChildGraph::collect() {
  for (auto [from, to] : replaced_) release(g_.value_node_[from]);
  for (NodeId n = static_cast<NodeId>(g_.nodes_.size()); n-- > first_new_;) release(n);
}

// New digests in the parent's order. False where a node has become constant, which rehash() has to see to.
bool ChildGraph::sweep() {
  for (auto [from, to] : replaced_)
    if (g_.is_const(to)) return false;
  for (NodeId n : redirected_) dirty_[n] = 1;
  auto order = parent_->order();
  for (size_t k = floor_; k < order.size(); ++k) {
    const NodeId n = order[k];
    const Node& node = g_.nodes_[n];
    if (node.flags & kDead) continue;
    for (uint32_t i = 0; i < node.in_count && !dirty_[n]; ++i) {
      ValueId v = g_.pool_[node.in_begin + i];
      if (v != kNoValue) dirty_[n] = dirty_[g_.value_node_[v]];
    }
    if (!dirty_[n]) continue;
    rehashed_.push_back(n);
    g_.node_digest_[n] = g_.hash_node(n);
  }
  return true;
}

// Whether a node with a new digest is equal to another node.
bool ChildGraph::has_twins() {
  size_t size = 16;
  while (size < 2 * (rehashed_.size() + g_.nodes_.size() - first_new_)) size *= 2;
  twins_.assign(size, kNoNode);
  auto seen = [&](NodeId n) {
    const Hash128& d = g_.node_digest_[n];
    size_t slot = d.lo & (size - 1);
    for (; twins_[slot] != kNoNode; slot = (slot + 1) & (size - 1))
      if (g_.node_digest_[twins_[slot]] == d) return true;
    twins_[slot] = n;
    return false;
  };
  for (NodeId n = first_new_; n < g_.nodes_.size(); ++n)
    if (g_.alive(n)) seen(n);
  for (NodeId n : rehashed_) {
    if (!op_info(g_.nodes_[n].op).has(kPure)) continue;
    NodeId same = parent_->find_node(g_.node_digest_[n]);
    if (same != kNoNode && !dirty_[same] && g_.alive(same)) return true;
    if (seen(n)) return true;
  }
  return false;
}

// users() of every value that won or lost one.
void ChildGraph::list_uses() {
  auto by_value = [](const AddedUse& a, const AddedUse& b) { return a.value < b.value; };
  std::stable_sort(added_.begin(), added_.end(), by_value);
  auto stands = [&](ValueId v, const Graph::Use& u) { return g_.alive(u.node) && g_.inputs(u.node)[u.slot] == v; };
  for (ValueId v : touched_) {
    const auto begin = static_cast<uint32_t>(g_.uses_.size());
    if (v < parent_->value_capacity())
      for (const Graph::Use& u : parent_->users(v))
        if (stands(v, u)) g_.uses_.push_back(u);
    auto [first, last] = std::equal_range(added_.begin(), added_.end(), AddedUse{v, {}}, by_value);
    for (auto a = first; a != last; ++a)
      if (stands(v, a->use)) g_.uses_.push_back(a->use);
    g_.use_begin_[v] = begin;
    g_.use_end_[v] = static_cast<uint32_t>(g_.uses_.size());
  }
}

void ChildGraph::merge_duplicate(NodeId from, NodeId into) {
  for (int k = 0; k < g_.nodes_[from].out_count; ++k) {
    ValueId a = g_.nodes_[from].out_begin + k, b = g_.nodes_[into].out_begin + k;
    for (const auto& use : g_.users(a)) {
      ValueId& slot = g_.pool_[g_.nodes_[use.node].in_begin + use.slot];
      if (slot != a || (g_.nodes_[use.node].flags & kDead)) continue;
      slot = b;
      --live_uses_[a];
      ++live_uses_[b];
      note(use.node);
    }
    for (ValueId& v : g_.outputs_)
      if (v == a) {
        v = b;
        --live_uses_[a];
        ++live_uses_[b];
      }
  }
  note(into);
  release(from);
}

// Everything downstream of a redirected operand, marked in dirty_.
std::vector<NodeId> ChildGraph::dirty_cone() {
  dirty_.assign(g_.nodes_.size(), 0);
  std::vector<NodeId> cone;
  auto mark = [&](NodeId n) {
    if (dirty_[n] || (g_.nodes_[n].flags & kDead)) return;
    dirty_[n] = 1;
    cone.push_back(n);
  };
  for (NodeId n : redirected_) mark(n);
  for (size_t k = 0; k < cone.size(); ++k) {
    const Node& node = g_.nodes_[cone[k]];
    for (int o = 0; o < node.out_count; ++o)
      for (const auto& use : g_.users(node.out_begin + o)) mark(use.node);
  }
  return cone;
}

// Depth-first over dirty operands: each node after what it reads. (1 dirty, 2 open, 3 done)
std::vector<NodeId> ChildGraph::operands_first(const std::vector<NodeId>& cone) {
  std::vector<NodeId> order;
  order.reserve(cone.size());
  std::vector<std::pair<NodeId, uint32_t>> stack;
  for (NodeId start : cone) {
    if (dirty_[start] != 1) continue;
    dirty_[start] = 2;
    stack.emplace_back(start, 0);
    while (!stack.empty()) {
      auto& [n, next] = stack.back();
      const Node& node = g_.nodes_[n];
      if (next == node.in_count) {
        dirty_[n] = 3;
        order.push_back(n);
        stack.pop_back();
        continue;
      }
      ValueId v = g_.pool_[node.in_begin + next++];
      if (v == kNoValue) continue;
      NodeId p = g_.value_node_[v];
      if (dirty_[p] != 1) continue;
      dirty_[p] = 2;
      stack.emplace_back(p, 0);
    }
  }
  return order;
}

// Marks a node that has become constant, or no longer is.
void ChildGraph::refresh_constness(NodeId n) {
  Node& node = g_.nodes_[n];
  if (!node.in_count) return;
  bool constant = true;
  for (ValueId v : g_.inputs(n)) constant = constant && (v == kNoValue || g_.is_const(v));
  if (constant == bool(node.flags & kConst)) return;
  node.flags = constant ? node.flags | kConst : node.flags & ~kConst;
  note(n);
  for (int o = 0; o < node.out_count; ++o)
    for (const auto& use : g_.users(node.out_begin + o)) note(use.node);
}

// The node that computes the same as n: one of the parent's that the rewrite left alone, or a fresh one; n itself is fresh from now on.
NodeId ChildGraph::equal_node(NodeId n, FreshNodes& fresh) const {
  NodeId same = parent_->find_node(g_.node_digest_[n]);
  if (same != kNoNode && !dirty_[same] && !(g_.nodes_[same].flags & kDead)) return same;
  auto [it, inserted] = fresh.try_emplace(g_.node_digest_[n], n);
  if (inserted) return kNoNode;
  if (!(g_.nodes_[it->second].flags & kDead)) return it->second;
  it->second = n;  // it died since, with the reader that was merged into another
  return kNoNode;
}

// New digests for everything downstream of a redirected operand, whatever its order; nodes that have become equal to another are merged,
// and nodes that have become constant, or no longer are, are marked.
void ChildGraph::rehash() {
  rebuilt_ = true;
  g_.index_uses();
  const std::vector<NodeId> order = operands_first(dirty_cone());
  bool merged = false;
  FreshNodes fresh;
  for (NodeId n = first_new_; n < g_.nodes_.size(); ++n)
    if (!(g_.nodes_[n].flags & kDead) && !dirty_[n]) fresh.emplace(g_.node_digest_[n], n);
  for (NodeId n : order) {
    if (g_.nodes_[n].flags & kDead) continue;
    g_.node_digest_[n] = g_.hash_node(n);
    if (!op_info(g_.nodes_[n].op).has(kPure)) continue;
    refresh_constness(n);
    NodeId same = equal_node(n, fresh);
    if (same == kNoNode || same == n) continue;
    merge_duplicate(n, same);
    merged = true;
  }
  // Dead nodes were counted among the users until now.
  if (merged || !dead_.empty()) g_.index_uses();
  g_.hash_outputs();
}

}  // namespace rlflow
