// Polynomials over named symbols: what an Int below -2^62 stands for (private to the core).
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rlflow/types.h"

namespace rlflow {
namespace polynomial {

using Symbol = uint32_t;
struct Factor {
  Symbol symbol;
  uint32_t power;
  friend bool operator==(const Factor&, const Factor&) = default;
};
using Monomial = std::vector<Factor>;  // sorted by symbol name; empty for the constant term
struct Term {
  Monomial monomial;
  int64_t coefficient = 0;             // never 0 in a polynomial
};
using Poly = std::vector<Term>;        // sorted by before(); at least one term is not constant when interned

Symbol symbol(std::string_view name);
const std::string& symbol_name(Symbol s);

bool interned(Int v);                      // of a symbolic v: it stands for a polynomial that this process made
Poly poly_of(Int v);                       // of a plain integer or an interned polynomial
Int intern_poly(Poly p);                   // a plain integer where the polynomial is one
const Hash128& interned_digest(Int v);

// a + scale * shift * b; false on overflow, and where the sum has too many terms.
bool add_scaled(const Poly& a, const Poly& b, int64_t scale, const Monomial& shift, Poly& out);
Int divide_by_plain(const Poly& a, Int b);           // floored where only the constant does not divide, else kUnknown
Int divide_exactly(Poly rest, const Poly& by);       // kUnknown where something is left over

inline constexpr Int kPlainMin = -(Int{1} << 62) + 1;
inline Int plain_or_unknown(int64_t v, bool overflow) { return overflow || v < kPlainMin ? kUnknown : v; }
inline int64_t floor_div(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - ((a % b != 0) && ((a % b < 0) != (b < 0)));
}

}  // namespace polynomial

inline bool known_symbolic(Int v) { return is_symbolic(v) && polynomial::interned(v); }
// Integer expressions with commas between them; throws Error(kUsage).
IntVec ints_parse(std::string_view text);

}  // namespace rlflow
