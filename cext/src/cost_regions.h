// The local decisions behind a partition: the state of a node, the members of a region, its signature. Private to the pricer.
//
// Everything is written against a View, which says what state a producer has: View::state(NodeId). map() has computed it already, delta()
// looks into its overlay. A View also has `const Graph& g` and `const FusionRules& rules`.
#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include "fusion.h"

namespace rlflow::detail {

using State = uint16_t;
inline constexpr State kWorks = 1u << 15;    // set for every node that is alive, not constant and not a source
inline constexpr uint32_t kMaskSlots = 6;    // slots that a node may absorb from
constexpr State pack(Chain c, bool blocked, Pattern p, uint32_t mask) {
  return static_cast<State>(kWorks | static_cast<uint32_t>(c) | (blocked ? 32u : 0u) | static_cast<uint32_t>(p) << 6 | mask << 9);
}
constexpr Chain chain_of(State s) { return static_cast<Chain>(s & 31); }
constexpr bool is_blocked(State s) { return s & 32; }
constexpr Pattern pattern_of(State s) { return static_cast<Pattern>(s >> 6 & 7); }
constexpr uint32_t mask_of(State s) { return s >> 9 & 63; }

inline bool works(const Graph& g, NodeId n) {
  const Node& node = g.node(n);
  return !(node.flags & (kDead | kConst)) && node.op > kOpConstant;
}

// The value is read once, by a node, and is all that its producer makes.
inline bool single_use(const Graph& g, ValueId v) { return g.users(v).size() == 1 && g.output_uses(v) == 0 && g.node(g.producer(v)).out_count == 1; }
inline ValueId first_output(const Graph& g, NodeId n) { return g.node(n).out_begin; }
inline const TensorType& type_at(const Graph& g, ValueId v) { return type_of(g.type(v)); }
inline bool same_shape(const TensorType& a, const TensorType& b) { return a.rank >= 0 && a.rank == b.rank && a.dims == b.dims; }

struct OpIds {
  OpId add, mul, div, sub, pow, sqrt, erf, sigmoid, reciprocal, reduce_mean, gather, gather_nd, gather_elements, slice, matmul, transpose;
};
const OpIds& op_ids();
const Hash128& op_name_hash(OpId op);

bool guard_holds(const FusionRules& rules, const Graph& g, NodeId n, uint32_t slot, Guard guard, bool blocked0, bool blocked1);
bool convolution_blocks(const FusionRules& rules, const Graph& g, NodeId n);
bool convolution_reads_plain(const FusionRules& rules, const Graph& g, NodeId n);
bool pool_blocks(const FusionRules& rules, const Graph& g, NodeId n);
bool concat_blocks(const FusionRules& rules, const Graph& g, NodeId n);
bool resize_blocks(const Graph& g, NodeId n);

template <class View>
bool blocked_value(const View& view, ValueId v) {
  if (v == kNoValue || view.g.is_const(v)) return false;
  NodeId p = view.g.producer(v);
  return works(view.g, p) && is_blocked(view.state(p));
}

// ---- patterns of several nodes, recognised at their last one ------------------------------------------------------------------
template <class View>
class Matcher {
 public:
  Matcher(const View& view, NodeId root) : view_(view), g_(view.g), root_(root) {}

  bool run(PatternMatch& m) {
    static const OpIds& ops = op_ids();
    OpId op = g_.node(root_).op;
    if (op == ops.mul) return attempt(m, Pattern::kGelu) || attempt(m, Pattern::kSilu) || attempt(m, Pattern::kRmsNorm);
    return op == ops.add && attempt(m, Pattern::kLayerNorm);
  }

 private:
  bool attempt(PatternMatch& m, Pattern pattern) {
    m.pattern = pattern;
    m.entry = kNoValue;
    m.count = 0;
    m_ = &m;
    bool found = pattern == Pattern::kGelu ? gelu() : pattern == Pattern::kSilu ? silu() : pattern == Pattern::kRmsNorm ? rms() : layer_norm();
    if (found && closed()) {
      prefix();
      return true;
    }
    m.pattern = Pattern::kNone;
    return false;
  }

