#include "rlflow/match.h"

#include <algorithm>

namespace rlflow {
namespace {

const AttrValue* small_int(int k) {
  static const std::vector<AttrValue>* table = [] {
    auto* v = new std::vector<AttrValue>;
    for (int i = 0; i < 4096; ++i) v->push_back(static_cast<Int>(i));
    return v;
  }();
  return k >= 0 && k < 4096 ? &(*table)[k] : nullptr;
}

bool listed(const std::vector<std::string>& names, const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); }

bool same_rest(const RestBinding& a, const RestBinding& b) {
  if (a.attrs == b.attrs && *a.excluded == *b.excluded) return true;
  AttrSet x = attrs_of(a.attrs), y = attrs_of(b.attrs);
  std::erase_if(x.items, [&](const auto& i) { return listed(*a.excluded, i.first); });
  std::erase_if(y.items, [&](const auto& i) { return listed(*b.excluded, i.first); });
  return x == y;
}

}  // namespace

void Matcher::fail(const std::function<std::string()>& text) {
  if (!why_) return;
  int depth = static_cast<int>(b_.nodes.size());
  if (depth <= why_->depth) return;
  why_->depth = depth;
  why_->text = text();
}

std::string Matcher::node_text(NodeId n) const { return g_.op(n).name + attrs_text(g_.node(n).attrs); }

bool Matcher::solve(size_t at) {
  if (at == goals_.size()) return next_root(root_ + 1);
  const Goal goal = goals_[at];
  const Term& t = rule_.source(goal.term);
  switch (t.kind) {
    case Term::kAbsent:
      if (goal.value == kNoValue) return solve(at + 1);
      fail([] { return std::string("an optional operand is present where the rule wants none"); });
      return false;
    case Term::kVar: {
      if (goal.value == kNoValue) return false;
      ValueId& slot = b_.values[t.ref];
      if (slot != kNoValue) {
        if (slot == goal.value) return solve(at + 1);
        fail([&] { return "the operands that the rule calls " + rule_.value_names()[t.ref] + " are two different values"; });
        return false;
      }
      slot = goal.value;
      bool stop = solve(at + 1);
      if (!stop) b_.values[t.ref] = kNoValue;  // a solution that stops the search keeps its bindings
      return stop;
    }
    case Term::kSeqVar: {  // one per member of a star group
      if (goal.value == kNoValue) return false;
      auto& seq = b_.sequences[t.ref];
      if (seq.size() > members_) return seq.back() == goal.value && solve(at + 1);
      seq.push_back(goal.value);
      bool stop = solve(at + 1);
      if (!stop) b_.sequences[t.ref].pop_back();
      return stop;
    }
    case Term::kOp: {
      if (goal.value == kNoValue) return false;
      NodeId n = g_.producer(goal.value);
      int output = g_.output_index(goal.value);
      if (t.projection == Term::kBound) {
        const AttrValue* k = small_int(output);
        const AttrValue*& slot = b_.attrs[t.output];
        if (slot && !(*slot == *k)) return false;
        const AttrValue* before = slot;
        slot = k;
        bool stop = match_node(goal.term, n, at);
        if (!stop) b_.attrs[t.output] = before;
        return stop;
      }
      if (output != (t.projection == Term::kIndexed ? t.output : 0)) return false;
      return match_node(goal.term, n, at);
    }
    default: return false;
  }
}

bool Matcher::match_node(int term, NodeId node, size_t at) {
  const Term& t = rule_.source(term);
  const Node& n = g_.node(node);
  if (!t.ops.contains(n.op)) {
    fail([&] {
      return "found " + node_text(node) + " where the rule wants " + (t.op_var < 0 ? op_info(t.ops.members[0]).name : "an operator of another class");
    });
    return false;
  }
  if (n.flags & kDead) return false;
  if (n.flags & kConst && !b_.roots.empty() && node == b_.roots.back()) {
    fail([&] { return node_text(node) + " is constant: it is folded when the model is written, and costs nothing"; });
    return false;
  }
  // What a node binds is undone by restoring these; the vectors are small.
  auto attrs = b_.attrs;
  auto rests = b_.rests;
  auto ops = b_.ops;
  size_t deferred = deferred_.size();
  b_.nodes.push_back(node);
  bool stop = bind_attributes(t, g_.attrs(node)) && match_children(t, node, at);
  if (!stop) {
    b_.nodes.pop_back();
    b_.attrs = std::move(attrs);
    b_.rests = std::move(rests);
    b_.ops = std::move(ops);
    deferred_.resize(deferred);
  }
  return stop;
}

