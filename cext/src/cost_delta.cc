// What a rewrite changes about the price: only the regions around it are looked at.
#include <algorithm>

#include "cost_map.h"

namespace rlflow {

using namespace detail;

namespace detail {

struct Mark {
  uint32_t evaluated = 0, queued = 0, touched = 0, lost = 0, won = 0, claimed = 0;
  NodeId claimer = 0;
  State state = 0;
};

// What delta() works in. A mark counts where it is of the present epoch, so that nothing is cleared between two calls.
struct DeltaArena {
  uint32_t epoch = 0;
  std::vector<Mark> marks;
  std::vector<uint32_t> value_seen;
  std::vector<NodeId> queue, evaluated, touched, lost, won, walk;
  std::vector<ValueId> values;
  Working working;

  void begin(size_t nodes, size_t value_count) {
    if (++epoch == 0) {
      marks.clear();
      value_seen.clear();
      epoch = 1;
    }
    if (marks.size() < nodes) marks.resize(nodes);
    if (value_seen.size() < value_count) value_seen.resize(value_count, 0);
    queue.clear(), evaluated.clear(), touched.clear(), lost.clear(), won.clear(), values.clear();
  }
};

}  // namespace detail

struct DeltaScratch::Impl : DeltaArena {};
DeltaScratch::DeltaScratch() : impl_(std::make_unique<Impl>()) {}
DeltaScratch::~DeltaScratch() = default;
DeltaScratch::DeltaScratch(DeltaScratch&&) noexcept = default;
DeltaScratch& DeltaScratch::operator=(DeltaScratch&&) noexcept = default;

namespace {

// The states of the child: recomputed where the rewrite reaches, those of the parent elsewhere.
class ChildStates {
 public:
  ChildStates(const Graph& parent, const RegionMap& pm, const Graph& child, const FusionRules& rules, DeltaArena& s)
      : g(child), rules(rules), parent_(parent), pm_(pm), marks_(s.marks), queue_(s.queue), evaluated_(s.evaluated), walk_(s.walk), epoch_(s.epoch) {}

  const Graph& g;
  const FusionRules& rules;

  State state(NodeId n) const {
    if (marks_[n].evaluated == epoch_) return marks_[n].state;
    if (was_work(n)) return pm_.state[n];
    // A new node whose turn has not come. Its operands exist, so that this ends.
    auto* self = const_cast<ChildStates*>(this);
    return self->store(n, evaluate(*this, n));
  }
  bool was_work(NodeId n) const { return n < pm_.state.size() && (pm_.state[n] & kWorks); }
  bool is_work(NodeId n) const { return works(g, n); }
  bool is_evaluated(NodeId n) const { return marks_[n].evaluated == epoch_; }

  void push(NodeId n) {
    if (marks_[n].queued == epoch_) return;
    marks_[n].queued = epoch_;
    queue_.push_back(n);
  }
  // What `changed` may change directly: the node itself, who fuses with its value, patterns that it is part of.
  void seed(std::span<const NodeId> changed) {
    for (NodeId n : changed) {
      if (n >= g.node_capacity() || !is_work(n)) continue;
      push(n);
      if (!was_work(n) || g.node(n).out_count != 1) continue;
      ValueId v = first_output(g, n);
      if (g.users(v).size() == 1) push(g.users(v)[0].node);
      if (parent_.users(v).size() == 1 && is_work(parent_.users(v)[0].node)) push(parent_.users(v)[0].node);
      push_patterns(n);
    }
  }
  void settle() {
    while (!queue_.empty()) {
      NodeId n = queue_.back();
      queue_.pop_back();
      marks_[n].queued = 0;
      bool known = is_evaluated(n) || was_work(n);
      State before = known ? state(n) : State{0};
      State now = evaluate(*this, n);
      store(n, now);
      if (now == before) continue;
      const Node& node = g.node(n);
      for (uint32_t o = 0; o < node.out_count; ++o)
        for (const Graph::Use& u : g.users(node.out_begin + o)) push(u.node);
      push_patterns(n);
    }
  }

