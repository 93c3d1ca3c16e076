#include "rlflow/cost.h"

#include <cmath>

#include "cost_map.h"

namespace rlflow {

using namespace detail;

namespace {

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

namespace {

// The states of all nodes, and for each that lies in a pattern the pattern's root.
void set_states(const MapView& view, RegionMap& m, std::vector<NodeId>& claim) {
  for (NodeId n : view.g.order()) {
    if (!works(view.g, n)) continue;
    State s = evaluate(view, n);
    m.state[n] = s;
    if (pattern_of(s) == Pattern::kNone) continue;
    PatternMatch match;
    Matcher<MapView>(view, n).run(match);
    for (uint32_t k = 0; k < match.count; ++k) claim[match.nodes[k]] = n;
  }
}

void set_heads(const Graph& g, RegionMap& m, const std::vector<NodeId>& claim) {
  auto order = g.order();
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
}

// Bytes of the constant values that work reads or that are outputs, each once.
int64_t weight_bytes(const Graph& g, const RegionMap& m) {
  std::vector<uint8_t> weighed(g.value_capacity(), 0);
  int64_t bytes = 0;
  auto weigh = [&](ValueId v) {
    if (v == kNoValue || weighed[v] || !g.is_const(v)) return;
    weighed[v] = 1;
    bytes += bytes_of_value(g, v);
  };
  for (NodeId n : g.order())
    if (m.state[n] & kWorks)
      for (ValueId v : g.inputs(n)) weigh(v);
  for (ValueId v : g.outputs()) weigh(v);
  return bytes;
}

}  // namespace

RegionMap Pricer::map(const Graph& g) const {
  RegionMap m;
  const size_t nodes = g.node_capacity();
  m.head.assign(nodes, kNoNode);
  m.state.assign(nodes, 0);
  m.price.assign(nodes, kNoPrice);
  if (table_) m.signature.resize(nodes);
  MapView view{g, *rules_, m.state.data()};
  std::vector<NodeId> claim(nodes, kNoNode);
  set_states(view, m, claim);
  set_heads(g, m, claim);
  Working w;
  for (NodeId n : g.order()) {
    if (!(m.state[n] & kWorks) || m.head[n] != n) continue;
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
  m.weight_bytes = weight_bytes(g, m);
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

}  // namespace rlflow
