// Functions of numbers and lists.
#include <algorithm>
#include <cmath>

#include "expr_meaning.h"

namespace rlflow {

int64_t position(const EVal& v, size_t n, bool end_allowed) {
  if (v.kind != EVal::kInt || !is_plain(v.i)) return -1;
  Int k = v.i < 0 ? v.i + static_cast<Int>(n) : v.i;
  return k < 0 || k > static_cast<Int>(n) || (k == static_cast<Int>(n) && !end_allowed) ? -1 : k;
}

namespace {

using List = std::vector<EVal>;

constexpr Int kLongestList = 4096;  // that iota() and fill() make

bool plain_integer(const EVal& v) { return v.kind == EVal::kInt && is_plain(v.i); }

EVal fold(const List& l, int op, EVal start) {
  for (const EVal& e : l) start = arithmetic(op, start, e);
  return start;
}

EVal extreme(const List& args, bool smallest) {
  const List& items = args.size() == 1 && args[0].kind == EVal::kList ? args[0].l : args;
  if (items.empty()) return EVal::unknown();
  EVal best = items[0];
  for (const EVal& e : items) {
    Tri t = smallest ? less(e, best) : less(best, e);
    if (t == Tri::kMaybe && eval_equal(e, best) != Tri::kTrue) return EVal::unknown();
    if (t == Tri::kTrue) best = e;
  }
  return best;
}

EVal permute(const List& p, const List& q) {
  List out;
  for (const EVal& k : q) {
    int64_t at = position(k, p.size());
    if (at < 0) return EVal::unknown();
    out.push_back(p[at]);
  }
  return EVal::list(std::move(out));
}

EVal inverse(const List& p) {
  List out(p.size());
  for (size_t k = 0; k < p.size(); ++k) {
    int64_t at = position(p[k], p.size());
    if (at < 0) return EVal::unknown();
    out[at] = EVal::integer(static_cast<Int>(k));
  }
  return EVal::list(std::move(out));
}

EVal perm_is_swap(const List& p) {
  size_t n = p.size();
  if (n < 2) return EVal::boolean(false);
  for (size_t k = 0; k < n; ++k) {
    Int want = k == n - 2 ? static_cast<Int>(n - 1) : k == n - 1 ? static_cast<Int>(n - 2) : static_cast<Int>(k);
    if (p[k].kind != EVal::kInt || p[k].i != want) return EVal::boolean(false);
  }
  return EVal::boolean(true);
}

EVal broadcast_shapes(const List& args) {
  List out;
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

// ---- of numbers

EVal absolute(const EVal& v) {
  if (plain_integer(v)) return EVal::integer(std::llabs(v.i));
  return v.kind == EVal::kFloat ? EVal::real(std::fabs(v.f)) : EVal::unknown();
}

EVal square_root(const EVal& v) { return v.is_number() && v.number() >= 0 ? EVal::real(std::sqrt(v.number())) : EVal::unknown(); }

EVal to_float(const EVal& v) { return v.kind == EVal::kFloat || plain_integer(v) ? EVal::real(v.number()) : EVal::unknown(); }

EVal to_int(const EVal& v) {
  if (v.kind == EVal::kInt) return v;
  const bool whole = v.kind == EVal::kFloat && v.f == std::floor(v.f) && std::fabs(v.f) < 1e15;
  return whole ? EVal::integer(static_cast<Int>(v.f)) : EVal::unknown();
}

// ---- that make lists

bool list_length(const EVal& v) { return plain_integer(v) && v.i >= 0 && v.i <= kLongestList; }

EVal iota(const EVal& n) {
  if (!list_length(n)) return EVal::unknown();
  List out;
  for (Int k = 0; k < n.i; ++k) out.push_back(EVal::integer(k));
  return EVal::list(std::move(out));
}

EVal fill(const EVal& n, const EVal& v) { return list_length(n) ? EVal::list(List(static_cast<size_t>(n.i), v)) : EVal::unknown(); }

EVal concatenated(const List& lists) {
  List out;
  for (const EVal& e : lists) {
    if (e.kind != EVal::kList) return EVal::unknown();
    out.insert(out.end(), e.l.begin(), e.l.end());
  }
  return EVal::list(std::move(out));
}

bool all_known(const EVal& v) {
  return v.known() && (v.kind != EVal::kList || std::all_of(v.l.begin(), v.l.end(), [](const EVal& e) { return e.known(); }));
}

// ---- of a list

EVal with_element(const List& l, const EVal& at, const EVal& v) {
  int64_t k = position(at, l.size());
  if (k < 0) return EVal::unknown();
  List out = l;
  out[k] = v;
  return EVal::list(std::move(out));
}

EVal without_element(const List& l, const EVal& at) {
  int64_t k = position(at, l.size());
  if (k < 0) return EVal::unknown();
  List out = l;
  out.erase(out.begin() + k);
  return EVal::list(std::move(out));
}

EVal with_inserted(const List& l, const EVal& at, const EVal& v) {
  int64_t k = position(at, l.size(), true);
  if (k < 0) return EVal::unknown();
  List out = l;
  out.insert(out.begin() + k, v);
  return EVal::list(std::move(out));
}

EVal index_of(const List& l, const EVal& v) {
  for (size_t k = 0; k < l.size(); ++k) {
    Tri t = eval_equal(l[k], v);
    if (t == Tri::kMaybe) return EVal::unknown();
    if (t == Tri::kTrue) return EVal::integer(static_cast<Int>(k));
  }
  return EVal::integer(-1);
}

// Where the parts of a Split with these sizes start.
EVal starts(const List& sizes) {
  List out;
  EVal sum = EVal::integer(0);
  for (const EVal& e : sizes) {
    out.push_back(sum);
    sum = arithmetic(kAddOp, sum, e);
  }
  return EVal::list(std::move(out));
}

EVal all_equal(const List& l) {
  Tri t = Tri::kTrue;
  for (const EVal& e : l) t = tri_and(t, eval_equal(l[0], e));
  return EVal::tri(t);
}

EVal all_true(const List& l) {
  Tri t = Tri::kTrue;
  for (const EVal& e : l) t = tri_and(t, e.truth());
  return EVal::tri(t);
}

EVal any_true(const List& l) {
  Tri t = Tri::kFalse;
  for (const EVal& e : l) t = tri_or(t, e.truth());
  return EVal::tri(t);
}

EVal sorted(const List& l) {
  if (!std::all_of(l.begin(), l.end(), plain_integer)) return EVal::unknown();
  List out = l;
  std::stable_sort(out.begin(), out.end(), [](const EVal& x, const EVal& y) { return x.i < y.i; });
  return EVal::list(std::move(out));
}

// What is left without the elements at these positions.
EVal dropped(const List& l, const EVal& positions) {
  List out;
  for (size_t k = 0; k < l.size(); ++k) {
    EVal in = contains(EVal::integer(static_cast<Int>(k)), positions);
    if (!in.known()) return EVal::unknown();
    if (!in.b) out.push_back(l[k]);
  }
  return EVal::list(std::move(out));
}

EVal flattened(const List& l) {
  List out;
  for (const EVal& e : l) {
    if (e.kind == EVal::kList) out.insert(out.end(), e.l.begin(), e.l.end());
    else out.push_back(e);
  }
  return EVal::list(std::move(out));
}

EVal of_list(int fn, const List& l, const List& a) {
  const bool second = a.size() > 1 && a[1].kind == EVal::kList;
  switch (fn) {
    case kLen: return EVal::integer(static_cast<Int>(l.size()));
    case kSum: return fold(l, kAddOp, EVal::integer(0));
    case kProd: return fold(l, kMulOp, EVal::integer(1));
    case kSet: return with_element(l, a[1], a[2]);
    case kErase: return without_element(l, a[1]);
    case kInsert: return with_inserted(l, a[1], a[2]);
    case kCompose:
    case kSelect: return second ? permute(l, a[1].l) : EVal::unknown();
    case kInverse: return inverse(l);
    case kPermIsSwap: return perm_is_swap(l);
    case kIndexOf: return index_of(l, a[1]);
    case kStarts: return starts(l);
    case kAllEqual: return all_equal(l);
    case kAll: return all_true(l);
    case kAny: return any_true(l);
    case kSorted: return sorted(l);
    case kRev: return EVal::list(List(l.rbegin(), l.rend()));
    case kDrop: return second ? dropped(l, a[1]) : EVal::unknown();
    case kFlat: return flattened(l);
    default: return EVal::unknown();
  }
}

}  // namespace

EVal list_function(int fn, const List& a) {
  switch (fn) {
    case kKnown: return EVal::boolean(all_known(a[0]));
    case kCat: return concatenated(a);
    case kMin: return extreme(a, true);
    case kMax: return extreme(a, false);
    case kBroadcast: return broadcast_shapes(a);
    case kAbs: return absolute(a[0]);
    case kSqrt: return square_root(a[0]);
    case kFloatOf: return to_float(a[0]);
    case kIntOf: return to_int(a[0]);
    case kIsConstInt: return EVal::boolean(plain_integer(a[0]));
    case kIota: return iota(a[0]);
    case kFill: return fill(a[0], a[1]);
    default: return !a.empty() && a[0].kind == EVal::kList ? of_list(fn, a[0].l, a) : EVal::unknown();
  }
}

}  // namespace rlflow
