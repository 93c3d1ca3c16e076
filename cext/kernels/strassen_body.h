// Strassen's algorithm over an unrolled convolution; see routines.h. Included after unrolled_body.h, under the same rules.
//
// Seven products of halves take the place of eight (Strassen, "Gaussian elimination is not optimal", 1969), in Winograd's form
// with fifteen sums. With A the rows' values in quarters a11 … a22 and B the weights in b11 … b22,
//   s1 = a21 + a22, s2 = s1 − a11, s3 = a11 − a21, s4 = a12 − s2; t1 = b12 − b11, t2 = b22 − t1, t3 = b22 − b12, t4 = t2 − b21;
//   p = a11·b11, a12·b21, s4·b22, a22·t4, s1·t1, s2·t2, s3·t3; u = p1 + p6, w = u + p7, v = u + p5;
//   the quarters of the output are p1 + p2, v + p3, w − p4, w + p5.

constexpr int kProducts = 7, kQuarters = 4;
constexpr int64_t kSoon = 8;  // vectors

// The sums of quarters of the rows' values, s1 to s4.
template <int BLOCK>
void halve(const UnrolledHalves& h, int64_t first_part, int64_t end_part) {
  using V = typename Lanes<BLOCK>::Vector;
  for (int64_t part = first_part; part < end_part; ++part) {
    const float *left = h.all.values + part * h.all.stride, *right = left + h.parts * h.all.stride;
    const int64_t to = part * h.stride;
    for (int64_t at = 0; at < h.rows * BLOCK; at += BLOCK) {
      const V a11 = load<BLOCK>(left + at), a21 = load<BLOCK>(left + h.second * BLOCK + at);
      const V s1 = a21 + load<BLOCK>(right + h.second * BLOCK + at), s2 = s1 - a11;
      store<BLOCK>(h.sum(0) + to + at, s1);
      store<BLOCK>(h.sum(1) + to + at, s2);
      store<BLOCK>(h.sum(2) + to + at, a11 - a21);
      store<BLOCK>(h.sum(3) + to + at, load<BLOCK>(right + at) - s2);
    }
  }
}

// The factors of the seven products.
struct Factors {
  const float* left[kProducts];
  int64_t strides[kProducts];  // of the left ones, from part to part
  Filters right[kProducts];
};

// The sums t1 to t4 of the weights for GROUP blocks of outputs of each half, [sum][input][block][output].
template <int BLOCK, int GROUP>
void sums_of_weights(const Unrolled& c, int64_t parts, int64_t out, float* to) {
  using V = typename Lanes<BLOCK>::Vector;
  const int64_t filters = c.parts() * BLOCK * BLOCK, half = parts * BLOCK * BLOCK, other = c.out_blocks / 2 * filters, stride = half * GROUP;
  const float* from = c.weights + out * filters;
  for (int64_t at = 0; at < half; at += BLOCK) {
#pragma GCC unroll 4
    for (int k = 0; k < GROUP; ++k, to += BLOCK) {
      const float* b = from + k * filters + at;
      for (int quarter = 0; quarter < kQuarters; ++quarter) {
        fetch(b + quarter % 2 * half + quarter / 2 * other + kSoon * BLOCK);
        fetch_to_write(to + quarter * stride + kSoon * GROUP * BLOCK);
      }
      const V b12 = load<BLOCK>(b + other), b22 = load<BLOCK>(b + other + half);
      const V t1 = b12 - load<BLOCK>(b), t2 = b22 - t1;
      store<BLOCK>(to, t1);
      store<BLOCK>(to + stride, t2);
      store<BLOCK>(to + 2 * stride, b22 - b12);
      store<BLOCK>(to + 3 * stride, t2 - load<BLOCK>(b + half));
    }
  }
}

template <int BLOCK, int GROUP>
Factors factors(const Unrolled& c, const UnrolledHalves& h, int64_t out, const float* sums) {
  const int64_t filters = c.parts() * BLOCK * BLOCK, half = h.parts * BLOCK * BLOCK, stride = half * GROUP;
  const float *a11 = h.all.values, *a12 = a11 + h.parts * h.all.stride, *a22 = a12 + h.second * BLOCK;
  const float *b11 = c.weights + out * filters, *b22 = b11 + c.out_blocks / 2 * filters + half;
  const auto own = [filters](const float* b) { return Filters{b, 0, BLOCK, filters, true}; };
  const auto made = [=](int64_t number) { return Filters{sums + number * stride, 0, GROUP * BLOCK, BLOCK, false}; };
  const int64_t x = h.all.stride, s = h.stride;
  return {{a11, a12, h.sum(3), a22, h.sum(0), h.sum(1), h.sum(2)},
          {x, x, s, x, s, s, s},
          {own(b11), own(b11 + half), own(b22), made(3), made(0), made(1), made(2)}};
}

