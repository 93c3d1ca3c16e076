#include "rlflow/cost.h"

#include <cmath>

#include "cost_regions.h"

namespace rlflow {

using namespace detail;

namespace {

struct MapView {
  const Graph& g;
  const FusionRules& rules;
  const uint16_t* states;
  State state(NodeId n) const { return states[n]; }
};

bool is_opaque(const Graph& g, NodeId head) { return g.op(head).fusion == FusionClass::kOpaque; }

int64_t bytes_of_value(const Graph& g, ValueId v) {
  const TensorType& t = type_at(g, v);
  auto count = t.rank < 0 ? std::nullopt : element_count(t);
  return count ? static_cast<int64_t>(std::ceil(static_cast<double>(*count) * dtype_bytes(t.dtype))) : 0;
}

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

struct Working {
  std::vector<NodeId> members, order;
};

// What the runtime makes of a region: the last kind that its rows name.
std::string_view kind_of(const FusionRules& rules, const Graph& g, const std::vector<uint16_t>& states, const std::vector<NodeId>& nodes) {
  constexpr std::string_view kPatterns[] = {"", "Gelu", "QuickGelu", "LayerNormalization", "SimplifiedLayerNormalization"};
  State head = states[nodes.back()];
  if (pattern_of(head) != Pattern::kNone) return kPatterns[static_cast<size_t>(pattern_of(head))];
  for (size_t i = nodes.size(); i-- > 0;) {
    State s = states[nodes[i]];
    OpId op = g.node(nodes[i]).op;
    for (const auto& row : mask_of(s) ? rules.absorbing[op] : rules.starting[op])
      if (row.to == chain_of(s) && *row.kind) return row.kind;
  }
  return "";
}

}  // namespace

Picoseconds from_ms(double ms) {
  if (!std::isfinite(ms) || std::fabs(ms) > 1e9)
    throw Error(ErrorKind::kUsage, "setting a price: found " + std::to_string(ms) + " ms, expected a finite number of at most 1e9");
  return std::llround(ms / kMsPerPicosecond);
}

Pricer Pricer::analytic(const AnalyticDevice& device, std::shared_ptr<const FusionRules> rules) {
  for (double v : {device.gflops, device.vector_gflops, device.gbps})
    if (!(v > 0) || !std::isfinite(v))
      throw Error(ErrorKind::kUsage, "describing a device: a throughput is " + std::to_string(v) + ", expected a positive number");
  for (double v : {device.overhead_us, device.view_us})
    if (!(v >= 0) || !std::isfinite(v))
      throw Error(ErrorKind::kUsage, "describing a device: an overhead is " + std::to_string(v) + " us, expected 0 or more");
  Pricer p;
  p.device_ = device;
  p.rules_ = std::move(rules);
  p.view_price_ = from_ms(device.view_us * 1e-3);
  return p;
}

Pricer Pricer::table(std::shared_ptr<const FusionRules> rules) {
  Pricer p;
  p.table_ = true;
  p.rules_ = std::move(rules);
  p.view_price_ = from_ms(1e-3);
  return p;
}

std::string_view Pricer::fusion() const { return rules_->name; }
int Pricer::block() const { return rules_->block; }
void Pricer::bind(std::vector<std::pair<std::string, Int>> values) {
  bindings_ = std::move(values);
  ++revision_;
}
void Pricer::set_price(const Hash128& signature, double ms) {
  prices_[signature] = from_ms(ms);
  ++revision_;
}
void Pricer::set_view_price(double ms) {
  view_price_ = from_ms(ms);
  ++revision_;
}
double Pricer::find_price(const Hash128& signature) const {
  auto it = prices_.find(signature);
  return it == prices_.end() ? std::nan("") : to_ms(it->second);
}

template <class View>
Picoseconds Pricer::price_region(const View& view, const std::vector<NodeId>& members, Hash128* signature) const {
  NodeId head = members.back();
  if (is_opaque(view.g, head)) {
    if (table_) *signature = base_signature(view.g, members);
    return 0;
  }
  if (table_) {
    *signature = with_context(base_signature(view.g, members), context_of(view, members));
    if (chain_of(view.state(head)) == Chain::kView) return view_price_;
    auto it = prices_.find(*signature);
    return it == prices_.end() ? kNoPrice : it->second;
  }
  if (chain_of(view.state(head)) == Chain::kView) return view_price_;
  Work work = work_of(view.g, members, bindings_);
  double compute = work.flops / device_.gflops + work.vector_flops / device_.vector_gflops;   // ns
  double memory = work.bytes / device_.gbps;                                                  // ns
  return std::llround((std::max(compute, memory) + device_.overhead_us * 1e3) * 1e3);
}

RegionMap Pricer::map(const Graph& g) const {
  RegionMap m;
  const size_t nodes = g.node_capacity();
  m.head.assign(nodes, kNoNode);
  m.state.assign(nodes, 0);
  m.price.assign(nodes, kNoPrice);
  if (table_) m.signature.resize(nodes);
  MapView view{g, *rules_, m.state.data()};
  std::vector<NodeId> claim(nodes, kNoNode);
  auto order = g.order();
  for (NodeId n : order) {
    if (!works(g, n)) continue;
    State s = evaluate(view, n);
    m.state[n] = s;
    if (pattern_of(s) == Pattern::kNone) continue;
    PatternMatch match;
    Matcher<MapView>(view, n).run(match);
    for (uint32_t k = 0; k < match.count; ++k) claim[match.nodes[k]] = n;
  }
  for (size_t i = order.size(); i-- > 0;) {
    NodeId n = order[i];
    if (!(m.state[n] & kWorks)) continue;
    NodeId next = claim[n];
    if (next == kNoNode && g.node(n).out_count == 1) {
      ValueId v = first_output(g, n);
      if (single_use(g, v)) {
        Graph::Use use = g.users(v)[0];
        if (use.slot < kMaskSlots && (mask_of(m.state[use.node]) >> use.slot & 1)) next = use.node;
      }
    }
    m.head[n] = next == kNoNode ? n : m.head[next];
  }
  Working w;
  std::vector<uint8_t> weighed(g.value_capacity(), 0);
  auto weigh = [&](ValueId v) {
    if (weighed[v] || !g.is_const(v)) return;
    weighed[v] = 1;
    m.weight_bytes += bytes_of_value(g, v);
  };
  for (NodeId n : order) {
    if (!(m.state[n] & kWorks)) continue;
    for (ValueId v : g.inputs(n))
      if (v != kNoValue) weigh(v);
    if (m.head[n] != n) continue;
    collect_members(view, n, w.members);
    sort_members(g, w.members, w.order);
    Hash128 signature;
    Picoseconds p = price_region(view, w.members, &signature);
    m.price[n] = p;
    if (table_) m.signature[n] = signature;
    ++m.regions;
    m.unpriced += is_opaque(g, n);
    if (p == kNoPrice) ++m.unknown;
    else m.known += p;
  }
  for (ValueId v : g.outputs()) weigh(v);
  return m;
}

std::vector<Region> Pricer::regions(const Graph& g) const {
  RegionMap m = map(g);
  MapView view{g, *rules_, m.state.data()};
  std::vector<Region> result;
  Working w;
  for (NodeId n : g.order()) {
    if (m.head[n] != n) continue;
    collect_members(view, n, w.members);
    sort_members(g, w.members, w.order);
    Region r;
    r.head = n;
    r.nodes = w.members;
    for (NodeId k : r.nodes)
      for (ValueId v : g.inputs(k)) {
        if (v == kNoValue || std::find(r.nodes.begin(), r.nodes.end(), g.producer(v)) != r.nodes.end()) continue;
        if (std::find(r.inputs.begin(), r.inputs.end(), v) == r.inputs.end()) r.inputs.push_back(v);
      }
    const Node& head = g.node(n);
    for (uint32_t o = 0; o < head.out_count; ++o) {
      ValueId v = head.out_begin + o;
      if (!g.users(v).empty() || g.output_uses(v)) r.outputs.push_back(v);
    }
    if (r.outputs.empty())
      for (uint32_t o = 0; o < head.out_count; ++o) r.outputs.push_back(head.out_begin + o);
    RegionContext context = context_of(view, r.nodes);
    r.base_signature = base_signature(g, r.nodes);
    r.signature = with_context(r.base_signature, context);
    r.blocked = context.blocked;
    r.reorder_inputs = context.reorder_inputs;
    r.reorder_output = context.reorder_output;
    r.price = m.price[n];
    Work work = work_of(g, r.nodes, bindings_);
    r.flops = work.flops + work.vector_flops;
    r.bytes = work.bytes;
    r.view = chain_of(m.state[n]) == Chain::kView;
    r.opaque = is_opaque(g, n);
    r.kind = kind_of(*rules_, g, m.state, r.nodes);
    result.push_back(std::move(r));
  }
  return result;
}

// ---- delta ------------------------------------------------------------------------------------------------------------------------

namespace {
struct Mark {
  uint32_t evaluated = 0, queued = 0, touched = 0, lost = 0, won = 0, claimed = 0;
  NodeId claimer = 0;
  State state = 0;
};
}  // namespace

struct DeltaScratch::Impl {
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
DeltaScratch::DeltaScratch() : impl_(std::make_unique<Impl>()) {}
DeltaScratch::~DeltaScratch() = default;
DeltaScratch::DeltaScratch(DeltaScratch&&) noexcept = default;
DeltaScratch& DeltaScratch::operator=(DeltaScratch&&) noexcept = default;

namespace {

// The states of the child: recomputed where the rewrite reaches, those of the parent elsewhere.
class ChildStates {
 public:
  ChildStates(const Graph& parent, const RegionMap& pm, const Graph& child, const FusionRules& rules, std::vector<Mark>& marks,
              std::vector<NodeId>& queue, std::vector<NodeId>& evaluated, std::vector<NodeId>& walk, uint32_t epoch)
      : g(child), rules(rules), parent_(parent), pm_(pm), marks_(marks), queue_(queue), evaluated_(evaluated), walk_(walk), epoch_(epoch) {}

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

}  // namespace

DeltaPrice Pricer::delta(const Graph& parent, const RegionMap& pm, const Graph& child, std::span<const NodeId> changed,
                         std::vector<Hash128>* unknown_signatures, DeltaScratch& scratch) const {
  DeltaScratch::Impl& s = *scratch.impl_;
  s.begin(std::max(child.node_capacity(), pm.head.size()), std::max(child.value_capacity(), parent.value_capacity()));
  const uint32_t epoch = s.epoch;
  auto& marks = s.marks;
  ChildStates view(parent, pm, child, *rules_, marks, s.queue, s.evaluated, s.walk, epoch);
  MapView before{parent, *rules_, pm.state.data()};
  view.seed(changed);
  view.settle();

  auto in_child = [&](NodeId n) { return n < child.node_capacity() && works(child, n); };
  auto touch = [&](NodeId n) {
    if (marks[n].touched == epoch) return;
    marks[n].touched = epoch;
    s.touched.push_back(n);
  };
  for (NodeId n : changed)
    if (in_child(n) || view.was_work(n)) touch(n);
  for (size_t i = 0; i < s.evaluated.size(); ++i) {
    NodeId n = s.evaluated[i];
    State now = marks[n].state, old = view.was_work(n) ? pm.state[n] : State{0};
    if (now != old || pattern_of(now) != Pattern::kNone) touch(n);
    if (is_blocked(now) != is_blocked(old)) {  // those beside it may have to reorder, or no longer
      for (ValueId v : child.inputs(n))
        if (v != kNoValue && in_child(child.producer(v))) touch(child.producer(v));
      for (uint32_t o = 0; o < child.node(n).out_count; ++o)
        for (const Graph::Use& u : child.users(child.node(n).out_begin + o))
          if (in_child(u.node)) touch(u.node);
    }
    if (pattern_of(now) == Pattern::kNone) continue;
    PatternMatch match;
    Matcher<ChildStates>(view, n).run(match);
    for (uint32_t k = 0; k < match.count; ++k) {
      marks[match.nodes[k]].claimed = epoch;
      marks[match.nodes[k]].claimer = n;
      touch(match.nodes[k]);
    }
  }
  auto next_of = [&](NodeId n) -> NodeId {
    if (marks[n].claimed == epoch) return marks[n].claimer;
    const Node& node = child.node(n);
    if (node.out_count == 1) {
      ValueId v = node.out_begin;
      if (single_use(child, v)) {
        Graph::Use use = child.users(v)[0];
        if (use.slot < kMaskSlots && works(child, use.node) && (mask_of(view.state(use.node)) >> use.slot & 1)) return use.node;
      }
    }
    // Inside a pattern that the rewrite does not reach.
    if (!view.was_work(n)) return kNoNode;
    NodeId root = pm.head[n];
    bool same = root != n && in_child(root) && view.was_work(root) && !view.is_evaluated(root) && pattern_of(pm.state[root]) != Pattern::kNone;
    return same ? root : kNoNode;
  };
  auto head_of = [&](NodeId n) {
    for (NodeId next = next_of(n); next != kNoNode; next = next_of(n)) n = next;
    return n;
  };
  auto lose = [&](NodeId head) {
    if (marks[head].lost == epoch) return;
    marks[head].lost = epoch;
    s.lost.push_back(head);
  };
  auto win = [&](NodeId head) {
    if (marks[head].won == epoch) return;
    marks[head].won = epoch;
    s.won.push_back(head);
  };

  DeltaPrice d;
  d.unknown = pm.unknown;
  d.unpriced = pm.unpriced;
  // The regions of parent and child that cover the same nodes, grown until they do.
  size_t touched = 0, lost = 0, won = 0;
  while (touched < s.touched.size() || lost < s.lost.size() || won < s.won.size()) {
    if (touched < s.touched.size()) {
      NodeId n = s.touched[touched++];
      if (view.was_work(n)) lose(pm.head[n]);
      if (in_child(n)) win(head_of(n));
      continue;
    }
    if (lost < s.lost.size()) {
      NodeId head = s.lost[lost++];
      collect_members(before, head, s.working.members);
      for (NodeId n : s.working.members) touch(n);
      Picoseconds p = pm.price[head];
      d.unpriced -= is_opaque(parent, head);
      if (p == kNoPrice) --d.unknown, ++d.unknown_gone;
      else d.delta -= p;
      continue;
    }
    NodeId head = s.won[won++];
    collect_members(view, head, s.working.members);
    for (NodeId n : s.working.members) touch(n);
    sort_members(child, s.working.members, s.working.order);
    Hash128 signature;
    Picoseconds p = price_region(view, s.working.members, &signature);
    d.unpriced += is_opaque(child, head);
    if (p == kNoPrice) {
      ++d.unknown, ++d.unknown_new;
      if (unknown_signatures) unknown_signatures->push_back(signature);
    } else {
      d.delta += p;
    }
  }
  d.weight_bytes = pm.weight_bytes + weight_change(parent, child, changed, scratch);
  return d;
}

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
