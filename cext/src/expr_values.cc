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

bool has_name(const Graph& g, NodeId n, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), g.op(n).name) != names.end();
}

bool single_precision(double v) { return static_cast<double>(static_cast<float>(v)) == v; }

// A quotient of constants that is one number, where single precision holds it exactly.
Range quotient_of(const Range& above, const Range& below) {
  bool uniform = above.known && below.known && above.uniform && below.uniform && below.min != 0;
  double value = uniform ? above.min / below.min : 0;
  uniform = uniform && single_precision(value);
  return {uniform, value, value, uniform, uniform};
}

// Of a constant, and of one that is filled, moved, divided, or cast from one to a float type that holds its elements,
// in so many steps at most.
Range known_range(const Graph& g, ValueId v, int steps = 16) {
  if (!g.is_const(v) || steps == 0) return {};
  if (const ConstInfo* c = g.constant(v)) return range_of(*c);
  NodeId n = g.producer(v);
  bool is_float = type_of(g.type(v)).dtype == kF32 || type_of(g.type(v)).dtype == kF64;
  if (has_name(g, n, {"ConstantOfShape"})) {
    double value = g.attrs(n).get_float("value");
    bool finite = std::isfinite(value);
    return {finite, value, value, finite, finite};
  }
  if (has_name(g, n, {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Transpose"})) return known_range(g, g.inputs(n)[0], steps - 1);
  if (!is_float) return {};
  if (has_name(g, n, {"Div"})) return quotient_of(known_range(g, g.inputs(n)[0], steps / 2), known_range(g, g.inputs(n)[1], steps / 2));
  if (has_name(g, n, {"Reciprocal"})) return quotient_of({true, 1, 1, true, true}, known_range(g, g.inputs(n)[0], steps - 1));
  if (!has_name(g, n, {"Cast"})) return {};
  Range r = known_range(g, g.inputs(n)[0], steps - 1);
  r.known = r.known && single_precision(r.min) && single_precision(r.max);
  r.uniform = r.uniform && r.known;
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
  Range r = known_range(g, v);
  bool told = r.known || (c && c->inline_values);
  switch (fn) {
    case kValueOf: return c ? inline_values(*c) : EVal::unknown();
    case kUniform: return told ? EVal::boolean(r.uniform) : EVal::unknown();
    case kFinite: return told ? EVal::boolean(r.finite) : EVal::unknown();
    case kMinOf: return r.known ? EVal::real(r.min) : EVal::unknown();
    case kMaxOf: return r.known ? EVal::real(r.max) : EVal::unknown();
    case kScalar:
      if (!r.known || !r.uniform) return EVal::unknown();
      return c && c->inline_values && !c->ints.empty() ? EVal::integer(c->ints[0]) : EVal::real(r.min);
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