  // The working producer of v if it has this operator.
  NodeId made_by(ValueId v, OpId op) const {
    if (v == kNoValue) return kNoNode;
    NodeId p = g_.producer(v);
    return g_.node(p).op == op && works(g_, p) && g_.node(p).out_count == 1 ? p : kNoNode;
  }
  bool number(ValueId v) const {
    if (v == kNoValue || !g_.is_const(v)) return false;
    auto count = element_count(type_at(g_, v));
    return count && *count == 1;
  }
  // A constant or a vector: what ONNX Runtime takes for a normalisation's scale or shift.
  bool given(ValueId v) const { return v != kNoValue && (g_.is_const(v) || type_at(g_, v).rank == 1); }
  ValueId in(NodeId n, uint32_t slot) const { return slot < g_.inputs(n).size() ? g_.inputs(n)[slot] : kNoValue; }
  NodeId take(NodeId n) {
    if (m_->count < std::size(m_->nodes)) m_->nodes[m_->count++] = n;
    return n;
  }
  bool is_member(NodeId n) const { return n == root_ || std::find(m_->nodes, m_->nodes + m_->count, n) != m_->nodes + m_->count; }
  bool read_inside(NodeId n) const {
    ValueId v = first_output(g_, n);
    if (g_.output_uses(v)) return false;
    for (const Graph::Use& u : g_.users(v))
      if (!is_member(u.node)) return false;
    return true;
  }
  bool closed() const {
    return std::all_of(m_->nodes, m_->nodes + m_->count, [&](NodeId n) { return read_inside(n); });
  }
  // (operand that is not a constant number, the node) of a product or quotient with a number; kNoValue if it is none.
  ValueId scaled(NodeId n) const {
    if (n == kNoNode) return kNoValue;
    if (number(in(n, 1))) return in(n, 0);
    return g_.node(n).op == op_ids().mul && number(in(n, 0)) ? in(n, 1) : kNoValue;
  }
  // The other operand of a two-input node; kNoValue unless v is one of them.
  ValueId other(NodeId n, ValueId v) const { return in(n, 0) == v ? in(n, 1) : in(n, 1) == v ? in(n, 0) : kNoValue; }

