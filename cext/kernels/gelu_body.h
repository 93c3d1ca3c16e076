// Gelu by the error function; see routines.h. Included after product_body.h, under the same rules.

// z·P(z²) / Q(z²), a least-squares fit to erf on [-3.9, 3.9] whose largest error is 1.5e-8, and 3.3e-7 with its roundings; beyond,
// erf is 1 to single precision.
RLFLOW_INLINE Floats error_function(const Floats& z) {
  constexpr float P[] = {1.12837903f, 0.191933943f, 0.05296587f, 0.00383653353f, 0.000287442627f, 2.05035502e-06f};
  constexpr float Q[] = {1.0f, 0.503428811f, 0.114755172f, 0.015108536f, 0.00118163777f, 3.82296349e-05f};
  constexpr float kLimit = 3.9f;
  const Floats square = z * z, zero = {}, one = zero + 1.0f;
  Floats p = zero + P[5], q = zero + Q[5];
#pragma GCC unroll 8
  for (int k = 4; k >= 0; --k) {
    p = p * square + P[k];
    q = q * square + Q[k];
  }
  Floats value = z * p / q;
  value = value > one ? one : value;
  value = z > kLimit ? one : value;
  return z < -kLimit ? -one : value;
}

RLFLOW_INLINE Floats gelu(const Floats& x) {
  constexpr float kRootHalf = 0.707106781f;
  return x * 0.5f * (1.0f + error_function(x * kRootHalf));
}

inline void gelu_rows(const Gelu& g, int64_t first_row, int64_t end_row) {
  for (int64_t row = first_row; row < end_row; ++row) {
    const float* x = g.x + row * g.width;
    float* y = g.y + row * g.width;
    for (int64_t at = 0; at < g.width; at += kLanes) {
      const int64_t count = g.width - at;
      Floats value = load_some(x + at, count);
      if (g.bias) value += load_some(g.bias + at, count);
      store_some(y + at, gelu(value), count);
    }
  }
}