 private:
  State store(NodeId n, State s) {
    if (marks_[n].evaluated != epoch_) {
      marks_[n].evaluated = epoch_;
      evaluated_.push_back(n);
    }
    return marks_[n].state = s;
  }
  // Roots of patterns that n may be inside of: downstream, through operators that patterns are made of.
  void push_patterns(NodeId n) {
    if (!rules.interior[g.node(n).op]) return;
    constexpr int kDepth = 8;
    walk_.clear();
    walk_.push_back(n);
    size_t begin = 0;
    for (int depth = 0; depth < kDepth && begin < walk_.size(); ++depth) {
      size_t end = walk_.size();
      for (; begin < end; ++begin) {
        const Node& node = g.node(walk_[begin]);
        for (uint32_t o = 0; o < node.out_count; ++o) {
          auto users = g.users(node.out_begin + o);
          if (users.size() > kMaxPatternUsers) continue;
          for (const Graph::Use& u : users) {
            OpId op = g.node(u.node).op;
            if (!rules.interior[op] || !is_work(u.node)) continue;
            if (std::find(walk_.begin(), walk_.end(), u.node) != walk_.end()) continue;
            walk_.push_back(u.node);
            if (rules.patterns[op]) push(u.node);
          }
        }
      }
    }
  }
  // No value inside a pattern is read more often than this.
  static constexpr size_t kMaxPatternUsers = 4;

  const Graph& parent_;
  const RegionMap& pm_;
  std::vector<Mark>& marks_;
  std::vector<NodeId>&queue_, &evaluated_, &walk_;
  uint32_t epoch_;
};

// One call of delta(): what the rewrite touches, then the regions of parent and child that cover the same nodes.
class DeltaRun {
 public:
  DeltaRun(const Graph& parent, const RegionMap& pm, const Graph& child, const FusionRules& rules, DeltaArena& arena)
      : view(parent, pm, child, rules, arena), parent_(parent), pm_(pm), child_(child), before_{parent, rules, pm.state.data()}, s_(arena) {}

  ChildStates view;

  // Brings the child's states up to date and notes the nodes whose region may be another.
  void settle(std::span<const NodeId> changed) {
    view.seed(changed);
    view.settle();
    for (NodeId n : changed)
      if (in_child(n) || view.was_work(n)) touch(n);
    for (size_t i = 0; i < s_.evaluated.size(); ++i) {
      NodeId n = s_.evaluated[i];
      State now = s_.marks[n].state, old = view.was_work(n) ? pm_.state[n] : State{0};
      if (now != old || pattern_of(now) != Pattern::kNone) touch(n);
      if (is_blocked(now) != is_blocked(old)) touch_neighbours(n);
      if (pattern_of(now) != Pattern::kNone) claim_pattern(n);
    }
  }

  // The regions that the touched nodes were and are in, grown until both cover the same nodes.
  template <class Price>
  DeltaPrice compare(const Price& price, std::vector<Hash128>* unknown_signatures) {
    DeltaPrice d;
    d.unknown = pm_.unknown;
    d.unpriced = pm_.unpriced;
    size_t touched = 0, lost = 0, won = 0;
    while (touched < s_.touched.size() || lost < s_.lost.size() || won < s_.won.size()) {
      if (touched < s_.touched.size()) {
        NodeId n = s_.touched[touched++];
        if (view.was_work(n)) lose(pm_.head[n]);
        if (in_child(n)) win(head_of(n));
      } else if (lost < s_.lost.size()) {
        take_away(s_.lost[lost++], d);
      } else {
        add(s_.won[won++], d, price, unknown_signatures);
      }
    }
    return d;
  }

 private:
  bool in_child(NodeId n) const { return n < child_.node_capacity() && works(child_, n); }
  void touch(NodeId n) {
    if (s_.marks[n].touched == s_.epoch) return;
    s_.marks[n].touched = s_.epoch;
    s_.touched.push_back(n);
  }
  void lose(NodeId head) {
    if (s_.marks[head].lost == s_.epoch) return;
    s_.marks[head].lost = s_.epoch;
    s_.lost.push_back(head);
  }
  void win(NodeId head) {
    if (s_.marks[head].won == s_.epoch) return;
    s_.marks[head].won = s_.epoch;
    s_.won.push_back(head);
  }
  // Those beside a node that enters or leaves the blocked layout may have to reorder, or no longer.
  void touch_neighbours(NodeId n) {
    for (ValueId v : child_.inputs(n))
      if (v != kNoValue && in_child(child_.producer(v))) touch(child_.producer(v));
    for (uint32_t o = 0; o < child_.node(n).out_count; ++o)
      for (const Graph::Use& u : child_.users(child_.node(n).out_begin + o))
        if (in_child(u.node)) touch(u.node);
  }
  void claim_pattern(NodeId root) {
    PatternMatch match;
    Matcher<ChildStates>(view, root).run(match);
    for (uint32_t k = 0; k < match.count; ++k) {
      s_.marks[match.nodes[k]].claimed = s_.epoch;
      s_.marks[match.nodes[k]].claimer = root;
      touch(match.nodes[k]);
    }
  }