  // 1 + erf(x * c): takes its nodes and returns x.
  ValueId erf_factor(ValueId v) {
    const OpIds& ops = op_ids();
    NodeId add = made_by(v, ops.add);
    ValueId inner = scaled_sum(add);
    NodeId erf = made_by(inner, ops.erf);
    if (erf == kNoNode) return kNoValue;
    NodeId scale = made_by(in(erf, 0), ops.div);
    if (scale == kNoNode) scale = made_by(in(erf, 0), ops.mul);
    ValueId x = scaled(scale);
    if (x != kNoValue) take(add), take(erf), take(scale);
    return x;
  }
  ValueId scaled_sum(NodeId add) const {
    if (add == kNoNode) return kNoValue;
    return number(in(add, 1)) ? in(add, 0) : number(in(add, 0)) ? in(add, 1) : kNoValue;
  }
  bool gelu() {
    const OpIds& ops = op_ids();
    for (uint32_t s = 0; s < 2; ++s) {
      ValueId a = in(root_, s), b = in(root_, 1 - s);
      if (number(b)) {  // (x * E) * c
        NodeId product = made_by(a, ops.mul);
        if (product == kNoNode) continue;
        for (uint32_t t = 0; t < 2; ++t) {
          m_->count = 0;
          ValueId x = erf_factor(in(product, t));
          if (x != kNoValue && x == in(product, 1 - t)) return take(product), m_->entry = x, true;
        }
        continue;
      }
      m_->count = 0;  // (x * c) * E
      ValueId x = erf_factor(a);
      NodeId half = made_by(b, ops.mul);
      if (x != kNoValue && half != kNoNode && scaled(half) == x) return take(half), m_->entry = x, true;
    }
    return false;
  }
  bool silu() {
    const OpIds& ops = op_ids();
    for (uint32_t s = 0; s < 2; ++s) {
      NodeId sigmoid = made_by(in(root_, s), ops.sigmoid);
      if (sigmoid == kNoNode) continue;
      ValueId x = in(root_, 1 - s);
      m_->count = 0;
      take(sigmoid);
      m_->entry = x;
      if (in(sigmoid, 0) == x) return true;
      NodeId scale = made_by(in(sigmoid, 0), ops.mul);
      if (scale != kNoNode && scaled(scale) == x) return take(scale), true;
    }
    return false;
  }
  // sqrt(mean(d^2) + eps): takes its nodes and returns d.
  ValueId deviation(ValueId v) {
    const OpIds& ops = op_ids();
    NodeId sqrt = made_by(v, ops.sqrt);
    if (sqrt == kNoNode) return kNoValue;
    NodeId add = made_by(in(sqrt, 0), ops.add);
    NodeId mean = made_by(scaled_sum(add), ops.reduce_mean);
    if (mean == kNoNode) return kNoValue;
    NodeId power = made_by(in(mean, 0), ops.pow);
    if (power == kNoNode || !number(in(power, 1))) return kNoValue;
    take(sqrt), take(add), take(mean), take(power);
    return in(power, 0);
  }
  // d / sqrt(mean(d^2) + eps) in any of its spellings: takes its nodes and returns d.
  ValueId normalised(ValueId v) {
    const OpIds& ops = op_ids();
    NodeId div = made_by(v, ops.div);
    if (div != kNoNode) {
      ValueId d = deviation(in(div, 1));
      return d != kNoValue && d == in(div, 0) ? (take(div), d) : kNoValue;
    }
    NodeId mul = made_by(v, ops.mul);
    if (mul == kNoNode) return kNoValue;
    for (uint32_t s = 0; s < 2; ++s) {
      NodeId inverse = made_by(in(mul, s), ops.reciprocal);
      ValueId below = kNoValue;
      if (inverse != kNoNode) {
        below = in(inverse, 0);
      } else if (inverse = made_by(in(mul, s), ops.div); inverse != kNoNode && number(in(inverse, 0))) {
        below = in(inverse, 1);
      }
      if (below == kNoValue) continue;
      m_->count = 0;
      ValueId d = deviation(below);
      if (d != kNoValue && d == in(mul, 1 - s)) return take(inverse), take(mul), d;
    }
    return kNoValue;
  }
  bool rms() {
    for (uint32_t s = 0; s < 2; ++s) {
      if (!given(in(root_, s))) continue;
      m_->count = 0;
      m_->entry = normalised(in(root_, 1 - s));
      if (m_->entry != kNoValue) return true;
    }
    return false;
  }
  bool layer_norm() {
    const OpIds& ops = op_ids();
    for (uint32_t s = 0; s < 2; ++s) {
      NodeId scale = given(in(root_, s)) ? made_by(in(root_, 1 - s), ops.mul) : kNoNode;
      if (scale == kNoNode) continue;
      for (uint32_t t = 0; t < 2; ++t) {
        if (!given(in(scale, t))) continue;
        m_->count = 0;
        NodeId centred = made_by(normalised(in(scale, 1 - t)), ops.sub);
        if (centred == kNoNode) continue;
        NodeId mean = made_by(in(centred, 1), ops.reduce_mean);
        if (mean == kNoNode || in(mean, 0) != in(centred, 0)) continue;
        take(scale), take(centred), take(mean);
        m_->entry = in(centred, 0);
        return true;
      }
    }
    return false;
  }
  // An Add in front that ONNX Runtime takes in: the bias of a Gelu, the residual sum of a LayerNormalization.
  void prefix() {
    Chain wanted = m_->pattern == Pattern::kGelu ? Chain::kBias : m_->pattern == Pattern::kLayerNorm ? Chain::kSum : Chain::kClosed;
    if (wanted == Chain::kClosed) return;
    NodeId add = made_by(m_->entry, op_ids().add);
    if (add == kNoNode || !read_inside(add) || chain_of(view_.state(add)) != wanted) return;
    take(add);
  }