// ROWS rows and GROUP blocks of outputs of each half, to the end. With the first four products `lines` lines of each quarter of the
// weights of the next panel are fetched for each part, from `next` on.
template <int BLOCK, int ROWS, int GROUP>
RLFLOW_INLINE void strassen_step(const Unrolled& c, const UnrolledHalves& h, const Factors& f, const Ahead& next, int64_t begin, int64_t out) {
  using V = typename Lanes<BLOCK>::Vector;
  V p[kProducts][ROWS][GROUP];
  const int64_t half = h.parts * BLOCK * BLOCK, other = c.out_blocks / 2;
  int64_t above[ROWS], below[ROWS];
  find_places(c, h.all.first + begin, out, above);
  find_places(c, h.all.first + h.second + begin, out, below);
#pragma GCC unroll 1
  for (int number = 0; number < kProducts; ++number) {
    if (number >= kProducts - kQuarters) {
      const int quarter = kProducts - 1 - number;
      fetch_places<ROWS, GROUP>(c, quarter / 2 ? above : below, quarter % 2 * other * c.to.block);
    }
    V sums[ROWS][GROUP] = {};
    const Ahead ahead = {next.at + number % 2 * half + number / 2 * other * next.stride, next.stride, number < kQuarters ? next.lines : 0};
    accumulate<BLOCK, ROWS, GROUP>(f.left[number] + begin * BLOCK, f.strides[number], f.right[number], h.parts, ahead, sums);
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 4
      for (int k = 0; k < GROUP; ++k) p[number][row][k] = sums[row][k];
  }
  for (int k = 0; k < GROUP; ++k) {
    const V left = bias_of<BLOCK>(c, out + k), right = bias_of<BLOCK>(c, out + other + k);
    const int64_t here = k * c.to.block, there = here + other * c.to.block;
    for (int row = 0; row < ROWS; ++row) {
      const V u = p[0][row][k] + p[5][row][k], w = u + p[6][row][k], v = u + p[4][row][k];
      finish<BLOCK>(c, above[row] + here, p[0][row][k] + p[1][row][k], left);
      finish<BLOCK>(c, above[row] + there, v + p[2][row][k], right);
      finish<BLOCK>(c, below[row] + here, w - p[3][row][k], left);
      finish<BLOCK>(c, below[row] + there, w + p[4][row][k], right);
    }
  }
}

template <int BLOCK, int ROWS, int GROUP>
RLFLOW_INLINE void strassen_rows(int64_t count, const Unrolled& c, const UnrolledHalves& h, const Factors& f, const Ahead& next, int64_t begin,
                                 int64_t out) {
  if constexpr (ROWS > 1) {
    if (count < ROWS) return strassen_rows<BLOCK, ROWS - 1, GROUP>(count, c, h, f, next, begin, out);
  }
  strassen_step<BLOCK, ROWS, GROUP>(c, h, f, next, begin, out);
}

template <int BLOCK, int ROWS, int GROUP>
void strassen_panel(const Unrolled& c, const UnrolledHalves& h, int64_t out, float* memory) {
  sums_of_weights<BLOCK, GROUP>(c, h.parts, out, memory);
  const Factors f = factors<BLOCK, GROUP>(c, h, out, memory);
  constexpr int64_t LINES = BLOCK * BLOCK / kLine;
  const int64_t steps = (h.rows + ROWS - 1) / ROWS, lines = (LINES + steps - 1) / steps, filters = c.parts() * BLOCK * BLOCK;
  const float* const weights = c.weights + (out + GROUP) * filters;
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t begin = h.rows * step / steps, end = h.rows * (step + 1) / steps;
    const bool any = out + 2 * GROUP <= c.out_blocks / 2 && step * lines < LINES;
    strassen_rows<BLOCK, ROWS, GROUP>(end - begin, c, h, f, {weights + step * lines * h.parts * kLine, filters, any ? lines : 0}, begin, out);
  }
}

template <int BLOCK>
void strassen(const Unrolled& c, const UnrolledHalves& h, int64_t first_out, int64_t end_out, float* memory) {
  constexpr int ROWS = RLFLOW_ROWS(BLOCK), GROUP = RLFLOW_GROUP(BLOCK);
  int64_t out = first_out;
  for (; out + GROUP <= end_out; out += GROUP) strassen_panel<BLOCK, ROWS, GROUP>(c, h, out, memory);
  for (; out < end_out; ++out) strassen_panel<BLOCK, ROWS, 1>(c, h, out, memory);
}