bool Matcher::bind_attributes(const Term& t, const AttrSet& attrs) {
  for (const AttrPattern& p : t.attrs) {
    const AttrValue* v = attrs.find(p.name);
    if (p.absent) {
      if (!v) continue;
      fail([&] { return "the node has the attribute '" + p.name + "', of which the rule says nothing"; });
      return false;
    }
    if (!v) {
      fail([&] { return "the node has no attribute '" + p.name + "' here"; });
      return false;
    }
    if ((p.var >= 0 || p.expr->kind != Expr::kConst) && counts_from_the_end(p.name, *v)) {
      fail([&] { return "the attribute '" + p.name + "' is " + attr_text(*v) + ", which counts from the end of an unknown rank"; });
      return false;
    }
    if (p.var >= 0) {
      const AttrValue*& slot = b_.attrs[p.var];
      if (slot && !(*slot == *v)) {
        fail([&] {
          return "the attribute '" + p.name + "' is " + attr_text(*v) + ", and the rule's " + rule_.attr_names()[p.var] + " is already " +
                 attr_text(*slot);
        });
        return false;
      }
      slot = v;
    } else if (p.expr->kind == Expr::kConst) {
      if (eval_equal(EVal::from_attr(*v), p.expr->value) != Tri::kTrue) {
        fail([&] { return "the attribute '" + p.name + "' is " + attr_text(*v) + ", the rule wants " + p.expr->value.str(); });
        return false;
      }
    } else {
      deferred_.push_back({&p, v});
    }
  }
  if (t.rest >= 0) {
    RestBinding r{intern_attrs(attrs), &t.excluded};
    RestBinding& slot = b_.rests[t.rest];
    if (slot.excluded && !same_rest(slot, r)) {
      fail([] { return std::string("the remaining attributes differ from those of another node of the rule"); });
      return false;
    }
    if (!slot.excluded) slot = r;
  }
  return true;
}

bool Matcher::bind_operator(const Term& t, const Node& node, std::span<const ValueId> extra) {
  if (t.op_var < 0) return true;
  OpBinding& slot = b_.ops[t.op_var];
  OpBinding now{true, node.op, t.op_carries ? node.attrs : 0, {extra.begin(), extra.end()}};
  if (slot.bound) return slot.op == now.op && slot.attrs == now.attrs && slot.extra == now.extra;
  slot = std::move(now);
  return true;
}

bool Matcher::extra_operands_fine(std::span<const ValueId> extra) const {
  for (ValueId v : extra) {
    if (v == kNoValue) continue;
    const TensorType& t = type_of(g_.type(v));
    if (!g_.is_const(v) || t.rank < 0 || element_count(t) != 1) return false;
  }
  return true;
}

bool Matcher::match_children(const Term& t, NodeId node, size_t at) {
  const Node& n = g_.node(node);
  auto in = g_.inputs(node);
  if (t.has_sequence && !rule_.star()) {
    if (!bind_operator(t, n, {})) return false;
    return match_sequence(t, in, 0, 0, at);
  }
  size_t want = t.children.size();
  // A unary operator may have scalar operands besides (Clip's bounds); they travel with ?f.
  bool unary = t.op_var >= 0 && t.ops.kind >= OpClass::kUnary && t.ops.kind <= OpClass::kMonotone;
  if (in.size() != want && !(unary && t.op_carries && in.size() > want && extra_operands_fine(in.subspan(want)))) {
    fail([&] { return node_text(node) + " has " + std::to_string(in.size()) + " operands, the rule wants " + std::to_string(want); });
    return false;
  }
  if (!bind_operator(t, n, in.subspan(want))) {
    fail([&] { return node_text(node) + " differs from the node that the rule's operator variable already stands for"; });
    return false;
  }
  if (push_children(t, in.first(want), at)) return true;
  if (want != 2 || !op_info(n.op).has(kCommutative) || in[0] == in[1]) return false;
  ValueId swapped[2] = {in[1], in[0]};
  return push_children(t, swapped, at);
}

