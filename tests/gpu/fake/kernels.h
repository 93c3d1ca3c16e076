// The text of our kernels as host code: their types and functions in namespace host, and numbers of every stored type.
#pragma once
#include <algorithm>
#include <cmath>

#include "blocks.h"

namespace host {

#define DEVICE static inline
#define SHARED(type, name, extents) auto& name = shared<__COUNTER__, type extents>()
#define SYNC synchronise(__COUNTER__)
#define SHUFFLE_XOR(lanes, value, distance) shuffle_xor(__COUNTER__, lanes, value, distance)
#define THREAD place.thread
#define THREADS place.threads
#define BLOCK place.block
#define BLOCKS place.blocks
#define UNROLL
#define INFINITE INFINITY
#define ALIGNED(address, bytes) aligned(address, bytes)
using std::acos, std::acosh, std::asin, std::asinh, std::atan, std::atanh, std::ceil, std::cos, std::cosh, std::erf, std::exp, std::fabs, std::floor,
    std::fmod, std::log, std::log1p, std::pow, std::rint, std::sin, std::sinh, std::sqrt, std::tan, std::tanh, std::trunc;
inline float half_value(unsigned short h) {
  int sign = h >> 15, exponent = h >> 10 & 31, mantissa = h & 1023;
  double v = exponent == 31 ? (mantissa ? NAN : INFINITY) : exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>(sign ? -v : v);
}
inline unsigned short half_bits(float f) {
  unsigned short sign = std::signbit(f) ? 0x8000 : 0;
  double a = std::fabs(f);
  if (std::isnan(f)) return 0x7e00;
  if (a >= 65520) return sign | 0x7c00;
  int e;
  std::frexp(a, &e);
  int unit = std::max(e - 11, -24);          // exponent of the last place
  double places = std::nearbyint(std::ldexp(a, -unit));
  if (places == 2048) places = 1024, ++unit;
  unsigned bits = places < 1024 ? static_cast<unsigned>(places) : static_cast<unsigned>(places) - 1024 + (static_cast<unsigned>(unit + 25) << 10);
  return static_cast<unsigned short>(sign | bits);
}
#define RLFLOW_KERNEL_TEXT(...) __VA_ARGS__
#include "cudnn/kernel_types.h"
// The values speak of the types, and the code of both.
#include "cudnn/kernel_values.h"
// After them.
#include "cudnn/kernel_code.h"
#undef RLFLOW_KERNEL_TEXT

}  // namespace host
