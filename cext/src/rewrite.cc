#include "rlflow/rewrite.h"

#include <algorithm>

namespace rlflow {
namespace {

// A rule that unfolds without end is a mistake in the rule; a target never needs more nodes than this.
constexpr int kTargetLimit = 4096;

// Certain contradictions only: an unknown dim agrees with everything.
bool types_agree(const TensorType& a, const TensorType& b) {
  if (a.dtype != kUndefined && b.dtype != kUndefined && a.dtype != b.dtype) return false;
  if (a.rank < 0 || b.rank < 0) return true;
  if (a.rank != b.rank) return false;
  for (int k = 0; k < a.rank; ++k)
    if (int_eq(a.dims[k], b.dims[k]) == Tri::kFalse) return false;
  return true;
}

// What is known of a value from both of its producers.
TypeId merged_type(TypeId a, TypeId b) {
  const TensorType &x = type_of(a), &y = type_of(b);
  if (x == y || x.rank < 0) return x.rank < 0 && y.rank >= 0 ? b : a;
  TensorType t = x;
  for (int k = 0; k < t.rank; ++k)
    if (t.dims[k] == kUnknown && y.rank >= 0) t.dims[k] = y.dims[k];
  return intern_type(t);
}

bool plain_data(const InferOutput& o) {
  return o.has_data && std::all_of(o.data.begin(), o.data.end(), [](Int x) { return is_plain(x) && std::llabs(x) < (Int{1} << 53); });
}

}  // namespace

// Where a target term is instantiated: lets already computed, and the element a starred term is at.
struct ChildGraph::Scope {
  const Bindings& b;
  const std::vector<EVal>& lets;
  Int i = kUnknown, n = kUnknown;
  EvalScope eval(const Graph& parent) const { return {&parent, &b, &lets, i, n}; }
};

bool ChildGraph::refuse(std::string why) {
  reason_ = std::move(why);
  return false;
}

bool ChildGraph::build(const GraphPtr& parent, const Rule& rule, const Bindings& b) {
  start(parent);
  rule_ = &rule;
  try {
    std::vector<EVal> lets;
    EvalScope scope{parent.get(), &b, &lets, kUnknown, kUnknown};
    for (const LetExpr& l : rule.let_exprs()) lets.push_back(evaluate(*l.expr, scope));
    Scope s{b, lets, kUnknown, kUnknown};
    std::vector<std::vector<ValueId>> targets;
    for (int t : rule.target_roots()) targets.push_back(target_values(t, s));
    if (!pair_roots(b, targets)) return false;
  } catch (const Error& e) {
    return refuse(e.what());
  }
  if (replaced_.empty()) return refuse("the target is the source: nothing changes");
  if (!exchange()) return refuse("what takes the place of a root depends on it: that would make a cycle");
  for (NodeId n = first_new_; n < g_.nodes_.size(); ++n)
    if (g_.alive(n)) {
      note(n);
      for (ValueId v : g_.inputs(n))
        if (v != kNoValue) note(g_.value_node_[v]);
    }
  if (g_.digest_ == parent->digest_) return refuse("the child is the same graph");
  return true;
}

// ---- the target

std::vector<ValueId> ChildGraph::target_values(int index, Scope& s) {
  const Term& t = rule_->target(index);
  if (t.star) {
    int n = star_length(index, s);
    if (n < 0) n = static_cast<int>(s.b.roots.size() > 1 ? s.b.roots.size() : parent_->node(s.b.roots[0]).out_count);
    std::vector<ValueId> out;
    for (int i = 0; i < n; ++i) {
      Scope inner{s.b, s.lets, i, n};
      out.push_back(target_value(index, inner));
    }
    return out;
  }
  if (t.kind == Term::kSeqVar && s.i == kUnknown) return s.b.sequences[t.ref];
  if (t.projection == Term::kAll && s.i == kUnknown) return node_outputs(index, s);
  return {target_value(index, s)};
}

// How many copies a starred term makes: the length of a sequence in it, or of an operator's outputs; -1 if nothing says.
int ChildGraph::star_length(int index, const Scope& s) const {
  const Term& t = rule_->target(index);
  if (t.kind == Term::kSeqVar) return static_cast<int>(s.b.sequences[t.ref].size());
  for (int c : t.children) {
    int n = star_length(c, s);
    if (n >= 0) return n;
  }
  std::vector<int> refs;
  for (const AttrPattern& a : t.attrs)
    if (a.expr) expr_symbols(*a.expr, Expr::kSeq, refs);
  return refs.empty() ? -1 : static_cast<int>(s.b.sequences[refs[0]].size());
}

ValueId ChildGraph::target_value(int index, Scope& s) {
  const Term& t = rule_->target(index);
  switch (t.kind) {
    case Term::kVar: return s.b.values[t.ref];
    case Term::kAbsent: return kNoValue;
    case Term::kSeqVar: {
      const auto& seq = s.b.sequences[t.ref];
      if (s.i == kUnknown) throw Error(ErrorKind::kRule, "a sequence stands where one value is wanted");
      if (s.i >= static_cast<Int>(seq.size())) throw Error(ErrorKind::kType, "two sequences of a starred term differ in length");
      return seq[s.i];
    }
    default: break;
  }
  std::vector<ValueId> outs = node_outputs(index, s);
  switch (t.projection) {
    case Term::kFirst: return outs[0];
    case Term::kIndexed:
      if (t.output >= static_cast<int>(outs.size())) throw Error(ErrorKind::kType, "the target picks an output that its node does not have");
      return outs[t.output];
    case Term::kBound: {
      Int k = std::get<Int>(*s.b.attrs[t.output]);
      if (k < 0 || k >= static_cast<Int>(outs.size())) throw Error(ErrorKind::kType, "the target picks an output that its node does not have");
      return outs[k];
    }
    case Term::kAll: break;
  }
  if (s.i == kUnknown || s.i >= static_cast<Int>(outs.size())) throw Error(ErrorKind::kType, "':*' picks an output that its node does not have");
  return outs[s.i];
}

std::vector<ValueId> ChildGraph::children(const Term& t, Scope& s) {
  std::vector<ValueId> in;
  for (int c : t.children) {
    const Term& child = rule_->target(c);
    bool several = child.star || (s.i == kUnknown && (child.kind == Term::kSeqVar || child.projection == Term::kAll));
    if (!several) {
      in.push_back(target_value(c, s));
      continue;
    }
    auto values = target_values(c, s);
    in.insert(in.end(), values.begin(), values.end());
  }
  return in;
}

namespace {
double literal_number(const EVal& v, const char* otherwise) {
  if (!v.is_number() || (v.kind == EVal::kInt && !is_plain(v.i))) throw Error(ErrorKind::kType, otherwise);
  return v.number();
}
}  // namespace

ValueId ChildGraph::literal(const Term& t, Scope& s) {
  constexpr const char* kNotKnown = "a literal of the target is not known here";
  EVal v = evaluate(*t.literal, s.eval(*parent_));
  if (!v.known()) throw Error(ErrorKind::kType, kNotKnown);
  int dtype = kI64;
  if (t.kind == Term::kLiteral) {
    ValueId like = t.like_sequence ? s.b.sequences[t.like][s.i == kUnknown ? 0 : s.i] : s.b.values[t.like];
    dtype = type_of(parent_->type(like)).dtype;
  }
  std::vector<double> values;
  IntVec dims;
  if (v.kind == EVal::kList) {
    dims.push_back(static_cast<Int>(v.l.size()));
    for (const EVal& e : v.l) values.push_back(literal_number(e, kNotKnown));
  } else {
    values.push_back(literal_number(v, "a literal of the target is not a known number"));
  }
  return make_constant(inline_const(dtype, dims, values));
}

void ChildGraph::set_attributes(const Term& t, OpId op, const Scope& s, AttrSet& attrs) const {
  if (t.rest >= 0) {
    const RestBinding& r = s.b.rests[t.rest];
    for (const auto& [name, value] : attrs_of(r.attrs).items)
      if (std::find(r.excluded->begin(), r.excluded->end(), name) == r.excluded->end()) attrs.set(name, value);
  }
  for (const AttrPattern& a : t.attrs) {
    EVal v = evaluate(*a.expr, s.eval(*parent_));
    try {
      attrs.set(a.name, v.to_attr());
    } catch (const Error&) {
      throw Error(ErrorKind::kType, "the attribute " + a.name + "=" + a.expr->source + " of the target's " + op_info(op).name + " is not known here");
    }
  }
}

std::vector<ValueId> ChildGraph::node_outputs(int index, Scope& s) {
  if (++guard_ > kTargetLimit) throw Error(ErrorKind::kRule, "the target has more than " + std::to_string(kTargetLimit) + " nodes");
  const Term& t = rule_->target(index);
  if (t.kind == Term::kVar || t.kind == Term::kSeqVar) return {target_value(index, s)};
  if (t.kind == Term::kLet) {  // a let that picks an output stands for that output; else its user may pick
    const int let = rule_->let_term(t.ref);
    if (rule_->target(let).projection != Term::kFirst) return {target_value(let, s)};
    return node_outputs(let, s);
  }
  if (t.kind == Term::kLiteral || t.kind == Term::kInts) return {literal(t, s)};
  std::vector<ValueId> in = children(t, s);
  OpId op;
  AttrSet attrs;
  if (t.op_var >= 0) {
    const OpBinding& f = s.b.ops[t.op_var];
    op = f.op;
    if (t.op_carries) {
      attrs = attrs_of(f.attrs);
      in.insert(in.end(), f.extra.begin(), f.extra.end());
    }
  } else {
    op = t.ops.members[0];
  }
  set_attributes(t, op, s, attrs);
  ValueId first = make_node(op, std::move(attrs), in, 0);
  int count = g_.nodes_[g_.value_node_[first]].out_count;
  if (op_info(op).name == "Identity") count = 1;
  std::vector<ValueId> outs;
  outs.reserve(static_cast<size_t>(count));
  for (int k = 0; k < count; ++k) outs.push_back(first + k);
  return outs;
}

ValueId ChildGraph::make_node(OpId op, AttrSet attrs, std::span<const ValueId> inputs, int outputs) {
  const OpInfo& row = op_info(op);
  std::vector<ValueId> in(inputs.begin(), inputs.end());
  while (!in.empty() && in.back() == kNoValue) in.pop_back();
  int given = static_cast<int>(in.size());
  if (given < row.min_inputs || (row.max_inputs >= 0 && given > row.max_inputs))
    throw Error(ErrorKind::kType, row.name + " of the target would have " + std::to_string(given) + " operands");
  if (row.name == "Identity") return in[0];
  std::vector<InferInput> facts(in.size());
  bool constant = row.has(kPure) && !in.empty();
  for (size_t k = 0; k < in.size(); ++k) {
    if (in[k] == kNoValue) continue;
    facts[k] = {true, g_.value_type_[in[k]], g_.data(in[k]), g_.constant(in[k])};
    constant = constant && g_.is_const(in[k]);
  }
  coerce_floats(row, attrs);
  std::vector<InferOutput> outs;
  infer(op, attrs, facts, outs, outputs);
  if (row.has(kPure) && outs.size() == 1 && plain_data(outs[0])) {
    const TensorType& t = type_of(outs[0].type);
    if ((t.dtype == kI64 || t.dtype == kI32) && (t.rank == 0 || t.rank == 1)) {
      IntVec dims;
      if (t.rank == 1) dims.push_back(static_cast<Int>(outs[0].data.size()));
      return make_constant(inline_const(t.dtype, dims, std::vector<double>(outs[0].data.begin(), outs[0].data.end())));
    }
  }
  return append(op, intern_attrs(attrs), in, outs, constant);
}

ValueId ChildGraph::make_constant(ConstId c) {
  const ConstantNode node(c);
  return append(kOpConstant, node.attrs, {}, {&node.output, 1}, true);
}

ValueId ChildGraph::append(OpId op, AttrId attrs, std::span<const ValueId> in, std::span<const InferOutput> outs, bool is_const) {
  NodeId id = static_cast<NodeId>(g_.nodes_.size());
  Node n{op,
         static_cast<uint16_t>(is_const ? kConst : 0),
         attrs,
         static_cast<uint32_t>(g_.pool_.size()),
         static_cast<uint32_t>(g_.value_type_.size()),
         static_cast<uint16_t>(in.size()),
         static_cast<uint16_t>(outs.size())};
  g_.nodes_.push_back(n);
  g_.pool_.insert(g_.pool_.end(), in.begin(), in.end());
  g_.node_digest_.emplace_back();
  Hash128 d = g_.hash_node(id);
  NodeId same = kNoNode;
  if (op_info(op).has(kPure) || op == kOpConstant) {
    same = parent_->find_node(d);
    for (NodeId k = first_new_; k < id && same == kNoNode; ++k)
      if (g_.node_digest_[k] == d) same = k;
  }
  if (same != kNoNode) {
    g_.nodes_.pop_back();
    g_.pool_.resize(n.in_begin);
    g_.node_digest_.pop_back();
    return g_.nodes_[same].out_begin;
  }
  g_.node_digest_[id] = d;
  for (const InferOutput& o : outs) {
    g_.value_node_.push_back(id);
    g_.value_type_.push_back(o.type);
    g_.value_data_.push_back(o.has_data ? intern_data(o.data) : 0);
  }
  return n.out_begin;
}

// ---- the exchange

bool ChildGraph::pair_roots(const Bindings& b, const std::vector<std::vector<ValueId>>& targets) {
  const size_t roots = b.roots.size();
  auto outputs = [&](NodeId n) { return parent_->node(n).out_count; };
  if (targets.size() == 1 && roots > 1) {  // a star group, or several roots served by one spread term
    if (targets[0].size() != roots)
      return refuse("the target gives " + std::to_string(targets[0].size()) + " values for " + std::to_string(roots) + " roots");
    for (size_t k = 0; k < roots; ++k)
      if (!replace(parent_->node(b.roots[k]).out_begin, targets[0][k])) return false;
    return true;
  }
  for (size_t k = 0; k < roots; ++k) {
    const ValueId first = parent_->node(b.roots[k]).out_begin;
    if (targets[k].size() == 1) {
      for (int extra = 1; extra < outputs(b.roots[k]); ++extra)
        if (!parent_->users(first + extra).empty() || parent_->output_uses(first + extra))
          return refuse(parent_->op(b.roots[k]).name + " has a second output in use, for which the target gives nothing");
      if (!replace(first, targets[k][0])) return false;
      continue;
    }
    if (static_cast<int>(targets[k].size()) != outputs(b.roots[k]))
      return refuse("the target gives " + std::to_string(targets[k].size()) + " values for the " + std::to_string(outputs(b.roots[k])) +
                    " outputs of " + parent_->op(b.roots[k]).name);
    for (int o = 0; o < outputs(b.roots[k]); ++o)
      if (!replace(first + o, targets[k][o])) return false;
  }
  return true;
}

bool ChildGraph::replace(ValueId from, ValueId to) {
  if (from == to) return true;
  if (to == kNoValue) return refuse("the target gives no value for a root");
  const TensorType &a = type_of(g_.value_type_[from]), &b = type_of(g_.value_type_[to]);
  if (!types_agree(a, b))
    return refuse("the target has the type " + type_text(g_.value_type_[to]) + ", the source " + type_text(g_.value_type_[from]));
  if (g_.value_node_[to] >= first_new_) {
    g_.value_type_[to] = merged_type(g_.value_type_[to], g_.value_type_[from]);
    if (!g_.value_data_[to]) g_.value_data_[to] = g_.value_data_[from];
  }
  replaced_.emplace_back(from, to);
  return true;
}

ChangeCount ChildGraph::count() const {
  ChangeCount c;
  auto edges = [](const Graph& g, NodeId n) {
    int e = 0;
    for (ValueId v : g.inputs(n)) e += v != kNoValue && !g.is_const(v);
    return e;
  };
  for (NodeId n : changed_) {
    if (n >= first_new_) {
      if (g_.alive(n) && !(g_.nodes_[n].flags & kConst)) ++c.nodes_added, c.edges_added += edges(g_, n);
    } else if (!g_.alive(n) && parent_->alive(n) && !(parent_->node(n).flags & kConst)) {
      ++c.nodes_removed;
      c.edges_removed += edges(*parent_, n);
    }
  }
  return c;
}

GraphPtr ChildGraph::materialise() {
  auto g = std::make_shared<Graph>(g_);
  g->index();
  g->hash_heads();
  g->build_digest_table();
  return g;
}

}  // namespace rlflow