bool Matcher::push_children(const Term& t, std::span<const ValueId> in, size_t at) {
  size_t size = goals_.size();
  for (size_t k = 0; k < in.size(); ++k) goals_.push_back({t.children[k], in[k]});
  bool stop = solve(at + 1);
  goals_.resize(size);
  return stop;
}

// Children with sequence variables: every way to share the operands out.
bool Matcher::match_sequence(const Term& t, std::span<const ValueId> in, size_t child, size_t used, size_t at) {
  if (child == t.children.size()) return used == in.size() && solve(at + 1);
  const Term& c = rule_.source(t.children[child]);
  if (c.kind != Term::kSeqVar) {
    if (used == in.size()) return false;
    goals_.push_back({t.children[child], in[used]});
    bool stop = match_sequence(t, in, child + 1, used + 1, at);
    goals_.pop_back();
    return stop;
  }
  auto& seq = b_.sequences[c.ref];
  if (!seq.empty()) {  // bound before: the same operands again
    if (in.size() - used < seq.size() || !std::equal(seq.begin(), seq.end(), in.begin() + used)) return false;
    return match_sequence(t, in, child + 1, used + seq.size(), at);
  }
  size_t later = 0;
  for (size_t k = child + 1; k < t.children.size(); ++k) later += rule_.source(t.children[k]).kind != Term::kSeqVar;
  if (in.size() < used + later) return false;
  bool last = true;
  for (size_t k = child + 1; k < t.children.size(); ++k) last = last && rule_.source(t.children[k]).kind != Term::kSeqVar;
  size_t most = in.size() - used - later;
  for (size_t take = last ? most : 0; take <= most; ++take) {
    b_.sequences[c.ref].assign(in.begin() + used, in.begin() + used + take);
    bool stop = match_sequence(t, in, child + 1, used + take, at);
    b_.sequences[c.ref].clear();
    if (stop) return true;
  }
  return false;
}

// Where the next root may stand: nodes above a variable that is bound already, else every node of its operator.
std::vector<NodeId> Matcher::root_candidates(int root) const {
  std::vector<int> path;  // terms from the bound leaf's parent up to the root
  ValueId start = kNoValue;
  std::function<bool(int)> find = [&](int term) {
    const Term& t = rule_.source(term);
    if (t.kind == Term::kVar) {
      start = b_.values[t.ref];
      return start != kNoValue;
    }
    for (int c : t.children)
      if (find(c)) {
        path.push_back(term);
        return true;
      }
    return false;
  };
  std::vector<NodeId> nodes;
  if (!find(root)) {
    for (NodeId n : g_.order())
      if (rule_.source(root).ops.contains(g_.node(n).op)) nodes.push_back(n);
    return nodes;
  }
  std::vector<ValueId> values{start};
  for (size_t level = 0; level < path.size(); ++level) {
    nodes.clear();
    for (ValueId v : values)
      for (const auto& use : g_.users(v))
        if (rule_.source(path[level]).ops.contains(g_.node(use.node).op)) nodes.push_back(use.node);
    std::sort(nodes.begin(), nodes.end(), [&](NodeId a, NodeId b) { return g_.position(a) < g_.position(b); });
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    values.clear();
    for (NodeId n : nodes)
      for (int k = 0; k < g_.node(n).out_count; ++k) values.push_back(g_.node(n).out_begin + k);
  }
  return nodes;
}

bool Matcher::next_root(size_t root) {
  if (root == rule_.source_roots().size()) return complete();
  int term = rule_.source_roots()[root];
  size_t saved_root = root_;
  auto goals = std::move(goals_);
  bool stop = false;
  for (NodeId n : root_candidates(term)) {
    if (std::find(b_.roots.begin(), b_.roots.end(), n) != b_.roots.end()) continue;
    if (rule_.ordered_roots() && g_.position(n) < g_.position(b_.roots.back())) continue;
    root_ = root;
    goals_.assign(1, {term, g_.node(n).out_begin});
    b_.roots.push_back(n);
    stop = match_node(term, n, 0);
    b_.roots.pop_back();
    if (stop) break;
  }
  goals_ = std::move(goals);
  root_ = saved_root;
  return stop;
}

