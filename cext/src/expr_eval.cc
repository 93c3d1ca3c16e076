// Expressions of rules: their meaning under the bindings of a match.
#include <algorithm>

#include "expr_meaning.h"
#include "rlflow/rule.h"

namespace rlflow {
namespace {

EVal rest_attribute(const Expr& e, const EvalScope& s) {
  if (e.args[0]->kind != Expr::kRest && e.args[0]->kind != Expr::kOpVar)
    throw Error(ErrorKind::kRule, "attr() and has_attr() look into a ..?rest or ?f variable");
  AttrId id = e.args[0]->kind == Expr::kRest ? s.bindings->rests[e.args[0]->ref].attrs : s.bindings->ops[e.args[0]->ref].attrs;
  EVal name = evaluate(*e.args[1], s);
  const AttrValue* v = attrs_of(id).find(name.s);
  if (e.ref == kHasAttr) return EVal::boolean(v != nullptr);
  if (v) return counts_from_the_end(name.s, *v) ? EVal::unknown() : EVal::from_attr(*v);
  return e.args.size() > 2 ? evaluate(*e.args[2], s) : EVal::unknown();
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
      out.reserve(e.args.size());
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
