// Expressions of rules: their meaning under the bindings of a match.
#include <algorithm>
#include <cmath>

#include "expr_functions.h"
#include "rlflow/expr.h"
#include "rlflow/rule.h"

namespace rlflow {
namespace {

EVal arithmetic(int op, const EVal& a, const EVal& b) {
  if (!a.known() || !b.known()) return EVal::unknown();
  if (a.kind == EVal::kList || b.kind == EVal::kList) {
    std::vector<EVal> out;
    if (a.kind == EVal::kList && b.kind == EVal::kList) {
      if (a.l.size() != b.l.size()) return EVal::unknown();
      for (size_t k = 0; k < a.l.size(); ++k) out.push_back(arithmetic(op, a.l[k], b.l[k]));
    } else if (a.kind == EVal::kList) {
      for (const EVal& e : a.l) out.push_back(arithmetic(op, e, b));
    } else {
      for (const EVal& e : b.l) out.push_back(arithmetic(op, a, e));
    }
    return EVal::list(std::move(out));
  }
  if (!a.is_number() || !b.is_number()) return EVal::unknown();
  if (a.kind == EVal::kInt && b.kind == EVal::kInt) {
    switch (op) {
      case kAddOp: return EVal::integer(int_add(a.i, b.i));
      case kSubOp: return EVal::integer(int_sub(a.i, b.i));
      case kMulOp: return EVal::integer(int_mul(a.i, b.i));
      case kDivOp: return b.i == 0 ? EVal::unknown() : EVal::integer(int_div(a.i, b.i));
      default: return b.i == 0 ? EVal::unknown() : EVal::integer(int_mod(a.i, b.i));
    }
  }
  if ((a.kind == EVal::kInt && !is_plain(a.i)) || (b.kind == EVal::kInt && !is_plain(b.i))) return EVal::unknown();
  double x = a.number(), y = b.number();
  switch (op) {
    case kAddOp: return EVal::real(x + y);
    case kSubOp: return EVal::real(x - y);
    case kMulOp: return EVal::real(x * y);
    case kDivOp: return y == 0 ? EVal::unknown() : EVal::real(x / y);
    default: return EVal::unknown();
  }
}

// An order relation between numbers; with lists it holds when it holds for every element (of lists of one length).
Tri ordered(const EVal& a, const EVal& b, Tri (*relation)(const EVal&, const EVal&)) {
  const bool left = a.kind == EVal::kList, right = b.kind == EVal::kList;
  if (!left && !right) return a.is_number() && b.is_number() ? relation(a, b) : Tri::kMaybe;
  if (left && right && a.l.size() != b.l.size()) return Tri::kFalse;
  if ((!left && !a.known()) || (!right && !b.known())) return Tri::kMaybe;
  Tri t = Tri::kTrue;
  for (size_t k = 0; k < (left ? a : b).l.size(); ++k) t = tri_and(t, ordered(left ? a.l[k] : a, right ? b.l[k] : b, relation));
  return t;
}

Tri number_less(const EVal& a, const EVal& b) {
  if (a.kind == EVal::kInt && b.kind == EVal::kInt) return int_lt(a.i, b.i);
  if ((a.kind == EVal::kInt && !is_plain(a.i)) || (b.kind == EVal::kInt && !is_plain(b.i))) return Tri::kMaybe;
  return a.number() < b.number() ? Tri::kTrue : Tri::kFalse;
}
Tri number_at_most(const EVal& a, const EVal& b) { return tri_not(number_less(b, a)); }

Tri less(const EVal& a, const EVal& b) { return ordered(a, b, number_less); }

EVal contains(const EVal& item, const EVal& list) {
  if (!item.known() || list.kind != EVal::kList) return EVal::unknown();
  Tri t = Tri::kFalse;
  for (const EVal& e : list.l) t = tri_or(t, eval_equal(e, item));
  return EVal::tri(t);
}

EVal compare(int op, const EVal& a, const EVal& b) {
  switch (op) {
    case kEq: return EVal::tri(eval_equal(a, b));
    case kNe: return EVal::tri(tri_not(eval_equal(a, b)));
    case kLt: return EVal::tri(less(a, b));
    case kGt: return EVal::tri(less(b, a));
    case kLe: return EVal::tri(ordered(a, b, number_at_most));
    default: return EVal::tri(ordered(b, a, number_at_most));
  }
}

// ---- of one value

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
      if (s.i != kUnknown && s.i >= 0 && s.i < static_cast<Int>(seq.size())) return {seq[s.i]};
      return seq;
    }
    case Expr::kRoot:
      if (e.ref >= static_cast<int>(s.bindings->roots.size())) throw Error(ErrorKind::kRule, "there is no root $" + std::to_string(e.ref));
      return {s.graph->node(s.bindings->roots[e.ref]).out_begin};
    default: throw Error(ErrorKind::kRule, "'" + e.source + "' is not a value of the graph");
  }
}

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
  for (ValueId v : values) out.push_back(of_value(e.ref, *s.graph, v, argument));
  return EVal::list(std::move(out));
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

