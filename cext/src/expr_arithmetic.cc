// Operators of expressions: sums, products, comparisons.
#include "expr_meaning.h"

namespace rlflow {

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

namespace {

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

}  // namespace

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

}  // namespace rlflow