  const View& view_;
  const Graph& g_;
  NodeId root_;
  PatternMatch* m_ = nullptr;
};

// ---- state of a node ------------------------------------------------------------------------------------------------------------
template <class View>
bool layout_blocks(const View& view, NodeId n) {
  const Graph& g = view.g;
  auto in = g.inputs(n);
  switch (view.rules.layout[g.node(n).op]) {
    case Layout::kPlain: return false;
    case Layout::kConv: return convolution_blocks(view.rules, g, n);
    case Layout::kPool: return pool_blocks(view.rules, g, n);
    case Layout::kPointwise: return !in.empty() && blocked_value(view, in[0]);
    case Layout::kResize: return !in.empty() && blocked_value(view, in[0]) && resize_blocks(g, n);
    case Layout::kConcat:
      return concat_blocks(view.rules, g, n) && std::all_of(in.begin(), in.end(), [&](ValueId v) { return blocked_value(view, v); });
    case Layout::kCombine:
    case Layout::kCombineBroadcast: {
      if (in.size() < 2) return false;
      TypeId wide = g.type(first_output(g, n));
      for (ValueId v : in) {
        if (!blocked_value(view, v)) return false;
        if (g.type(v) == wide) continue;
        const TensorType &a = type_at(g, v), &b = type_of(wide);
        bool spread = view.rules.layout[g.node(n).op] == Layout::kCombineBroadcast && a.rank == 4 && b.rank == 4 && a.dims[0] == b.dims[0] &&
                      a.dims[1] == b.dims[1] && a.dims[2] == 1 && a.dims[3] == 1;
        if (!spread) return false;
      }
      return true;
    }
  }
  return false;
}

template <class View>
State evaluate(const View& view, NodeId n) {
  const Graph& g = view.g;
  const FusionRules& rules = view.rules;
  const OpId op = g.node(n).op;
  if (rules.patterns[op]) {
    PatternMatch m;
    if (Matcher<View>(view, n).run(m)) {
      bool pointwise = m.pattern == Pattern::kGelu || m.pattern == Pattern::kSilu;
      return pack(Chain::kClosed, pointwise && rules.block > 0 && blocked_value(view, m.entry), m.pattern, 0);
    }
  }
  auto in = g.inputs(n);
  auto blocked_at = [&](uint32_t slot) { return rules.block > 0 && slot < in.size() && blocked_value(view, in[slot]); };
  uint32_t mask = 0;
  Chain to = Chain::kClosed, from = Chain::kClosed;
  const auto& rows = rules.absorbing[op];
  if (!rows.empty()) {
    bool more = false;
    for (uint32_t s = 0; s < in.size() && s < kMaskSlots; ++s) {
      ValueId v = in[s];
      if (v == kNoValue || g.is_const(v) || !single_use(g, v)) continue;
      NodeId p = g.producer(v);
      if (!works(g, p)) continue;
      Chain c = chain_of(view.state(p));
      if (c == Chain::kClosed) continue;
      for (const auto& row : rows) {
        if (row.from != c || (mask && !row.both) || !guard_holds(rules, g, n, s, row.guard, blocked_at(0), blocked_at(1))) continue;
        mask |= 1u << s;
        from = c;
        to = row.to;
        more = row.both;
        break;
      }
      if (mask && !more) break;
    }
  }
  if (!mask) {
    for (const auto& row : rules.starting[op]) {
      bool holds = guard_holds(rules, g, n, 0, row.guard, blocked_at(0), blocked_at(1)) ||
                   (in.size() == 2 && guard_holds(rules, g, n, 1, row.guard, blocked_at(0), blocked_at(1)));
      if (!holds) continue;
      to = row.to;
      break;
    }
  }
  bool blocked = false;
  if (rules.block > 0) {
    bool convolution_chain = mask && (from == Chain::kConv || from == Chain::kConvSum || from == Chain::kConvRelu || from == Chain::kConvScale);
    if (convolution_chain) blocked = is_blocked(view.state(g.producer(in[static_cast<uint32_t>(__builtin_ctz(mask))])));
    else blocked = to == Chain::kConvScale || layout_blocks(view, n);
  }
  return pack(to, blocked, Pattern::kNone, mask);
}

// ---- regions --------------------------------------------------------------------------------------------------------------------
// Nodes fused into `head`, which comes first.
template <class View>
void collect_members(const View& view, NodeId head, std::vector<NodeId>& members) {
  members.clear();
  members.push_back(head);
  auto add = [&](NodeId n) {
    if (std::find(members.begin(), members.end(), n) == members.end()) members.push_back(n);
  };
  for (size_t i = 0; i < members.size(); ++i) {
    NodeId n = members[i];
    State s = view.state(n);
    auto in = view.g.inputs(n);
    for (uint32_t mask = mask_of(s); mask; mask &= mask - 1) add(view.g.producer(in[static_cast<uint32_t>(__builtin_ctz(mask))]));
    if (pattern_of(s) == Pattern::kNone) continue;
    PatternMatch m;
    Matcher<View>(view, n).run(m);
    for (uint32_t k = 0; k < m.count; ++k) add(m.nodes[k]);
  }
}

// Producers before consumers, in an order that follows from the wiring alone.
inline void sort_members(const Graph& g, std::vector<NodeId>& members, std::vector<NodeId>& scratch) {
  if (members.size() < 2) return;
  scratch.clear();
  auto visit = [&](auto&& self, NodeId n) -> void {
    for (ValueId v : g.inputs(n)) {
      if (v == kNoValue) continue;
      NodeId p = g.producer(v);
      if (std::find(members.begin(), members.end(), p) != members.end() && std::find(scratch.begin(), scratch.end(), p) == scratch.end())
        self(self, p);
    }
    scratch.push_back(n);
  };
  visit(visit, members[0]);
  members.swap(scratch);
}

struct RegionContext {
  bool blocked = false;
  uint32_t reorder_inputs = 0;
  bool reorder_output = false;
};

template <class View>
RegionContext context_of(const View& view, const std::vector<NodeId>& members) {
  RegionContext c;
  NodeId head = members.back();
  if (view.rules.block == 0 || !is_blocked(view.state(head))) return c;
  const Graph& g = view.g;
  c.blocked = true;
  for (NodeId n : members) {
    auto in = g.inputs(n);
    if (in.empty() || in[0] == kNoValue || g.is_const(in[0])) continue;
    if (std::find(members.begin(), members.end(), g.producer(in[0])) != members.end() || blocked_value(view, in[0])) continue;
    if (view.rules.layout[g.node(n).op] == Layout::kConv && convolution_reads_plain(view.rules, g, n)) continue;
    ++c.reorder_inputs;
  }
  const Node& node = g.node(head);
  for (uint32_t o = 0; o < node.out_count && !c.reorder_output; ++o) {
    ValueId v = node.out_begin + o;
    c.reorder_output = g.output_uses(v) > 0;
    for (const Graph::Use& u : g.users(v)) {
      if (c.reorder_output) break;
      c.reorder_output = !works(g, u.node) || !is_blocked(view.state(u.node));
    }
  }
  return c;
}

// `members` in the order of sort_members.
Hash128 base_signature(const Graph& g, const std::vector<NodeId>& members);
Hash128 with_context(const Hash128& base, const RegionContext& c);

struct Work {
  double flops = 0, vector_flops = 0, bytes = 0;
};
using Bindings = std::vector<std::pair<std::string, Int>>;
Work work_of(const Graph& g, const std::vector<NodeId>& members, const Bindings& bindings);

}  // namespace rlflow::detail
