// Functions of values of the graph: types, constants, readers.
#include <algorithm>
#include <cmath>

#include "expr_meaning.h"
#include "rlflow/rule.h"

namespace rlflow {
namespace {

EVal inline_values(const ConstInfo& c) {
  if (!c.inline_values) return EVal::unknown();
  std::vector<EVal> out;
  for (Int v : c.ints) out.push_back(EVal::integer(v));
  for (double v : c.floats) out.push_back(EVal::real(v));
  return EVal::list(std::move(out));
}

struct Range {
  bool known = false;
  double min = 0, max = 0;
  bool uniform = false, finite = false;
};
Range range_of(const ConstInfo& c) {
  Range r;
  if (c.inline_values) {
    r.finite = true;
    bool first = true;
    auto see = [&](double v) {
      if (!std::isfinite(v)) r.finite = false;
      r.min = first ? v : std::min(r.min, v);
      r.max = first ? v : std::max(r.max, v);
      first = false;
    };
    for (Int v : c.ints) see(static_cast<double>(v));
    for (double v : c.floats) see(v);
    r.known = !first && r.finite;
    r.uniform = r.known && r.min == r.max;
  } else if (c.has_facts) {
    r = {true, c.min, c.max, c.uniform, c.finite};
  }
  return r;
}

EVal of_value(int fn, const Graph& g, ValueId v, const EVal& argument) {
  const TensorType& t = type_of(g.type(v));
  switch (fn) {
    case kRank: return t.rank < 0 ? EVal::unknown() : EVal::integer(t.rank);
    case kShape: return t.rank < 0 ? EVal::unknown() : EVal::ints(t.dims);
    case kDim: {
      if (t.rank < 0 || argument.kind != EVal::kInt) return EVal::unknown();
      Int k = argument.i < 0 ? argument.i + t.rank : argument.i;
      return k < 0 || k >= t.rank ? EVal::unknown() : EVal::integer(t.dims[k]);
    }
    case kDtype: return t.dtype == kUndefined ? EVal::unknown() : EVal::text(std::string(dtype_name(t.dtype)));
    case kIsFloat: return t.dtype == kUndefined ? EVal::unknown() : EVal::boolean(dtype_is_float(t.dtype));
    case kNumel: {
      if (t.rank < 0) return EVal::unknown();
      Int n = 1;
      for (Int d : t.dims) n = int_mul(n, d);
      return EVal::integer(n);
    }
    case kIsScalar: {
      if (t.rank < 0) return EVal::unknown();
      Tri one = Tri::kTrue;
      for (Int d : t.dims) one = tri_and(one, int_eq(d, 1));
      return EVal::tri(one);
    }
    case kConstant: return EVal::boolean(g.is_const(v));
    case kUsers: return EVal::integer(static_cast<Int>(g.users(v).size()) + g.output_uses(v));
    case kDataOf: {
      const IntVec* d = g.data(v);
      return d ? EVal::ints(*d) : EVal::unknown();
    }
    default: break;
  }
  const ConstInfo* c = g.constant(v);
  if (!c) return EVal::unknown();
  Range r = range_of(*c);
  switch (fn) {
    case kValueOf: return inline_values(*c);
    case kUniform: return r.known || c->inline_values ? EVal::boolean(r.uniform) : EVal::unknown();
    case kFinite: return r.known || c->inline_values ? EVal::boolean(r.finite) : EVal::unknown();
    case kMinOf: return r.known ? EVal::real(r.min) : EVal::unknown();
    case kMaxOf: return r.known ? EVal::real(r.max) : EVal::unknown();
    case kScalar:
      if (!r.known || !r.uniform) return EVal::unknown();
      return c->inline_values && !c->ints.empty() ? EVal::integer(c->ints[0]) : EVal::real(r.min);
    default: return EVal::unknown();
  }
}

bool is_predicate(int fn) { return fn == kConstant || fn == kUniform || fn == kFinite || fn == kIsFloat || fn == kIsScalar; }

std::vector<ValueId> values_of(const Expr& e, const EvalScope& s) {
  switch (e.kind) {
    case Expr::kValue: return {s.bindings->values[e.ref]};
    case Expr::kSeq: {
      const auto& seq = s.bindings->sequences[e.ref];
      if (s.i >= 0 && s.i < static_cast<Int>(seq.size())) return {seq[s.i]};
      return seq;
    }
    case Expr::kRoot:
      if (e.ref >= static_cast<int>(s.bindings->roots.size())) throw Error(ErrorKind::kRule, "there is no root $" + std::to_string(e.ref));
      return {s.graph->node(s.bindings->roots[e.ref]).out_begin};
    default: throw Error(ErrorKind::kRule, "'" + e.source + "' is not a value of the graph");
  }
}

EVal independent(const EvalScope& s, const std::vector<ValueId>& values) {
  for (size_t a = 0; a < values.size(); ++a)
    for (size_t b = a + 1; b < values.size(); ++b) {
      NodeId x = s.graph->producer(values[a]), y = s.graph->producer(values[b]);
      if (x == y) continue;
      if (s.graph->depends_on(x, y) || s.graph->depends_on(y, x)) return EVal::boolean(false);
    }
  // No value may depend on a root that is to be replaced together with it.
  for (ValueId v : values)
    for (NodeId root : s.bindings->roots)
      if (s.graph->depends_on(s.graph->producer(v), root)) return EVal::boolean(false);
  return EVal::boolean(true);
}

}  // namespace

EVal value_function(const Expr& e, const EvalScope& s) {
  EVal argument = e.args.size() > 1 ? evaluate(*e.args[1], s) : EVal{};
  std::vector<ValueId> values = values_of(*e.args[0], s);
  bool one = e.args[0]->kind != Expr::kSeq || s.i != kUnknown;
  if (one) return values[0] == kNoValue ? EVal::unknown() : of_value(e.ref, *s.graph, values[0], argument);
  if (is_predicate(e.ref)) {
    Tri t = Tri::kTrue;
    for (ValueId v : values) t = tri_and(t, of_value(e.ref, *s.graph, v, argument).truth());
    return EVal::tri(t);
  }
  std::vector<EVal> out;
  out.reserve(values.size());
  for (ValueId v : values) out.push_back(of_value(e.ref, *s.graph, v, argument));
  return EVal::list(std::move(out));
}

EVal several_values(const Expr& e, const EvalScope& s) {
  EvalScope whole = s;
  whole.i = kUnknown;
  std::vector<ValueId> values;
  for (const auto& a : e.args) {
    if (e.ref == kDims && &a != &e.args[0]) break;
    for (ValueId v : values_of(*a, whole)) values.push_back(v);
  }
  const Graph& g = *s.graph;
  if (e.ref == kIndependent) return independent(s, values);
  if (e.ref == kDims) {
    EVal k = evaluate(*e.args[1], s);
    std::vector<EVal> out;
    out.reserve(values.size());
    for (ValueId v : values) out.push_back(of_value(kDim, g, v, k));
    return EVal::list(std::move(out));
  }
  Tri t = Tri::kTrue;
  for (size_t k = 1; k < values.size(); ++k) {
    const TensorType &a = type_of(g.type(values[0])), &b = type_of(g.type(values[k]));
    if (a.rank < 0 || b.rank < 0) return EVal::unknown();
    t = tri_and(t, eval_equal(EVal::ints(a.dims), EVal::ints(b.dims)));
    if (e.ref == kSameType) t = tri_and(t, a.dtype == b.dtype && a.dtype != kUndefined ? Tri::kTrue : Tri::kFalse);
  }
  return EVal::tri(t);
}

}  // namespace rlflow
