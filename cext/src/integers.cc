// Integers that may be symbolic: plain ones are computed at once, others as polynomials.
#include <algorithm>
#include <numeric>

#include "polynomial.h"
#include "rlflow/error.h"

namespace rlflow {

using namespace polynomial;

namespace {
bool unknown(Int v) { return v == kUnknown || (is_symbolic(v) && !known_symbolic(v)); }
}  // namespace

Int int_symbol(std::string_view name) {
  if (name.empty()) throw Error(ErrorKind::kUsage, "making a symbolic dimension: the name is empty");
  return intern_poly({Term{{Factor{symbol(name), 1}}, 1}});
}

Int int_add(Int a, Int b) {
  if (is_plain(a) && is_plain(b)) {
    int64_t r;
    bool over = __builtin_add_overflow(a, b, &r);
    return plain_or_unknown(r, over);
  }
  if (unknown(a) || unknown(b)) return kUnknown;
  Poly out;
  return add_scaled(poly_of(a), poly_of(b), 1, {}, out) ? intern_poly(std::move(out)) : kUnknown;
}

Int int_sub(Int a, Int b) {
  if (is_plain(a) && is_plain(b)) {
    int64_t r;
    bool over = __builtin_sub_overflow(a, b, &r);
    return plain_or_unknown(r, over);
  }
  if (unknown(a) || unknown(b)) return kUnknown;
  if (a == b) return 0;
  Poly out;
  return add_scaled(poly_of(a), poly_of(b), -1, {}, out) ? intern_poly(std::move(out)) : kUnknown;
}

Int int_mul(Int a, Int b) {
  if (is_plain(a) && is_plain(b)) {
    int64_t r;
    bool over = __builtin_mul_overflow(a, b, &r);
    return plain_or_unknown(r, over);
  }
  if (unknown(a) || unknown(b)) return kUnknown;
  if (a == 1) return b;
  if (b == 1) return a;
  Poly left = poly_of(a), sum, next;
  for (const Term& t : poly_of(b)) {
    if (!add_scaled(sum, left, t.coefficient, t.monomial, next)) return kUnknown;
    sum.swap(next);
  }
  return intern_poly(std::move(sum));
}

Int int_div(Int a, Int b) {
  if (unknown(a) || unknown(b) || b == 0) return kUnknown;
  if (is_plain(a) && is_plain(b)) return plain_or_unknown(floor_div(a, b), false);
  if (a == b) return 1;
  return is_plain(b) ? divide_by_plain(poly_of(a), b) : divide_exactly(poly_of(a), poly_of(b));
}

Int int_mod(Int a, Int b) {
  Int q = int_div(a, b);
  return q == kUnknown ? kUnknown : int_sub(a, int_mul(q, b));
}

namespace {
// The sign that a polynomial over symbols >= 0 must have: `all` terms of one sign, and whether a constant term bounds it from 0.
struct Sign {
  bool non_negative = true, non_positive = true;
  int64_t constant = 0, gcd = 0;
};
Sign sign_of(const Poly& p) {
  Sign s;
  for (const Term& t : p) {
    (t.coefficient > 0 ? s.non_positive : s.non_negative) = false;
    if (t.monomial.empty()) s.constant = t.coefficient;
    else s.gcd = std::gcd(s.gcd, t.coefficient);
  }
  return s;
}
}  // namespace

Tri int_eq(Int a, Int b) {
  if (is_plain(a) && is_plain(b)) return a == b ? Tri::kTrue : Tri::kFalse;
  if (unknown(a) || unknown(b)) return Tri::kMaybe;
  Int d = int_sub(a, b);
  if (is_plain(d)) return d == 0 ? Tri::kTrue : Tri::kFalse;
  if (d == kUnknown) return Tri::kMaybe;
  Sign s = sign_of(poly_of(d));
  if (s.constant != 0 && (s.non_negative || s.non_positive || s.constant % s.gcd != 0)) return Tri::kFalse;
  return Tri::kMaybe;
}

Tri int_lt(Int a, Int b) {
  if (is_plain(a) && is_plain(b)) return a < b ? Tri::kTrue : Tri::kFalse;
  if (unknown(a) || unknown(b)) return Tri::kMaybe;
  Int d = int_sub(b, a);
  if (is_plain(d)) return d > 0 ? Tri::kTrue : Tri::kFalse;
  if (d == kUnknown) return Tri::kMaybe;
  Sign s = sign_of(poly_of(d));
  if (s.non_positive) return Tri::kFalse;
  return s.non_negative && s.constant > 0 ? Tri::kTrue : Tri::kMaybe;
}

Int int_substitute(Int v, std::span<const std::pair<std::string, Int>> values) {
  if (!known_symbolic(v)) return v;
  Int sum = 0;
  for (const Term& t : poly_of(v)) {
    Int product = plain_or_unknown(t.coefficient, false);
    for (const Factor& f : t.monomial) {
      const std::string& name = symbol_name(f.symbol);
      auto hit = std::find_if(values.begin(), values.end(), [&](const auto& p) { return p.first == name; });
      Int base = hit == values.end() ? int_symbol(name) : hit->second;
      for (uint32_t i = 0; i < f.power; ++i) product = int_mul(product, base);
    }
    sum = int_add(sum, product);
  }
  return sum;
}

void int_symbols(Int v, std::vector<std::string>& names) {
  if (!known_symbolic(v)) return;
  for (const Term& t : poly_of(v))
    for (const Factor& f : t.monomial)
      if (std::find(names.begin(), names.end(), symbol_name(f.symbol)) == names.end()) names.push_back(symbol_name(f.symbol));
}

Hash128 int_digest(Int v) {
  if (known_symbolic(v)) return interned_digest(v);
  Hasher h(1);
  h.add(static_cast<uint64_t>(v));
  return h.finish();
}

}  // namespace rlflow
