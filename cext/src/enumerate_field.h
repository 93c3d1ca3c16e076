// Arithmetic of elements: a residue modulo 2^61 - 1 beside a real approximation (see enumerate.h).
#pragma once
#include <cstdint>

#include "rlflow/enumerate.h"

namespace rlflow::enumeration {

inline uint64_t reduce(uint64_t a) {
  uint64_t r = (a & kPrime) + (a >> 61);
  return r >= kPrime ? r - kPrime : r;
}
inline uint64_t reduce_wide(unsigned __int128 a) {
  uint64_t low = static_cast<uint64_t>(a) & kPrime, high = static_cast<uint64_t>(a >> 61);
  return reduce(low + reduce(high));
}
inline uint64_t plus(uint64_t a, uint64_t b) {
  uint64_t r = a + b;
  return r >= kPrime ? r - kPrime : r;
}
inline uint64_t minus(uint64_t a, uint64_t b) { return a >= b ? a - b : a + kPrime - b; }
inline uint64_t times(uint64_t a, uint64_t b) { return reduce_wide(static_cast<unsigned __int128>(a) * b); }
inline uint64_t inverse(uint64_t a) {
  uint64_t out = 1;
  for (uint64_t e = kPrime - 2; e; e >>= 1, a = times(a, a))
    if (e & 1) out = times(out, a);
  return out;
}

// The keyed functions of rlflow.synthesis.field, bit for bit.
inline uint64_t mix(uint64_t a) {
  a = (a ^ (a >> 30)) * 0xBF58476D1CE4E5B9ULL;
  a = (a ^ (a >> 27)) * 0x94D049BB133111EBULL;
  return a ^ (a >> 31);
}
inline uint64_t keyed(uint64_t state, uint64_t argument, uint64_t position) {
  return mix(state ^ mix(argument + 0x9E3779B97F4A7C15ULL * (position + 1)));
}

struct Element {
  uint64_t residue;
  double real;
};
// Whether a < b. Equal residues are equal elements, whatever rounding did to the doubles.
inline bool less(Element a, Element b) { return a.residue != b.residue && a.real < b.real; }

}  // namespace rlflow::enumeration