// ---- of ordinary expressions

const std::vector<EVal>* as_list(const EVal& v) { return v.kind == EVal::kList ? &v.l : nullptr; }

// An index into a list of length n; negative counts from the end; -1 when it is out of range or not a plain integer.
int64_t position(const EVal& v, size_t n, bool end_allowed = false) {
  if (v.kind != EVal::kInt || !is_plain(v.i)) return -1;
  Int k = v.i < 0 ? v.i + static_cast<Int>(n) : v.i;
  return k < 0 || k > static_cast<Int>(n) || (k == static_cast<Int>(n) && !end_allowed) ? -1 : k;
}

EVal fold(const std::vector<EVal>& l, int op, EVal start) {
  for (const EVal& e : l) start = arithmetic(op, start, e);
  return start;
}

EVal extreme(const std::vector<EVal>& args, bool smallest) {
  const std::vector<EVal>& items = args.size() == 1 && args[0].kind == EVal::kList ? args[0].l : args;
  if (items.empty()) return EVal::unknown();
  EVal best = items[0];
  for (const EVal& e : items) {
    Tri t = smallest ? less(e, best) : less(best, e);
    if (t == Tri::kMaybe && eval_equal(e, best) != Tri::kTrue) return EVal::unknown();
    if (t == Tri::kTrue) best = e;
  }
  return best;
}

EVal permute(const std::vector<EVal>& p, const std::vector<EVal>& q) {
  std::vector<EVal> out;
  for (const EVal& k : q) {
    int64_t at = position(k, p.size());
    if (at < 0) return EVal::unknown();
    out.push_back(p[at]);
  }
  return EVal::list(std::move(out));
}

EVal inverse(const std::vector<EVal>& p) {
  std::vector<EVal> out(p.size());
  for (size_t k = 0; k < p.size(); ++k) {
    int64_t at = position(p[k], p.size());
    if (at < 0) return EVal::unknown();
    out[at] = EVal::integer(static_cast<Int>(k));
  }
  return EVal::list(std::move(out));
}

EVal perm_is_swap(const std::vector<EVal>& p) {
  size_t n = p.size();
  if (n < 2) return EVal::boolean(false);
  for (size_t k = 0; k < n; ++k) {
    Int want = k == n - 2 ? static_cast<Int>(n - 1) : k == n - 1 ? static_cast<Int>(n - 2) : static_cast<Int>(k);
    if (p[k].kind != EVal::kInt || p[k].i != want) return EVal::boolean(false);
  }
  return EVal::boolean(true);
}

EVal broadcast_shapes(const std::vector<EVal>& args) {
  std::vector<EVal> out;
  for (const EVal& a : args) {
    if (a.kind != EVal::kList) return EVal::unknown();
    if (a.l.size() > out.size()) out.insert(out.begin(), a.l.size() - out.size(), EVal::integer(1));
    size_t shift = out.size() - a.l.size();
    for (size_t k = 0; k < a.l.size(); ++k) {
      EVal& x = out[shift + k];
      const EVal& y = a.l[k];
      if (eval_equal(x, y) == Tri::kTrue || eval_equal(y, EVal::integer(1)) == Tri::kTrue) continue;
      if (eval_equal(x, EVal::integer(1)) == Tri::kTrue) x = y;
      else x = EVal::unknown();
    }
  }
  return EVal::list(std::move(out));
}

EVal rest_attribute(const Expr& e, const EvalScope& s) {
  if (e.args[0]->kind != Expr::kRest && e.args[0]->kind != Expr::kOpVar)
    throw Error(ErrorKind::kRule, "attr() and has_attr() look into a ..?rest or ?f variable");
  AttrId id = e.args[0]->kind == Expr::kRest ? s.bindings->rests[e.args[0]->ref].attrs : s.bindings->ops[e.args[0]->ref].attrs;
  EVal name = evaluate(*e.args[1], s);
  const AttrValue* v = attrs_of(id).find(name.s);
  if (e.ref == kHasAttr) return EVal::boolean(v != nullptr);
  if (v) return EVal::from_attr(*v);
  return e.args.size() > 2 ? evaluate(*e.args[2], s) : EVal::unknown();
}

