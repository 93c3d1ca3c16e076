// Rows normalised; see routines.h. Included after stages_body.h, under the same rules. A row is read three times, for its
// mean, its variance and its output: it lies in the first cache, and a variance made from sums of squares alone would lose
// the digits that a large mean takes.

using Floats = Lanes<RLFLOW_LANES>::Vector;
constexpr int64_t kLanes = RLFLOW_LANES;
constexpr int64_t kSums = 4;  // independent, so that an addition need not wait for the one before

template <int N>
RLFLOW_INLINE float folded(const typename Lanes<N>::Vector& value) {
  if constexpr (N == 4) {
    return (value[0] + value[1]) + (value[2] + value[3]);
  } else {
    using Half = typename Lanes<N / 2>::Vector;
    const Half* halves = reinterpret_cast<const Half*>(&value);
    return folded<N / 2>(halves[0] + halves[1]);
  }
}

RLFLOW_INLINE float folded_all(const Floats* sums) { return folded<RLFLOW_LANES>((sums[0] + sums[1]) + (sums[2] + sums[3])); }

template <bool SKIP, bool BIAS>
RLFLOW_INLINE Floats term(const float* x, const float* skip, const float* bias, int64_t at) {
  Floats value = load<RLFLOW_LANES>(x + at);
  if constexpr (SKIP) value += load<RLFLOW_LANES>(skip + at);
  if constexpr (BIAS) value += load<RLFLOW_LANES>(bias + at);
  return value;
}

// Writes x + skip + bias where there is something to add, and returns the sum of a row.
template <bool SKIP, bool BIAS>
RLFLOW_INLINE float added(const float* x, const float* skip, const float* bias, int64_t width, float* to) {
  Floats sums[kSums] = {};
  int64_t at = 0;
  for (; at + kSums * kLanes <= width; at += kSums * kLanes) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < kSums; ++k) {
      const Floats value = term<SKIP, BIAS>(x, skip, bias, at + k * kLanes);
      if constexpr (SKIP || BIAS) store<RLFLOW_LANES>(to + at + k * kLanes, value);
      sums[k] += value;
    }
  }
  for (; at + kLanes <= width; at += kLanes) {
    const Floats value = term<SKIP, BIAS>(x, skip, bias, at);
    if constexpr (SKIP || BIAS) store<RLFLOW_LANES>(to + at, value);
    sums[0] += value;
  }
  float sum = folded_all(sums);
  for (; at < width; ++at) {
    float value = x[at];
    if constexpr (SKIP) value += skip[at];
    if constexpr (BIAS) value += bias[at];
    if constexpr (SKIP || BIAS) to[at] = value;
    sum += value;
  }
  return sum;
}

RLFLOW_INLINE float sum_of_squares(const float* from, float mean, int64_t width) {
  Floats sums[kSums] = {};
  int64_t at = 0;
  for (; at + kSums * kLanes <= width; at += kSums * kLanes) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < kSums; ++k) {
      const Floats value = load<RLFLOW_LANES>(from + at + k * kLanes) - mean;
      sums[k] += value * value;
    }
  }
  for (; at + kLanes <= width; at += kLanes) {
    const Floats value = load<RLFLOW_LANES>(from + at) - mean;
    sums[0] += value * value;
  }
  float sum = folded_all(sums);
  for (; at < width; ++at) sum += (from[at] - mean) * (from[at] - mean);
  return sum;
}

template <bool SHIFT>
RLFLOW_INLINE void scaled(const float* from, float mean, float factor, const Norm& n, float* y) {
  int64_t at = 0;
  for (; at + kLanes <= n.width; at += kLanes) {
    Floats value = (load<RLFLOW_LANES>(from + at) - mean) * factor * load<RLFLOW_LANES>(n.scale + at);
    if constexpr (SHIFT) value += load<RLFLOW_LANES>(n.shift + at);
    store<RLFLOW_LANES>(y + at, value);
  }
  for (; at < n.width; ++at) {
    const float value = (from[at] - mean) * factor * n.scale[at];
    y[at] = SHIFT ? value + n.shift[at] : value;
  }
}

