// Winograd's transforms along one axis: TILE outputs by TAPS taps from POINTS = TILE + TAPS - 1 points, `STEP` vectors apart.
// Included by stages_body.h, under the same rules.

// Where polynomials are interpolated: at 0, at ± each of these, and at infinity. All are exact in binary. The error is 0.4
// times that of the usual 1 and 2 for two pairs, and 0.7 times that of 1/2, 1 and 2 for three.
template <int PAIRS>
struct Pairs;
template <>
struct Pairs<2> {
  static constexpr double at[2] = {0.75, 1.5};
};
template <>
struct Pairs<3> {
  static constexpr double at[3] = {0.5, 1, 1.5};
};

// The elementary symmetric polynomials of the pairs' squares, without those of the pair `left_out`.
template <int PAIRS>
struct Symmetric {
  double of[PAIRS + 1] = {1};

  constexpr explicit Symmetric(int left_out) {
    for (int k = 0; k < PAIRS; ++k)
      for (int j = PAIRS; j > 0 && k != left_out; --j) of[j] += of[j - 1] * Pairs<PAIRS>::at[k] * Pairs<PAIRS>::at[k];
  }
};

constexpr double power(double base, int exponent) { return exponent == 0 ? 1.0 : base * power(base, exponent - 1); }

// The product of a pair's distances to all other points; of the point 0 for pair -1.
template <int PAIRS>
constexpr double distances(int pair) {
  double found = pair < 0 ? 1.0 : 2.0 * power(Pairs<PAIRS>::at[pair], 2);
  for (int k = 0; k < PAIRS; ++k)
    if (k != pair) found *= (pair < 0 ? 0.0 : power(Pairs<PAIRS>::at[pair], 2)) - power(Pairs<PAIRS>::at[k], 2);
  return found;
}

// d[first + 2·count] − e1·d[first + 2·count − 2] + e2·… : every other input, by a polynomial in squares.
template <int PAIRS, int LEFT_OUT, int FIRST, class V>
RLFLOW_INLINE V alternating(const V* d) {
  constexpr Symmetric<PAIRS> e(LEFT_OUT);
  constexpr int COUNT = LEFT_OUT < 0 ? PAIRS : PAIRS - 1;
  V value = d[FIRST + 2 * COUNT];
#pragma GCC unroll 4
  for (int j = 1; j <= COUNT; ++j) value += d[FIRST + 2 * (COUNT - j)] * static_cast<float>(j % 2 ? -e.of[j] : e.of[j]);
  return value;
}

template <int PAIRS, int PAIR, int STEP, class V>
RLFLOW_INLINE void input_pairs(const V* in, V* d) {
  if constexpr (PAIR < PAIRS) {
    const V even = alternating<PAIRS, PAIR, 2>(in);
    const V odd = alternating<PAIRS, PAIR, 1>(in) * static_cast<float>(Pairs<PAIRS>::at[PAIR]);
    d[(1 + 2 * PAIR) * STEP] = even + odd;
    d[(2 + 2 * PAIR) * STEP] = even - odd;
    input_pairs<PAIRS, PAIR + 1, STEP>(in, d);
  }
}

// The windows' side.
template <int POINTS, class V>
struct Inputs {
  static constexpr int PAIRS = POINTS / 2 - 1;

  template <int STEP>
  static RLFLOW_INLINE void apply(V* d) {
    V in[POINTS];
#pragma GCC unroll 8
    for (int i = 0; i < POINTS; ++i) in[i] = d[i * STEP];
    d[0] = alternating<PAIRS, -1, 0>(in);
    input_pairs<PAIRS, 0, STEP>(in, d);
    d[(POINTS - 1) * STEP] = alternating<PAIRS, -1, 1>(in);
  }
};

// The outputs' and the weights' sides.
template <int TILE, int TAPS, class V>
struct Axis {
  static constexpr int POINTS = TILE + TAPS - 1, PAIRS = POINTS / 2 - 1;

  template <int STEP>
  static RLFLOW_INLINE void output(V* m) {
    V terms[2][PAIRS];  // even and odd in the point
#pragma GCC unroll 4
    for (int k = 0; k < PAIRS; ++k) {
      terms[0][k] = m[(1 + 2 * k) * STEP] + m[(2 + 2 * k) * STEP];
      terms[1][k] = m[(1 + 2 * k) * STEP] - m[(2 + 2 * k) * STEP];
    }
    const V first = m[0], last = m[(POINTS - 1) * STEP];
#pragma GCC unroll 4
    for (int i = 0; i < TILE; ++i) {
      V value = terms[i % 2][0] * static_cast<float>(power(Pairs<PAIRS>::at[0], i));
#pragma GCC unroll 4
      for (int k = 1; k < PAIRS; ++k) value += terms[i % 2][k] * static_cast<float>(power(Pairs<PAIRS>::at[k], i));
      m[i * STEP] = i == 0 ? first + value : i == TILE - 1 ? value + last : value;
    }
  }
  // A row (1, p, p², …) / distances(p) a point p; then the point at infinity.
  template <int FROM, int TO>
  static RLFLOW_INLINE void filter(const V* g, V* u) {
    u[0] = g[0] * static_cast<float>(1 / distances<PAIRS>(-1));
#pragma GCC unroll 4
    for (int k = 0; k < PAIRS; ++k) {
      V even = {}, odd = {};
#pragma GCC unroll 8
      for (int tap = 0; tap < TAPS; ++tap)
        (tap % 2 ? odd : even) += g[tap * FROM] * static_cast<float>(power(Pairs<PAIRS>::at[k], tap) / distances<PAIRS>(k));
      u[(1 + 2 * k) * TO] = even + odd;
      u[(2 + 2 * k) * TO] = even - odd;
    }
    u[(POINTS - 1) * TO] = g[(TAPS - 1) * FROM];
  }
};

// At 0, ±1 and infinity, scaled so that there is nothing to multiply.
template <class V>
struct Inputs<4, V> {
  template <int STEP>
  static RLFLOW_INLINE void apply(V* d) {
    const V d0 = d[0], d1 = d[STEP], d2 = d[2 * STEP], d3 = d[3 * STEP];
    d[0] = d0 - d2;
    d[STEP] = d1 + d2;
    d[2 * STEP] = d2 - d1;
    d[3 * STEP] = d1 - d3;
  }
};

template <class V>
struct Axis<2, 3, V> {
  template <int STEP>
  static RLFLOW_INLINE void output(V* m) {
    const V m0 = m[0], m1 = m[STEP], m2 = m[2 * STEP], m3 = m[3 * STEP];
    m[0] = m0 + m1 + m2;
    m[STEP] = m1 - m2 - m3;
  }
  template <int FROM, int TO>
  static RLFLOW_INLINE void filter(const V* g, V* u) {
    const V even = (g[0] + g[2 * FROM]) * 0.5f, odd = g[FROM] * 0.5f;
    u[0] = g[0];
    u[TO] = even + odd;
    u[2 * TO] = even - odd;
    u[3 * TO] = g[2 * FROM];
  }
};

// No transform where there is one tap.
template <class V>
struct Inputs<1, V> {
  template <int STEP>
  static RLFLOW_INLINE void apply(V*) {}
};
template <class V>
struct Axis<1, 1, V> {
  template <int STEP>
  static RLFLOW_INLINE void output(V*) {}
  template <int FROM, int TO>
  static RLFLOW_INLINE void filter(const V* g, V* u) {
    u[0] = g[0];
  }
};