EVal list_function(int fn, std::vector<EVal>& a) {
  const std::vector<EVal>* l = a.empty() ? nullptr : as_list(a[0]);
  auto need = [&](size_t k) { return k < a.size() && a[k].kind == EVal::kList; };
  switch (fn) {
    case kKnown: return EVal::boolean(a[0].known() && (!l || std::all_of(l->begin(), l->end(), [](const EVal& e) { return e.known(); })));
    case kCat: {
      std::vector<EVal> out;
      for (const EVal& e : a) {
        if (e.kind != EVal::kList) return EVal::unknown();
        out.insert(out.end(), e.l.begin(), e.l.end());
      }
      return EVal::list(std::move(out));
    }
    case kMin: return extreme(a, true);
    case kMax: return extreme(a, false);
    case kBroadcast: return broadcast_shapes(a);
    case kAbs:
      if (a[0].kind == EVal::kInt && is_plain(a[0].i)) return EVal::integer(std::llabs(a[0].i));
      return a[0].kind == EVal::kFloat ? EVal::real(std::fabs(a[0].f)) : EVal::unknown();
    case kSqrt: return a[0].is_number() && a[0].number() >= 0 ? EVal::real(std::sqrt(a[0].number())) : EVal::unknown();
    case kFloatOf: return a[0].is_number() && (a[0].kind == EVal::kFloat || is_plain(a[0].i)) ? EVal::real(a[0].number()) : EVal::unknown();
    case kIntOf:
      if (a[0].kind == EVal::kInt) return a[0];
      return a[0].kind == EVal::kFloat && a[0].f == std::floor(a[0].f) && std::fabs(a[0].f) < 1e15 ? EVal::integer(static_cast<Int>(a[0].f))
                                                                                                   : EVal::unknown();
    case kIsConstInt: return EVal::boolean(a[0].kind == EVal::kInt && is_plain(a[0].i));
    case kIota: {
      if (a[0].kind != EVal::kInt || !is_plain(a[0].i) || a[0].i < 0 || a[0].i > 4096) return EVal::unknown();
      std::vector<EVal> out;
      for (Int k = 0; k < a[0].i; ++k) out.push_back(EVal::integer(k));
      return EVal::list(std::move(out));
    }
    case kFill:
      if (a[0].kind != EVal::kInt || !is_plain(a[0].i) || a[0].i < 0 || a[0].i > 4096) return EVal::unknown();
      return EVal::list(std::vector<EVal>(static_cast<size_t>(a[0].i), a[1]));
    default: break;
  }
  if (!l) return EVal::unknown();
  const Int n = static_cast<Int>(l->size());
  switch (fn) {
    case kLen: return EVal::integer(n);
    case kSum: return fold(*l, kAddOp, EVal::integer(0));
    case kProd: return fold(*l, kMulOp, EVal::integer(1));
    case kSet:
    case kErase: {
      int64_t at = position(a[1], l->size());
      if (at < 0) return EVal::unknown();
      std::vector<EVal> out = *l;
      if (fn == kErase) out.erase(out.begin() + at);
      else out[at] = a[2];
      return EVal::list(std::move(out));
    }
    case kInsert: {
      int64_t at = position(a[1], l->size(), true);
      if (at < 0) return EVal::unknown();
      std::vector<EVal> out = *l;
      out.insert(out.begin() + at, a[2]);
      return EVal::list(std::move(out));
    }
    case kCompose: return need(1) ? permute(*l, a[1].l) : EVal::unknown();
    case kSelect: return need(1) ? permute(*l, a[1].l) : EVal::unknown();
    case kInverse: return inverse(*l);
    case kPermIsSwap: return perm_is_swap(*l);
    case kIndexOf: {
      for (size_t k = 0; k < l->size(); ++k) {
        Tri t = eval_equal((*l)[k], a[1]);
        if (t == Tri::kMaybe) return EVal::unknown();
        if (t == Tri::kTrue) return EVal::integer(static_cast<Int>(k));
      }
      return EVal::integer(-1);
    }
    case kStarts: {
      std::vector<EVal> out;
      EVal sum = EVal::integer(0);
      for (const EVal& e : *l) {
        out.push_back(sum);
        sum = arithmetic(kAddOp, sum, e);
      }
      return EVal::list(std::move(out));
    }
    case kAllEqual: {
      Tri t = Tri::kTrue;
      for (const EVal& e : *l) t = tri_and(t, eval_equal((*l)[0], e));
      return EVal::tri(t);
    }
    case kAll:
    case kAny: {
      Tri t = fn == kAll ? Tri::kTrue : Tri::kFalse;
      for (const EVal& e : *l) t = fn == kAll ? tri_and(t, e.truth()) : tri_or(t, e.truth());
      return EVal::tri(t);
    }
    case kSorted: {
      for (const EVal& e : *l)
        if (e.kind != EVal::kInt || !is_plain(e.i)) return EVal::unknown();
      std::vector<EVal> out = *l;
      std::stable_sort(out.begin(), out.end(), [](const EVal& x, const EVal& y) { return x.i < y.i; });
      return EVal::list(std::move(out));
    }
    case kRev: return EVal::list(std::vector<EVal>(l->rbegin(), l->rend()));
    case kDrop: {
      if (!need(1)) return EVal::unknown();
      std::vector<EVal> out;
      for (size_t k = 0; k < l->size(); ++k) {
        EVal in = contains(EVal::integer(static_cast<Int>(k)), a[1]);
        if (!in.known()) return EVal::unknown();
        if (!in.b) out.push_back((*l)[k]);
      }
      return EVal::list(std::move(out));
    }
    case kFlat: {
      std::vector<EVal> out;
      for (const EVal& e : *l) {
        if (e.kind == EVal::kList) out.insert(out.end(), e.l.begin(), e.l.end());
        else out.push_back(e);
      }
      return EVal::list(std::move(out));
    }
    default: return EVal::unknown();
  }
}