template <bool SKIP, bool BIAS>
void normalised(const Norm& n, int64_t first_row, int64_t end_row) {
  const float count = static_cast<float>(n.width);
  for (int64_t row = first_row; row < end_row; ++row) {
    const float* x = n.x + row * n.width;
    const float* skip = SKIP ? n.skip + row % n.skip_rows * n.width : nullptr;
    float* y = n.y + row * n.width;
    float* kept = n.sum ? n.sum + row * n.width : y;
    const float sum = added<SKIP, BIAS>(x, skip, n.bias, n.width, kept);
    const float* from = SKIP || BIAS ? kept : x;
    const float mean = n.centred ? sum / count : 0.0f;
    const float variance = sum_of_squares(from, mean, n.width) / count;
    const float factor = 1.0f / __builtin_sqrtf(variance + n.epsilon);
    if (n.shift) scaled<true>(from, mean, factor, n, y);
    else scaled<false>(from, mean, factor, n, y);
  }
}

inline void norm_rows(const Norm& n, int64_t first_row, int64_t end_row) {
  if (n.skip) return n.bias ? normalised<true, true>(n, first_row, end_row) : normalised<true, false>(n, first_row, end_row);
  return n.bias ? normalised<false, true>(n, first_row, end_row) : normalised<false, false>(n, first_row, end_row);
}

// PIXELS pixels side by side, which are in the first cache from one pass over their channels to the next.
template <int BLOCK, int PIXELS>
void blocked_norm_pixels(const BlockedNorm& n, const float* x, float* y) {
  using V = typename Lanes<BLOCK>::Vector;
  const int64_t step = n.plane * BLOCK;
  const float count = static_cast<float>(n.blocks * BLOCK);
  V sums[PIXELS] = {};
  for (int64_t block = 0; block < n.blocks; ++block) {
#pragma GCC unroll 8
    for (int k = 0; k < PIXELS; ++k) sums[k] += load<BLOCK>(x + block * step + k * BLOCK);
  }
  float means[PIXELS], factors[PIXELS];
  for (int k = 0; k < PIXELS; ++k) {
    means[k] = folded<BLOCK>(sums[k]) / count;
    sums[k] = V{};
  }
  for (int64_t block = 0; block < n.blocks; ++block) {
#pragma GCC unroll 8
    for (int k = 0; k < PIXELS; ++k) {
      const V value = load<BLOCK>(x + block * step + k * BLOCK) - means[k];
      sums[k] += value * value;
    }
  }
  for (int k = 0; k < PIXELS; ++k) factors[k] = 1.0f / __builtin_sqrtf(folded<BLOCK>(sums[k]) / count + n.epsilon);
  for (int64_t block = 0; block < n.blocks; ++block) {
    const V scale = load<BLOCK>(n.scale + block * BLOCK), shift = n.shift ? load<BLOCK>(n.shift + block * BLOCK) : V{};
#pragma GCC unroll 8
    for (int k = 0; k < PIXELS; ++k) {
      const V value = (load<BLOCK>(x + block * step + k * BLOCK) - means[k]) * factors[k];
      store<BLOCK>(y + block * step + k * BLOCK, value * scale + shift);
    }
  }
}

template <int BLOCK>
void blocked_norm(const BlockedNorm& n, int64_t image, int64_t first_pixel, int64_t end_pixel) {
  constexpr int PIXELS = RLFLOW_LANES == 16 ? 8 : 4;
  const int64_t start = image * n.blocks * n.plane;
  int64_t pixel = first_pixel;
  for (; pixel + PIXELS <= end_pixel; pixel += PIXELS)
    blocked_norm_pixels<BLOCK, PIXELS>(n, n.x + (start + pixel) * BLOCK, n.y + (start + pixel) * BLOCK);
  for (; pixel < end_pixel; ++pixel) blocked_norm_pixels<BLOCK, 1>(n, n.x + (start + pixel) * BLOCK, n.y + (start + pixel) * BLOCK);
}
