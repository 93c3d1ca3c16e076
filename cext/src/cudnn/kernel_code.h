// The kernels that cuDNN and cuBLAS have no routine for, as one text for two compilers: NVRTC (or nvcc), with the fixed parameters as
// constants, so that programs, strides and types are compiled in; and a host compiler, for tests. Their preludes define DEVICE,
// SHARED(type, name, extents), SYNC, SHUFFLE_XOR(lanes, value, distance), THREAD, THREADS, BLOCK, BLOCKS, UNROLL, INFINITE,
// ALIGNED(address, bytes), half_bits and half_value. No preprocessor lines inside.
RLFLOW_KERNEL_TEXT(

template <class R>
DEVICE R evaluate(long long op, R a, R b, R c, double imm) {
  switch (op) {
    case kConst: return (R)imm;
    case kAbs: return fabs(a);
    case kNeg: return -a;
    case kExp: return exp(a);
    case kLog: return log(a);
    case kSqrt: return sqrt(a);
    case kRecip: return (R)1 / a;
    case kErf: return erf(a);
    case kTanh: return tanh(a);
    case kSigmoid: return (R)1 / ((R)1 + exp(-a));
    case kFloor: return floor(a);
    case kCeil: return ceil(a);
    case kRound: return rint(a);
    case kSign: return (R)((a > (R)0) - (a < (R)0));
    case kSin: return sin(a);
    case kCos: return cos(a);
    case kTan: return tan(a);
    case kAsin: return asin(a);
    case kAcos: return acos(a);
    case kAtan: return atan(a);
    case kSinh: return sinh(a);
    case kCosh: return cosh(a);
    case kAsinh: return asinh(a);
    case kAcosh: return acosh(a);
    case kAtanh: return atanh(a);
    case kNot: return (R)(a == (R)0);
    case kIsNan: return (R)(a != a);
    case kIsInf: return (R)(fabs(a) > (R)3.4028234e38 && (((int)imm & 1 && a > (R)0) || ((int)imm & 2 && a < (R)0)));
    case kSoftplus: return a > (R)0 ? a + log1p(exp(-a)) : log1p(exp(a));
    case kTrunc: return trunc(a);
    case kToBool: return (R)(a != (R)0);
    case kToHalf: return (R)half_value(half_bits((float)a));
    case kToBFloat: return (R)word_value((unsigned)bfloat_bits((float)a) << 16);
    case kAdd: return a + b;
    case kSub: return a - b;
    case kMul: return a * b;
    case kDiv: return a / b;
    case kPow: return b == (R)2 ? a * a : pow(a, b);
    case kMax: return a != a || a > b ? a : b;
    case kMin: return a != a || a < b ? a : b;
    case kMod: return a - b * floor(a / b);
    case kFmod: return fmod(a, b);
    case kIntDiv: return trunc(a / b);
    case kAnd: return (R)(a != (R)0 && b != (R)0);
    case kOr: return (R)(a != (R)0 || b != (R)0);
    case kXor: return (R)((a != (R)0) != (b != (R)0));
    case kEq: return (R)(a == b);
    case kGt: return (R)(a > b);
    case kGe: return (R)(a >= b);
    case kLt: return (R)(a < b);
    case kLe: return (R)(a <= b);
    default: return c != (R)0 ? a : b;
  }
}

template <class R, class Index, int L>
DEVICE void pointwise(const Pointers& p, const Pointwise& f) {
  const long long count = (f.count == kGiven ? p.size[0] : f.count) / L;
  for (long long i = (long long)BLOCK * THREADS + THREAD; i < count; i += (long long)BLOCKS * THREADS) {
    long long at[kMaxIns + kMaxOuts];
    UNROLL for (int k = 0; k < kMaxIns; ++k) at[k] = f.in[k].offset;
    UNROLL for (int k = 0; k < kMaxOuts; ++k) at[kMaxIns + k] = f.out[k].offset;
    Index rest = (Index)(i * L);
    UNROLL for (int d = kMaxDims - 1; d >= 0; --d) {
      if (d < f.dims) {
        long long x = (long long)(d == 0 ? rest : rest % (Index)f.extent[d]);
        if (d > 0) rest /= (Index)f.extent[d];
        UNROLL for (int k = 0; k < f.ins; ++k) at[k] += x * f.in[k].stride[d];
        UNROLL for (int k = 0; k < f.outs; ++k) at[kMaxIns + k] += x * f.out[k].stride[d];
      }
    }
    R in[kMaxIns][L];
    R out[kMaxOuts][L];
    UNROLL for (int k = 0; k < f.ins; ++k) {
      if (L > 1 && f.in[k].stride[f.dims - 1] != 0) load_lanes<R, L>(in[k], p.in[k], f.in[k].dtype, at[k]);
      else {
        const R x = load<R>(p.in[k], f.in[k].dtype, at[k]);
        UNROLL for (int l = 0; l < L; ++l) in[k][l] = x;
      }
    }
    UNROLL for (int l = 0; l < L; ++l) {     // outside, so that the program is folded before it is repeated
      R reg[kMaxIns + kMaxCode];
      UNROLL for (int k = 0; k < f.ins; ++k) reg[k] = in[k][l];
      UNROLL for (int k = 0; k < f.steps; ++k) {
        const Instruction& s = f.code[k];
        reg[f.ins + k] = evaluate<R>(s.op, reg[s.a], reg[s.b], reg[s.c], bits_value(s.bits));
      }
      UNROLL for (int k = 0; k < f.outs; ++k) out[k][l] = reg[f.result[k]];
    }
    UNROLL for (int k = 0; k < f.outs; ++k) {
      if (L > 1) store_lanes<R, L>(p.out[k], f.out[k].dtype, at[kMaxIns + k], out[k]);
      else store<R>(p.out[k], f.out[k].dtype, at[kMaxIns + k], out[k][0]);
    }
  }
}
template <class R, class Index>
DEVICE void pointwise(const Pointers& p, const Pointwise& f) {
  if (f.lanes == 4) pointwise<R, Index, 4>(p, f);
  else pointwise<R, Index, 1>(p, f);
}
DEVICE void run(const Pointers& p, const Pointwise& f) {
  bool small = f.count <= 0x7fffffff;        // divisions of 32 bits are several times as fast; what is given is small
  if (f.wide && small) pointwise<double, unsigned>(p, f);
  else if (f.wide) pointwise<double, unsigned long long>(p, f);
  else if (small) pointwise<float, unsigned>(p, f);
  else pointwise<float, unsigned long long>(p, f);
}

template <class T>
DEVICE void transpose(const Pointers& p, const Transposition& f) {
  SHARED(T, tile, [32][33]);
  const T* in = (const T*)p.in[0];
  T* out = (T*)p.out[0];
  const long long batch = f.batch == kGiven ? p.size[0] : f.batch;
  const long long rows = f.rows == kGiven ? p.size[1] : f.rows;
  const long long columns = f.columns == kGiven ? p.size[2] : f.columns;
  long long across = (columns + 31) / 32;
  long long tiles = across * ((rows + 31) / 32);
  for (long long t = BLOCK; t < tiles * batch; t += BLOCKS) {
    long long b = t / tiles;
    long long row = (t % tiles) / across * 32;
    long long column = (t % tiles) % across * 32;
    const T* from = in + b * rows * columns;
    T* to = out + b * rows * columns;
    for (int k = THREAD; k < 1024; k += THREADS) {
      long long r = row + k / 32;
      long long c = column + k % 32;
      if (r < rows && c < columns) tile[k / 32][k % 32] = from[r * columns + c];
    }
    SYNC;
    for (int k = THREAD; k < 1024; k += THREADS) {
      long long c = column + k / 32;
      long long r = row + k % 32;
      if (r < rows && c < columns) to[c * rows + r] = tile[k % 32][k / 32];
    }
    SYNC;
  }
}
DEVICE void run(const Pointers& p, const Transposition& f) {
  if (f.bytes == 4) transpose<unsigned>(p, f);
  else if (f.bytes == 2) transpose<unsigned short>(p, f);
  else if (f.bytes == 8) transpose<unsigned long long>(p, f);
  else transpose<unsigned char>(p, f);
}

DEVICE long long offset_of(long long i, long long dims, const long long* extent, const long long* stride) {
  long long at = 0;
  UNROLL for (int d = kMaxDims - 1; d >= 0; --d)
    if (d < dims) {
      at += (i % extent[d]) * stride[d];
      i /= extent[d];
    }
  return at;
}
template <class R>
DEVICE R reduced_term(long long kind, R x) {
  return kind == kL1 ? fabs(x) : kind == kL2 || kind == kSumSquare ? x * x : x;
}
template <class R>
DEVICE R reduced_end(const Reducing& f, R total) {
  return f.kind == kMean ? total / (R)f.count : f.kind == kL2 ? sqrt(total) : f.kind == kLogSum ? log(total) : total;
}
// One thread folds the elements begin, begin + step, ... of output `o`.
template <class R>
DEVICE R folded(const Pointers& p, const Reducing& f, long long base, long long begin, long long step, R start, R shift) {
  R total = start;
  for (long long k = begin; k < f.count; k += step) {
    R x = load<R>(p.in[0], f.dtype, base + offset_of(k, f.reduced, f.reduced_extent, f.reduced_stride));
    if (f.kind == kMaximum) total = x > total || x != x ? x : total;
    else if (f.kind == kMinimum) total = x < total || x != x ? x : total;
    else if (f.kind == kProduct) total = total * x;
    else if (f.kind == kLogSumExp) total += exp(x - shift);
    else total += reduced_term<R>(f.kind, x);
  }
  return total;
}
template <class R>
DEVICE void reduce(const Pointers& p, const Reducing& f) {
  const R low = (R)-INFINITE;
  const R neutral = f.kind == kMaximum ? low : f.kind == kMinimum ? -low : (R)0;
  if (f.together == kGiven) {  // a block makes one output: sums, means, maxima, minima
    for (long long o = BLOCK; o < f.outputs; o += BLOCKS) {
      long long base = offset_of(o, f.kept, f.kept_extent, f.kept_stride);
      R total = folded<R>(p, f, base, THREAD, THREADS, neutral, (R)0);
      total = f.kind == kMaximum ? block_max(total) : f.kind == kMinimum ? -block_max(-total) : block_sum(total);
      if (THREAD == 0) store<R>(p.out[0], f.out_dtype, o, reduced_end<R>(f, total));
    }
    return;
  }
  if (f.together == 32) {
    for (long long o = ((long long)BLOCK * THREADS + THREAD) / 32; o < f.outputs; o += (long long)BLOCKS * THREADS / 32) {
      long long base = offset_of(o, f.kept, f.kept_extent, f.kept_stride);
      R total = folded<R>(p, f, base, THREAD % 32, 32, neutral, (R)0);
      total = f.kind == kMaximum ? warp_max(total) : f.kind == kMinimum ? -warp_max(-total) : warp_sum(total);
      if (THREAD % 32 == 0) store<R>(p.out[0], f.out_dtype, o, reduced_end<R>(f, total));
    }
    return;
  }
  for (long long o = (long long)BLOCK * THREADS + THREAD; o < f.outputs; o += (long long)BLOCKS * THREADS) {
    long long base = offset_of(o, f.kept, f.kept_extent, f.kept_stride);
    if (f.kind >= kArgMax) {
      R best = load<R>(p.in[0], f.dtype, base);
      long long at = 0;
      for (long long k = 1; k < f.count; ++k) {
        R x = load<R>(p.in[0], f.dtype, base + offset_of(k, f.reduced, f.reduced_extent, f.reduced_stride));
        bool better = f.kind == kArgMax ? x > best : f.kind == kArgMin ? x < best : f.kind == kArgMaxLast ? x >= best : x <= best;
        if (better) { best = x; at = k; }
      }
      ((long long*)p.out[0])[o] = at;
      continue;
    }
    R shift = (R)0;
    if (f.kind == kLogSumExp) {
      shift = low;
      for (long long k = 0; k < f.count; ++k) {
        R x = load<R>(p.in[0], f.dtype, base + offset_of(k, f.reduced, f.reduced_extent, f.reduced_stride));
        shift = x > shift ? x : shift;
      }
    }
    R total = folded<R>(p, f, base, 0, 1, f.kind == kProduct ? (R)1 : neutral, shift);
    store<R>(p.out[0], f.out_dtype, o, f.kind == kLogSumExp ? shift + log(total) : reduced_end<R>(f, total));
  }
}
DEVICE void run(const Pointers& p, const Reducing& f) {
  if (f.wide) reduce<double>(p, f);
  else reduce<float>(p, f);
}

DEVICE void soften_by_warp(const Pointers& p, const Softening& f) {
  for (long long r = ((long long)BLOCK * THREADS + THREAD) / 32; r < f.rows; r += (long long)BLOCKS * THREADS / 32) {
    long long base = r / f.inner * f.extent * f.inner + r % f.inner;
    float x[32];
    float top = -INFINITE;
    UNROLL for (int k = 0; k < 32; ++k)
      if (k * 32 < f.extent) {
        long long at = k * 32 + THREAD % 32;
        x[k] = at < f.extent ? load<float>(p.in[0], f.dtype, base + at * f.inner) : -INFINITE;
        top = x[k] > top ? x[k] : top;
      }
    top = warp_max(top);
    float sum = 0;
    UNROLL for (int k = 0; k < 32; ++k)
      if (k * 32 < f.extent) {
        float shifted = x[k] - top;
        float power = k * 32 + THREAD % 32 < f.extent ? exp(shifted) : 0.0f;
        sum += power;
        x[k] = f.log ? shifted : power;
      }
    sum = warp_sum(sum);
    float inverse = 1.0f / sum;
    float shift = log(sum);
    UNROLL for (int k = 0; k < 32; ++k)
      if (k * 32 + THREAD % 32 < f.extent)
        store<float>(p.out[0], f.dtype, base + (k * 32 + THREAD % 32) * f.inner, f.log ? x[k] - shift : x[k] * inverse);
  }
}
DEVICE void run(const Pointers& p, const Softening& f) {
  if (f.by_warp) return soften_by_warp(p, f);
  for (long long r = BLOCK; r < f.rows; r += BLOCKS) {
    long long base = r / f.inner * f.extent * f.inner + r % f.inner;
    float top = -INFINITE;
    for (long long k = THREAD; k < f.extent; k += THREADS) {
      float x = load<float>(p.in[0], f.dtype, base + k * f.inner);
      top = x > top ? x : top;
    }
    top = block_max(top);
    float sum = 0;
    for (long long k = THREAD; k < f.extent; k += THREADS) sum += exp(load<float>(p.in[0], f.dtype, base + k * f.inner) - top);
    sum = block_sum(sum);
    float inverse = 1.0f / sum;
    float shift = top + log(sum);
    for (long long k = THREAD; k < f.extent; k += THREADS) {
      float x = load<float>(p.in[0], f.dtype, base + k * f.inner);
      store<float>(p.out[0], f.dtype, base + k * f.inner, f.log ? x - shift : exp(x - top) * inverse);
    }
  }
}

DEVICE void run(const Pointers& p, const Normalising& f) {
  for (long long r = BLOCK; r < f.rows; r += BLOCKS) {
    long long base = r * f.extent;
    float mean = 0;
    if (f.centred) {
      for (long long k = THREAD; k < f.extent; k += THREADS) mean += load<float>(p.in[0], f.dtype, base + k);
      mean = block_sum(mean) / (float)f.extent;
    }
    float square = 0;
    for (long long k = THREAD; k < f.extent; k += THREADS) {
      float x = load<float>(p.in[0], f.dtype, base + k) - mean;
      square += x * x;
    }
    float inverse = 1.0f / sqrt(block_sum(square) / (float)f.extent + (float)bits_value(f.epsilon));
    for (long long k = THREAD; k < f.extent; k += THREADS) {
      long long w = f.by_row ? r % f.channels : k;
      float y = (load<float>(p.in[0], f.dtype, base + k) - mean) * inverse;
      if (f.scaled) y *= load<float>(p.in[1], f.dtype, w);
      if (f.shifted) y += load<float>(p.in[2], f.dtype, w);
      store<float>(p.out[0], f.dtype, base + k, y);
    }
  }
}

template <class T>
DEVICE void gather(const Pointers& p, const Gathering& f) {
  const T* in = (const T*)p.in[0];
  T* out = (T*)p.out[0];
  long long count = f.outer * f.indices * f.inner;
  for (long long i = (long long)BLOCK * THREADS + THREAD; i < count; i += (long long)BLOCKS * THREADS) {
    long long k = i % f.inner;
    long long j = i / f.inner % f.indices;
    long long o = i / f.inner / f.indices;
    long long at = f.index_dtype == kI64 ? ((const long long*)p.in[1])[j] : (long long)((const int*)p.in[1])[j];
    if (at < 0) at += f.extent;
    if (at < 0) at = 0;
    if (at >= f.extent) at = f.extent - 1;
    out[i] = in[(o * f.extent + at) * f.inner + k];
  }
}
DEVICE void run(const Pointers& p, const Gathering& f) {
  if (f.bytes == 4) gather<unsigned>(p, f);
  else if (f.bytes == 2) gather<unsigned short>(p, f);
  else if (f.bytes == 8) gather<unsigned long long>(p, f);
  else gather<unsigned char>(p, f);
}

template <class T>
DEVICE void join(const Pointers& p, const Joining& f) {
  const long long count = f.outer * f.pitch;
  for (long long i = (long long)BLOCK * THREADS + THREAD; i < count; i += (long long)BLOCKS * THREADS) {
    long long o = f.outer == 1 ? 0 : count <= 0x7fffffff ? (long long)((unsigned)i / (unsigned)f.pitch) : i / f.pitch;
    long long at = i - o * f.pitch;
    long long begin = 0;
    UNROLL for (int k = 0; k < f.parts; ++k) {
      if (at >= begin && at < f.end[k]) {
        long long own = o * (f.end[k] - begin) + at - begin;
        if (f.apart) ((T*)p.out[k % kMaxOuts])[own] = ((const T*)p.in[0])[i];
        else ((T*)p.out[0])[i] = ((const T*)p.in[k])[own];
      }
      begin = f.end[k];
    }
  }
}
DEVICE void run(const Pointers& p, const Joining& f) {
  if (f.bytes == 16) join<Lanes<unsigned, 4>>(p, f);
  else if (f.bytes == 8) join<unsigned long long>(p, f);
  else if (f.bytes == 4) join<unsigned>(p, f);
  else if (f.bytes == 2) join<unsigned short>(p, f);
  else join<unsigned char>(p, f);
}

DEVICE void run(const Pointers& p, const Remapping& f) {
  const int* table = (const int*)p.in[1];
  for (long long i = (long long)BLOCK * THREADS + THREAD; i < f.count; i += (long long)BLOCKS * THREADS) {
    long long rest = i;
    long long at = 0;
    bool inside = true;
    UNROLL for (int d = kMaxDims - 1; d >= 0; --d)
      if (d < f.dims) {
        int x = table[f.start[d] + rest % f.extent[d]];
        rest /= f.extent[d];
        inside = inside && x >= 0;
        at += x;
      }
    double v = inside ? load<double>(p.in[0], f.dtype, at) : bits_value(f.fill);
    store<double>(p.out[0], f.dtype, i, v);
  }
}

DEVICE void run(const Pointers& p, const Pooling& f) {
  long long plane = f.in[0] * f.in[1] * f.in[2];
  for (long long i = (long long)BLOCK * THREADS + THREAD; i < f.count; i += (long long)BLOCKS * THREADS) {
    long long z = i % f.out[2];
    long long y = i / f.out[2] % f.out[1];
    long long x = i / (f.out[2] * f.out[1]) % f.out[0];
    long long base = i / (f.out[2] * f.out[1] * f.out[0]) * plane;
    float total = f.maximum ? -INFINITE : 0.0f;
    long long seen = 0;
    long long padded = 0;
    for (long long a = 0; a < f.window[0]; ++a)
      for (long long b = 0; b < f.window[1]; ++b)
        for (long long c = 0; c < f.window[2]; ++c) {
          long long u = x * f.stride[0] - f.pad[0] + a * f.dilation[0];
          long long v = y * f.stride[1] - f.pad[1] + b * f.dilation[1];
          long long w = z * f.stride[2] - f.pad[2] + c * f.dilation[2];
          if (u < f.limit[0] && v < f.limit[1] && w < f.limit[2]) ++padded;
          if (u < 0 || v < 0 || w < 0 || u >= f.in[0] || v >= f.in[1] || w >= f.in[2]) continue;
          float value = load<float>(p.in[0], f.dtype, base + (u * f.in[1] + v) * f.in[2] + w);
          ++seen;
          if (f.maximum) total = value > total || value != value ? value : total;
          else total += value;
        }
    if (!f.maximum) total /= (float)(f.with_pad ? padded : seen);
    store<float>(p.out[0], f.dtype, i, total);
  }
}
)