EVal call(const Expr& e, const EvalScope& s) {
  if (e.ref < 100) return value_function(e, s);
  if (e.ref <= kDims) return several_values(e, s);
  if (e.ref == kAttrOf || e.ref == kHasAttr) return rest_attribute(e, s);
  std::vector<EVal> args;
  args.reserve(e.args.size());
  for (const auto& a : e.args) {
    if (e.ref == kLen && a->kind == Expr::kSeq) return EVal::integer(static_cast<Int>(s.bindings->sequences[a->ref].size()));
    args.push_back(evaluate(*a, s));
  }
  return list_function(e.ref, args);
}

EVal binary(const Expr& e, const EvalScope& s) {
  EVal a = evaluate(*e.args[0], s);
  if (e.ref == kAnd || e.ref == kOr) {
    Tri x = a.truth();
    if (e.ref == kAnd && x == Tri::kFalse) return EVal::boolean(false);
    if (e.ref == kOr && x == Tri::kTrue) return EVal::boolean(true);
    Tri y = evaluate(*e.args[1], s).truth();
    return EVal::tri(e.ref == kAnd ? tri_and(x, y) : tri_or(x, y));
  }
  EVal b = evaluate(*e.args[1], s);
  if (e.ref == kIn) return contains(a, b);
  if (e.ref >= kEq) return compare(e.ref, a, b);
  return arithmetic(e.ref, a, b);
}

EVal slice(const Expr& e, const EvalScope& s) {
  EVal list = evaluate(*e.args[0], s);
  if (list.kind != EVal::kList) return EVal::unknown();
  size_t n = list.l.size();
  auto bound = [&](const EVal& v) -> int64_t {
    if (v.kind != EVal::kInt || !is_plain(v.i)) return -1;
    Int k = v.i < 0 ? v.i + static_cast<Int>(n) : v.i;
    return std::clamp<Int>(k, 0, static_cast<Int>(n));
  };
  int64_t lo = bound(evaluate(*e.args[1], s));
  int64_t hi = e.args.size() > 2 ? bound(evaluate(*e.args[2], s)) : static_cast<int64_t>(n);
  if (lo < 0 || hi < 0) return EVal::unknown();
  if (hi < lo) hi = lo;
  return EVal::list(std::vector<EVal>(list.l.begin() + lo, list.l.begin() + hi));
}

}  // namespace

EVal evaluate(const Expr& e, const EvalScope& s) {
  switch (e.kind) {
    case Expr::kConst: return e.value;
    case Expr::kAttr: {
      const AttrValue* v = s.bindings->attrs[e.ref];
      return v ? EVal::from_attr(*v) : EVal::unknown();
    }
    case Expr::kLet: return s.lets ? (*s.lets)[e.ref] : EVal::unknown();
    case Expr::kI: return EVal::integer(s.i);
    case Expr::kN: return EVal::integer(s.n);
    case Expr::kCall: return call(e, s);
    case Expr::kList: {
      std::vector<EVal> out;
      for (const auto& a : e.args) out.push_back(evaluate(*a, s));
      return EVal::list(std::move(out));
    }
    case Expr::kIndex: {
      EVal list = evaluate(*e.args[0], s), k = evaluate(*e.args[1], s);
      if (list.kind != EVal::kList) return EVal::unknown();
      int64_t at = position(k, list.l.size());
      return at < 0 ? EVal::unknown() : list.l[at];
    }
    case Expr::kSlice: return slice(e, s);
    case Expr::kUnary: {
      EVal a = evaluate(*e.args[0], s);
      if (e.ref == kNot) return EVal::tri(tri_not(a.truth()));
      return arithmetic(kSubOp, EVal::integer(0), a);
    }
    case Expr::kBinary: return binary(e, s);
    case Expr::kIf: {
      Tri t = evaluate(*e.args[0], s).truth();
      if (t == Tri::kMaybe) return EVal::unknown();
      return evaluate(*e.args[t == Tri::kTrue ? 1 : 2], s);
    }
    default: throw Error(ErrorKind::kRule, "a variable of the graph stands where a number was expected");
  }
}

}  // namespace rlflow