  // The node of the child into whose region n is fused.
  NodeId next_of(NodeId n) const {
    if (s_.marks[n].claimed == s_.epoch) return s_.marks[n].claimer;
    const Node& node = child_.node(n);
    if (node.out_count == 1) {
      ValueId v = node.out_begin;
      if (single_use(child_, v)) {
        Graph::Use use = child_.users(v)[0];
        if (use.slot < kMaskSlots && works(child_, use.node) && (mask_of(view.state(use.node)) >> use.slot & 1)) return use.node;
      }
    }
    // Inside a pattern that the rewrite does not reach.
    if (!view.was_work(n)) return kNoNode;
    NodeId root = pm_.head[n];
    bool same = root != n && in_child(root) && view.was_work(root) && !view.is_evaluated(root) && pattern_of(pm_.state[root]) != Pattern::kNone;
    return same ? root : kNoNode;
  }
  NodeId head_of(NodeId n) const {
    for (NodeId next = next_of(n); next != kNoNode; next = next_of(n)) n = next;
    return n;
  }

  void take_away(NodeId head, DeltaPrice& d) {
    collect_members(before_, head, s_.working.members);
    for (NodeId n : s_.working.members) touch(n);
    Picoseconds p = pm_.price[head];
    d.unpriced -= is_opaque(parent_, head);
    if (p == kNoPrice) --d.unknown, ++d.unknown_gone;
    else d.delta -= p;
  }
  template <class Price>
  void add(NodeId head, DeltaPrice& d, const Price& price, std::vector<Hash128>* unknown_signatures) {
    collect_members(view, head, s_.working.members);
    for (NodeId n : s_.working.members) touch(n);
    sort_members(child_, s_.working.members, s_.working.order);
    Hash128 signature;
    Picoseconds p = price(view, s_.working.members, &signature);
    d.unpriced += is_opaque(child_, head);
    if (p == kNoPrice) {
      ++d.unknown, ++d.unknown_new;
      if (unknown_signatures) unknown_signatures->push_back(signature);
    } else {
      d.delta += p;
    }
  }

  const Graph& parent_;
  const RegionMap& pm_;
  const Graph& child_;
  const MapView before_;
  DeltaArena& s_;
};

}  // namespace

DeltaPrice Pricer::delta(const Graph& parent, const RegionMap& pm, const Graph& child, std::span<const NodeId> changed,
                         std::vector<Hash128>* unknown_signatures, DeltaScratch& scratch) const {
  DeltaScratch::Impl& s = *scratch.impl_;
  s.begin(std::max(child.node_capacity(), pm.head.size()), std::max(child.value_capacity(), parent.value_capacity()));
  DeltaRun run(parent, pm, child, *rules_, s);
  run.settle(changed);
  auto price = [this](const ChildStates& view, const std::vector<NodeId>& members, Hash128* signature) {
    return price_region(view, members, signature);
  };
  DeltaPrice d = run.compare(price, unknown_signatures);
  d.weight_bytes = pm.weight_bytes + weight_change(parent, child, changed, scratch);
  return d;
}

namespace {

// A constant value that work reads, or that is an output.
bool is_weight(const Graph& g, ValueId v) {
  if (v >= g.value_capacity()) return false;
  NodeId p = g.producer(v);
  if (!g.alive(p) || !(g.node(p).flags & kConst)) return false;
  if (g.output_uses(v)) return true;
  for (const Graph::Use& u : g.users(v))
    if (works(g, u.node)) return true;
  return false;
}

}  // namespace

int64_t Pricer::weight_change(const Graph& parent, const Graph& child, std::span<const NodeId> changed, DeltaScratch& scratch) {
  DeltaScratch::Impl& s = *scratch.impl_;
  auto see = [&](const Graph& g, ValueId v) {
    if (v == kNoValue || s.value_seen[v] == s.epoch || !g.is_const(v)) return;
    s.value_seen[v] = s.epoch;
    s.values.push_back(v);
  };
  auto scan = [&](const Graph& g, NodeId n) {
    if (n >= g.node_capacity() || !g.alive(n)) return;
    for (ValueId v : g.inputs(n)) see(g, v);
    for (uint32_t o = 0; o < g.node(n).out_count; ++o) see(g, g.node(n).out_begin + o);
  };
  for (NodeId n : changed) scan(parent, n), scan(child, n);
  int64_t change = 0;
  for (ValueId v : s.values) {
    bool was = is_weight(parent, v), is = is_weight(child, v);
    if (was != is) change += is ? bytes_of_value(child, v) : -bytes_of_value(parent, v);
  }
  return change;
}

}  // namespace rlflow
