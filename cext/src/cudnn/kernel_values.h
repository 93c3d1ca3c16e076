// What the kernels of kernel_code.h share: how values of all types are read and written, one or some at a time, and folds over a warp and a
// block. The same text for the same two compilers. No preprocessor lines inside.
RLFLOW_KERNEL_TEXT(

DEVICE double bits_value(long long bits) { union { long long i; double d; } u; u.i = bits; return u.d; }
DEVICE float word_value(unsigned w) { union { unsigned i; float f; } u; u.i = w; return u.f; }
DEVICE unsigned word_bits(float f) { union { unsigned i; float f; } u; u.f = f; return u.i; }
DEVICE unsigned short bfloat_bits(float f) {
  unsigned w = word_bits(f);
  if (f != f) return 0x7fc0;
  return (unsigned short)((w + 0x7fff + ((w >> 16) & 1)) >> 16);
}

template <class R>
DEVICE R load(const void* p, long long dtype, long long i) {
  switch (dtype) {
    case kF32: return (R)((const float*)p)[i];
    case kF16: return (R)half_value(((const unsigned short*)p)[i]);
    case kBF16: return (R)word_value((unsigned)((const unsigned short*)p)[i] << 16);
    case kF64: return (R)((const double*)p)[i];
    case kI64: return (R)((const long long*)p)[i];
    case kI32: return (R)((const int*)p)[i];
    case kI16: return (R)((const short*)p)[i];
    case kI8: return (R)((const signed char*)p)[i];
    case kU64: return (R)((const unsigned long long*)p)[i];
    case kU32: return (R)((const unsigned*)p)[i];
    case kU16: return (R)((const unsigned short*)p)[i];
    default: return (R)((const unsigned char*)p)[i];
  }
}
template <class R>
DEVICE void store(void* p, long long dtype, long long i, R v) {
  switch (dtype) {
    case kF32: ((float*)p)[i] = (float)v; break;
    case kF16: ((unsigned short*)p)[i] = half_bits((float)v); break;
    case kBF16: ((unsigned short*)p)[i] = bfloat_bits((float)v); break;
    case kF64: ((double*)p)[i] = (double)v; break;
    case kI64: ((long long*)p)[i] = (long long)v; break;
    case kI32: ((int*)p)[i] = (int)v; break;
    case kI16: ((short*)p)[i] = (short)v; break;
    case kI8: ((signed char*)p)[i] = (signed char)v; break;
    case kU64: ((unsigned long long*)p)[i] = (unsigned long long)v; break;
    case kU32: ((unsigned*)p)[i] = (unsigned)v; break;
    case kU16: ((unsigned short*)p)[i] = (unsigned short)v; break;
    case kBool: ((unsigned char*)p)[i] = v != (R)0; break;
    default: ((unsigned char*)p)[i] = (unsigned char)(long long)v; break;
  }
}

// Neighbours in memory, which lie at a multiple of their common size: one access.
template <class T, int L>
struct alignas(sizeof(T) * L) Lanes { T v[L]; };
template <class T, int L>
DEVICE const Lanes<T, L>& lanes_at(const void* p, long long i) { return *(const Lanes<T, L>*)ALIGNED((const T*)p + i, sizeof(T) * L); }
template <class R, int L>
DEVICE void load_lanes(R* to, const void* p, long long dtype, long long i) {
  if (dtype == kF32) {
    const Lanes<float, L> x = lanes_at<float, L>(p, i);
    UNROLL for (int k = 0; k < L; ++k) to[k] = (R)x.v[k];
  } else if (dtype == kF16 || dtype == kBF16 || dtype == kU16) {
    const Lanes<unsigned short, L> x = lanes_at<unsigned short, L>(p, i);
    UNROLL for (int k = 0; k < L; ++k)
      to[k] = dtype == kF16 ? (R)half_value(x.v[k]) : dtype == kBF16 ? (R)word_value((unsigned)x.v[k] << 16) : (R)x.v[k];
  } else if (dtype == kF64) {
    const Lanes<double, L> x = lanes_at<double, L>(p, i);
    UNROLL for (int k = 0; k < L; ++k) to[k] = (R)x.v[k];
  } else {
    UNROLL for (int k = 0; k < L; ++k) to[k] = load<R>(p, dtype, i + k);
  }
}
template <class R, int L>
DEVICE void store_lanes(void* p, long long dtype, long long i, const R* from) {
  if (dtype == kF32) {
    Lanes<float, L> x;
    UNROLL for (int k = 0; k < L; ++k) x.v[k] = (float)from[k];
    *(Lanes<float, L>*)ALIGNED((float*)p + i, 4 * L) = x;
  } else if (dtype == kF16 || dtype == kBF16 || dtype == kU16) {
    Lanes<unsigned short, L> x;
    UNROLL for (int k = 0; k < L; ++k)
      x.v[k] = dtype == kF16 ? half_bits((float)from[k]) : dtype == kBF16 ? bfloat_bits((float)from[k]) : (unsigned short)from[k];
    *(Lanes<unsigned short, L>*)ALIGNED((unsigned short*)p + i, 2 * L) = x;
  } else if (dtype == kF64) {
    Lanes<double, L> x;
    UNROLL for (int k = 0; k < L; ++k) x.v[k] = (double)from[k];
    *(Lanes<double, L>*)ALIGNED((double*)p + i, 8 * L) = x;
  } else {
    UNROLL for (int k = 0; k < L; ++k) store<R>(p, dtype, i + k, from[k]);
  }
}

// Every thread of the warp gets the fold of all their values.
template <class R, class Fold>
DEVICE R warp_fold(R v, Fold fold) {
  for (int k = 16; k > 0; k >>= 1) v = fold(v, SHUFFLE_XOR(0xffffffffu, v, k));
  return v;
}
// Every thread of the block gets the fold of all their values: within warps, then one value a warp. Blocks are whole warps.
template <class R, class Fold>
DEVICE R block_fold(R v, R neutral, Fold fold) {
  SHARED(R, part, [32]);
  v = warp_fold(v, fold);
  SYNC;
  if (THREAD % 32 == 0) part[THREAD / 32] = v;
  SYNC;
  return warp_fold(THREAD % 32 < THREADS / 32 ? part[THREAD % 32] : neutral, fold);
}
template <class R>
DEVICE R block_sum(R v) { return block_fold(v, (R)0, [](R a, R b) { return a + b; }); }
template <class R>
DEVICE R block_max(R v) { return block_fold(v, (R)-INFINITE, [](R a, R b) { return a != a || a > b ? a : b; }); }
template <class R>
DEVICE R warp_sum(R v) { return warp_fold(v, [](R a, R b) { return a + b; }); }
template <class R>
DEVICE R warp_max(R v) { return warp_fold(v, [](R a, R b) { return a != a || a > b ? a : b; }); }
)
