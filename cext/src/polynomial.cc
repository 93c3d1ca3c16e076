#include "polynomial.h"

#include "interner.h"

namespace rlflow::polynomial {

using detail::Interner;

namespace {

constexpr Int kFirst = -(Int{1} << 62);  // the Int of the first polynomial; further ones lie below
uint32_t index_of(Int v) { return static_cast<uint32_t>(kFirst - v); }

Interner<std::string>& symbols() {
  static auto& table = *new Interner<std::string>;
  return table;
}
Interner<Poly>& polys() {
  static auto& table = *new Interner<Poly>;
  return table;
}

uint64_t degree(const Monomial& m) {
  uint64_t d = 0;
  for (const Factor& f : m) d += f.power;
  return d;
}

// Monomial order: higher degree first, then lexicographic by name. It is compatible with multiplication, as long division needs.
int compare(const Monomial& a, const Monomial& b) {
  uint64_t da = degree(a), db = degree(b);
  if (da != db) return da > db ? -1 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i].symbol != b[i].symbol) return symbol_name(a[i].symbol) < symbol_name(b[i].symbol) ? -1 : 1;
    if (a[i].power != b[i].power) return a[i].power > b[i].power ? -1 : 1;
  }
  return 0;
}

Monomial multiply(const Monomial& a, const Monomial& b) {
  Monomial out;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (j == b.size() || (i < a.size() && a[i].symbol != b[j].symbol && symbol_name(a[i].symbol) < symbol_name(b[j].symbol))) {
      out.push_back(a[i++]);
    } else if (i == a.size() || a[i].symbol != b[j].symbol) {
      out.push_back(b[j++]);
    } else {
      out.push_back({a[i].symbol, a[i].power + b[j].power});
      ++i, ++j;
    }
  }
  return out;
}

std::optional<Monomial> divide(const Monomial& a, const Monomial& b) {
  Monomial out;
  size_t j = 0;
  for (const Factor& f : a) {
    if (j < b.size() && b[j].symbol == f.symbol) {
      if (b[j].power > f.power) return std::nullopt;
      if (b[j].power < f.power) out.push_back({f.symbol, f.power - b[j].power});
      ++j;
    } else {
      out.push_back(f);
    }
  }
  if (j < b.size()) return std::nullopt;
  return out;
}

Hash128 poly_digest(const Poly& p) {
  Hasher h(2);
  h.add(p.size());
  for (const Term& t : p) {
    h.add(static_cast<uint64_t>(t.coefficient));
    h.add(t.monomial.size());
    for (const Factor& f : t.monomial) {
      h.add_bytes(symbol_name(f.symbol));
      h.add(f.power);
    }
  }
  return h.finish();
}

// Products of sums grow beyond all bounds; nothing is known of one that has more terms than this.
constexpr size_t kMostTerms = 2048;

}  // namespace

Symbol symbol(std::string_view name) {
  return symbols().intern(hash_bytes(name), [&] { return std::string(name); });
}
const std::string& symbol_name(Symbol s) { return symbols()[s].value; }

bool interned(Int v) { return static_cast<uint64_t>(kFirst - v) < polys().size(); }
const Hash128& interned_digest(Int v) { return polys()[index_of(v)].digest; }

Poly poly_of(Int v) {
  if (!is_plain(v)) return polys()[index_of(v)].value;
  if (v == 0) return {};
  return {Term{{}, v}};
}

Int intern_poly(Poly p) {
  if (p.empty()) return 0;
  if (p.size() == 1 && p[0].monomial.empty()) return p[0].coefficient < kPlainMin ? kUnknown : p[0].coefficient;
  uint32_t id = polys().intern(poly_digest(p), [&] { return std::move(p); });
  return kFirst - static_cast<Int>(id);
}

bool add_scaled(const Poly& a, const Poly& b, int64_t scale, const Monomial& shift, Poly& out) {
  out.clear();
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    Term t;
    if (j < b.size()) {
      t.monomial = shift.empty() ? b[j].monomial : multiply(b[j].monomial, shift);
      if (__builtin_mul_overflow(b[j].coefficient, scale, &t.coefficient)) return false;
    }
    int order = i == a.size() ? 1 : j == b.size() ? -1 : compare(a[i].monomial, t.monomial);
    if (order < 0) {
      out.push_back(a[i++]);
      continue;
    }
    ++j;
    if (order == 0 && __builtin_add_overflow(t.coefficient, a[i++].coefficient, &t.coefficient)) return false;
    if (t.coefficient != 0) out.push_back(std::move(t));
    if (out.size() > kMostTerms) return false;
  }
  return true;
}

Int divide_by_plain(const Poly& a, Int b) {
  Poly out;
  for (const Term& t : a) {
    if (t.monomial.empty()) {  // floor((b*q + c) / b) = q + floor(c / b)
      if (int64_t c = floor_div(t.coefficient, b)) out.push_back({{}, c});
    } else if (t.coefficient % b != 0) {
      return kUnknown;
    } else {
      out.push_back({t.monomial, t.coefficient / b});
    }
  }
  return intern_poly(std::move(out));
}

Int divide_exactly(Poly rest, const Poly& by) {
  Poly quotient, next;
  while (!rest.empty()) {
    auto m = divide(rest[0].monomial, by[0].monomial);
    if (!m || by[0].coefficient == 0 || rest[0].coefficient % by[0].coefficient != 0) return kUnknown;
    int64_t c = rest[0].coefficient / by[0].coefficient;
    if (c == INT64_MIN || !add_scaled(rest, by, -c, *m, next)) return kUnknown;
    quotient.push_back({std::move(*m), c});
    rest.swap(next);
    if (quotient.size() > 64) return kUnknown;
  }
  return intern_poly(std::move(quotient));
}

}  // namespace rlflow::polynomial