bool Matcher::deferred_hold() {
  EvalScope scope{&g_, &b_, nullptr, kUnknown, kUnknown};
  for (const Deferred& d : deferred_) {
    EVal want = evaluate(*d.pattern->expr, scope);
    if (eval_equal(EVal::from_attr(*d.value), want) != Tri::kTrue) {
      fail([&] {
        return "the attribute '" + d.pattern->name + "' is " + attr_text(*d.value) + ", the rule wants " + d.pattern->expr->source + " = " +
               want.str();
      });
      return false;
    }
  }
  return true;
}

bool Matcher::conditions_hold(const Rule& rule, const Bindings& b) {
  std::vector<EVal> lets;
  EvalScope scope{&g_, &b, &lets, kUnknown, kUnknown};
  for (const LetExpr& l : rule.let_exprs()) lets.push_back(evaluate(*l.expr, scope));
  for (const ExprPtr& w : rule.where()) {
    Tri t = evaluate(*w, scope).truth();
    if (t == Tri::kTrue) continue;
    fail([&] { return std::string("the condition `") + w->source + "` is " + (t == Tri::kFalse ? "false" : "not known"); });
    return false;
  }
  return true;
}

bool Matcher::complete() {
  if (!deferred_hold()) return false;
  if (first_only_) return true;  // a member of a star group; the caller asks for the conditions
  if (!rules_ && conditions_hold(rule_, b_)) (*sink_)(b_, 0);
  for (uint32_t r : family_)
    if (conditions_hold(rules_->rule(r), b_)) (*sink_)(b_, r);
  return false;                  // go on to the next solution
}

void Matcher::match_at(NodeId node, const Sink& sink) {
  sink_ = &sink;
  b_ = rule_.fresh_bindings();
  goals_.clear();
  deferred_.clear();
  root_ = 0;
  b_.roots.assign(1, node);
  goals_.push_back({rule_.source_roots()[0], g_.node(node).out_begin});
  match_node(rule_.source_roots()[0], node, 0);
}

void Matcher::match_star(ValueId join, const Sink& sink) {
  const int root = rule_.source_roots()[0];
  const Term& t = rule_.source(root);
  const int join_var = rule_.source(t.children[rule_.join_child()]).ref;
  std::vector<NodeId> rest;
  for (const auto& use : g_.users(join))
    if (t.ops.contains(g_.node(use.node).op) && (rest.empty() || rest.back() != use.node)) rest.push_back(use.node);
  std::sort(rest.begin(), rest.end(), [&](NodeId a, NodeId b) { return g_.position(a) < g_.position(b); });
  rest.erase(std::unique(rest.begin(), rest.end()), rest.end());
  first_only_ = true;
  while (rest.size() >= 2) {
    b_ = rule_.fresh_bindings();
    b_.values[join_var] = join;
    deferred_.clear();
    members_ = 0;
    std::vector<NodeId> left;
    for (NodeId n : rest) {
      Bindings before = b_;
      goals_.assign(1, {root, g_.node(n).out_begin});
      root_ = 0;
      deferred_.clear();
      b_.roots.push_back(n);
      // The member's own variables stay bound when it matches: solve() stops at the first solution.
      if (match_node(root, n, 0) && conditions_hold(rule_, b_)) {
        ++members_;
      } else {
        b_ = std::move(before);
        left.push_back(n);
      }
    }
    if (members_ >= 2) sink(b_, family_.empty() ? 0 : family_[0]);
    if (members_ == 0) break;
    rest = std::move(left);
  }
  first_only_ = false;
}

Match::Match(uint32_t rule_, const Bindings& bindings_) : rule(rule_), bindings(bindings_) {
  Hasher h(rule);
  for (NodeId n : bindings.nodes) h.add(n);
  signature = h.finish().lo;
}

std::vector<int64_t> match_key(const Graph& g, const Match& m) {
  const Bindings& b = m.bindings;
  std::vector<int64_t> key;
  key.reserve(b.roots.size() + b.nodes.size() + b.values.size() + b.sequences.size());
  auto value = [&](ValueId v) { return v == kNoValue ? -1 : static_cast<int64_t>(g.position(g.producer(v))) * 64 + g.output_index(v); };
  for (NodeId n : b.roots) key.push_back(g.position(n));
  for (NodeId n : b.nodes) key.push_back(g.position(n));
  for (ValueId v : b.values) key.push_back(value(v));
  for (const auto& s : b.sequences) {
    key.push_back(static_cast<int64_t>(s.size()));
    for (ValueId v : s) key.push_back(value(v));
  }
  return key;
}

}  // namespace rlflow
