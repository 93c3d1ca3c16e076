// The stages, written once in vector types of GCC and Clang; a file per instruction set includes this inside a namespace
// of its own, after it has switched the instruction set on. So nothing here may call a library's template or inline
// function: the linker would keep one instance of it for all instruction sets.
//
// The includer defines RLFLOW_ROWS(block) and RLFLOW_GROUP(block): the tiles, and the blocks of output channels, whose
// sums one inner loop keeps in registers.

#define RLFLOW_INLINE inline __attribute__((always_inline))

template <int BLOCK>
struct Lanes {
  typedef float Vector __attribute__((vector_size(BLOCK * sizeof(float)), may_alias));
  typedef float Unaligned __attribute__((vector_size(BLOCK * sizeof(float)), aligned(sizeof(float)), may_alias));
};

template <int BLOCK>
RLFLOW_INLINE typename Lanes<BLOCK>::Vector load(const float* from) {
  return *reinterpret_cast<const typename Lanes<BLOCK>::Unaligned*>(from);
}

template <int BLOCK>
RLFLOW_INLINE void store(float* to, const typename Lanes<BLOCK>::Vector& value) {
  *reinterpret_cast<typename Lanes<BLOCK>::Unaligned*>(to) = value;
}

// Asks for a cache line before it is needed. The stages read and write at 16 or 36 places at once, more than a processor
// foresees by itself.
RLFLOW_INLINE void fetch(const float* at) { __builtin_prefetch(at, 0, 3); }
RLFLOW_INLINE void fetch_to_write(float* at) { __builtin_prefetch(at, 1, 3); }
RLFLOW_INLINE void fetch_far(const float* at) { __builtin_prefetch(at, 0, 2); }  // into the second level

constexpr int64_t kAhead = 2;       // tiles
constexpr int64_t kStepsAhead = 8;  // input channels

// --- transforms along one axis: TILE outputs from TILE + 2 points, `STEP` vectors apart ------------------------------

template <int TILE, class V>
struct Axis;

template <class V>
struct Axis<2, V> {
  template <int STEP>
  static RLFLOW_INLINE void input(V* d) {
    const V d0 = d[0], d1 = d[STEP], d2 = d[2 * STEP], d3 = d[3 * STEP];
    d[0] = d0 - d2;
    d[STEP] = d1 + d2;
    d[2 * STEP] = d2 - d1;
    d[3 * STEP] = d1 - d3;
  }
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

template <class V>
struct Axis<4, V> {
  static constexpr float a = kNear, b = kFar, aa = kNear * kNear, bb = kFar * kFar;
  static constexpr float aaa = kNear * kNear * kNear, bbb = kFar * kFar * kFar;
  static constexpr float product = kNear * kNear * kFar * kFar, sum = kNear * kNear + kFar * kFar;

  template <int STEP>
  static RLFLOW_INLINE void input(V* d) {
    const V d0 = d[0], d1 = d[STEP], d2 = d[2 * STEP], d3 = d[3 * STEP], d4 = d[4 * STEP], d5 = d[5 * STEP];
    const V near_even = d4 - d2 * bb, near_odd = (d3 - d1 * bb) * a;
    const V far_even = d4 - d2 * aa, far_odd = (d3 - d1 * aa) * b;
    d[0] = d0 * product - d2 * sum + d4;
    d[STEP] = near_even + near_odd;
    d[2 * STEP] = near_even - near_odd;
    d[3 * STEP] = far_even + far_odd;
    d[4 * STEP] = far_even - far_odd;
    d[5 * STEP] = d1 * product - d3 * sum + d5;
  }
  template <int STEP>
  static RLFLOW_INLINE void output(V* m) {
    const V near_even = m[STEP] + m[2 * STEP], near_odd = m[STEP] - m[2 * STEP];
    const V far_even = m[3 * STEP] + m[4 * STEP], far_odd = m[3 * STEP] - m[4 * STEP];
    m[0] = m[0] + near_even + far_even;
    m[STEP] = near_odd * a + far_odd * b;
    m[2 * STEP] = near_even * aa + far_even * bb;
    m[3 * STEP] = near_odd * aaa + far_odd * bbb + m[5 * STEP];
  }
  // A row (1, p, p²) / N(p) a point p, N(p) the product of p's distances to the other points; then the point at infinity.
  template <int FROM, int TO>
  static RLFLOW_INLINE void filter(const V* g, V* u) {
    constexpr float origin = 1 / (kNear * kNear * kFar * kFar);
    constexpr double n = 1 / (2 * kNear * kNear * (kNear * kNear - kFar * kFar)), f = 1 / (2 * kFar * kFar * (kFar * kFar - kNear * kNear));
    constexpr float near_0 = n, near_1 = n * kNear, near_2 = n * kNear * kNear, far_0 = f, far_1 = f * kFar, far_2 = f * kFar * kFar;
    const V near_even = g[0] * near_0 + g[2 * FROM] * near_2, near_odd = g[FROM] * near_1;
    const V far_even = g[0] * far_0 + g[2 * FROM] * far_2, far_odd = g[FROM] * far_1;
    u[0] = g[0] * origin;
    u[TO] = near_even + near_odd;
    u[2 * TO] = near_even - near_odd;
    u[3 * TO] = far_even + far_odd;
    u[4 * TO] = far_even - far_odd;
    u[5 * TO] = g[2 * FROM];
  }
};

// --- where a tile lies ------------------------------------------------------------------------------------------------

struct Place {
  int64_t image, row, column;

  RLFLOW_INLINE Place(const Geometry& g, int64_t tile)
      : image(tile / (g.tiles_y * g.tiles_x)), row(tile / g.tiles_x % g.tiles_y), column(tile % g.tiles_x) {}

  RLFLOW_INLINE void next(const Geometry& g) {
    if (++column < g.tiles_x) return;
    column = 0;
    if (++row < g.tiles_y) return;
    row = 0;
    ++image;
  }
};

// --- stage 1 ------------------------------------------------------------------------------------------------------------

template <int BLOCK, int N, class V>
RLFLOW_INLINE void read_window(const Geometry& g, const float* plane, int64_t top, int64_t left, V* window) {
  if (top >= 0 && left >= 0 && top + N <= g.height && left + N <= g.width) {
    for (int i = 0; i < N; ++i)
      for (int j = 0; j < N; ++j) window[i * N + j] = load<BLOCK>(plane + ((top + i) * g.width + left + j) * BLOCK);
    return;
  }
  for (int i = 0; i < N; ++i) {
    const bool row_inside = top + i >= 0 && top + i < g.height;
    for (int j = 0; j < N; ++j) {
      const bool inside = row_inside && left + j >= 0 && left + j < g.width;
      window[i * N + j] = inside ? load<BLOCK>(plane + ((top + i) * g.width + left + j) * BLOCK) : V{};
    }
  }
}

template <int TILE, int BLOCK>
void transform_input(const Geometry& g, const Chunk& chunk, const float* x, int64_t first_block, int64_t end_block) {
  using V = typename Lanes<BLOCK>::Vector;
  constexpr int N = TILE + 2;
  for (int64_t block = first_block; block < end_block; ++block) {
    Place place(g, chunk.first);
    for (int64_t tile = 0; tile < chunk.count; ++tile, place.next(g)) {
      const float* plane = x + (place.image * g.in_blocks + block) * g.height * g.width * BLOCK;
      V window[N * N];
      read_window<BLOCK, N>(g, plane, place.row * TILE - g.pad_top, place.column * TILE - g.pad_left, window);
      for (int j = 0; j < N; ++j) Axis<TILE, V>::template input<N>(window + j);
      float* to = chunk.v + (block * chunk.count + tile) * BLOCK;
      for (int i = 0; i < N * N; ++i) fetch_to_write(to + i * chunk.v_stride + kAhead * BLOCK);
      for (int i = 0; i < N; ++i) {
        Axis<TILE, V>::template input<1>(window + i * N);
        for (int j = 0; j < N; ++j) store<BLOCK>(to + (i * N + j) * chunk.v_stride, window[i * N + j]);
      }
    }
  }
}

// --- the weights --------------------------------------------------------------------------------------------------------

template <int TILE, int BLOCK>
void transform_weights(const Geometry& g, const Panel& panel, const float* w) {
  using V = typename Lanes<BLOCK>::Vector;
  constexpr int N = TILE + 2;
  constexpr int64_t TAP = BLOCK * BLOCK, FILTERS = 9 * TAP;
  float* to = panel.u;
  for (int64_t in = panel.first_in; in < panel.end_in; ++in) {
    for (int64_t lane = 0; lane < BLOCK; ++lane) {
      for (int64_t k = 0; k < panel.width; ++k, to += BLOCK) {
        const float* from = w + ((panel.first_out + k) * g.in_blocks + in) * FILTERS + lane * BLOCK;
        V taps[9], half[N * 3];
        for (int i = 0; i < 9; ++i) {
          taps[i] = load<BLOCK>(from + i * TAP);
          fetch(from + FILTERS + i * TAP);
        }
        for (int i = 0; i < N * N; ++i) fetch_to_write(to + i * panel.u_stride + kAhead * 2 * BLOCK);
        for (int j = 0; j < 3; ++j) Axis<TILE, V>::template filter<3, 3>(taps + j, half + j);
        for (int i = 0; i < N; ++i) {
          V row[N];
          Axis<TILE, V>::template filter<1, 1>(half + i * 3, row);
          for (int j = 0; j < N; ++j) store<BLOCK>(to + (i * N + j) * panel.u_stride, row[j]);
        }
      }
    }
  }
}

// --- stage 2 ------------------------------------------------------------------------------------------------------------

constexpr int64_t kLine = 16;  // floats of a cache line

struct Ahead {
  const float* at;
  int64_t lines;  // with each block
};

// ROWS tiles times GROUP blocks of output channels; `v_next`, `m_next`: floats from one block of channels to the next.
// `more`: the products are added to what is there. `ahead`: weights that the next panel needs; a little is fetched with each
// block, while the arithmetic keeps the memory idle.
template <int BLOCK, int ROWS, int GROUP>
RLFLOW_INLINE void inner_product(const float* v, int64_t v_next, const float* u, int64_t in_blocks, float* m, int64_t m_next, bool more,
                                 Ahead ahead) {
  using V = typename Lanes<BLOCK>::Vector;
  V sums[ROWS][GROUP] = {};
  if (more) {
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 4
      for (int k = 0; k < GROUP; ++k) sums[row][k] = load<BLOCK>(m + k * m_next + row * BLOCK);
  }
  for (int64_t block = 0; block < in_blocks; ++block, v += v_next) {
    for (int64_t line = 0; line < ahead.lines; ++line, ahead.at += kLine) fetch_far(ahead.at);
    for (int lane = 0; lane < BLOCK; ++lane, u += GROUP * BLOCK) {
      V weights[GROUP];
#pragma GCC unroll 4
      for (int k = 0; k < GROUP; ++k) {
        weights[k] = load<BLOCK>(u + k * BLOCK);
        fetch(u + (kStepsAhead * GROUP + k) * BLOCK);
      }
      fetch(v + v_next + lane * BLOCK);
#pragma GCC unroll 16
      for (int row = 0; row < ROWS; ++row) {
        const float value = v[row * BLOCK + lane];
#pragma GCC unroll 4
        for (int k = 0; k < GROUP; ++k) sums[row][k] += weights[k] * value;
      }
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 4
    for (int k = 0; k < GROUP; ++k) store<BLOCK>(m + k * m_next + row * BLOCK, sums[row][k]);
}

template <int BLOCK, int ROWS, int GROUP>
RLFLOW_INLINE void some_rows(int64_t rows, const float* v, int64_t v_next, const float* u, int64_t in_blocks, float* m, int64_t m_next, bool more,
                             Ahead ahead) {
  if constexpr (ROWS > 1) {
    if (rows < ROWS) return some_rows<BLOCK, ROWS - 1, GROUP>(rows, v, v_next, u, in_blocks, m, m_next, more, ahead);
  }
  inner_product<BLOCK, ROWS, GROUP>(v, v_next, u, in_blocks, m, m_next, more, ahead);
}

// All tiles of a chunk times one group of output channels, in steps that are as equal as possible: a step of one tile
// would take nearly as long as one of many.
template <int BLOCK, int ROWS, int GROUP>
void all_rows(int64_t count, const float* v, const float* u, int64_t in_blocks, float* m, bool more, const float* next, int64_t next_lines) {
  const int64_t steps = (count + ROWS - 1) / ROWS, stride = count * BLOCK;
  const int64_t lines = (next_lines + steps * in_blocks - 1) / (steps * in_blocks);
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t begin = count * step / steps, end = count * (step + 1) / steps;
    some_rows<BLOCK, ROWS, GROUP>(end - begin, v + begin * BLOCK, stride, u, in_blocks, m + begin * BLOCK, stride, more,
                                  {next + step * in_blocks * lines * kLine, lines});
  }
}

template <int TILE, int BLOCK>
void multiply(const Chunk& chunk, const Panel& panel) {
  constexpr int ROWS = RLFLOW_ROWS(BLOCK), GROUP = RLFLOW_GROUP(BLOCK), POINTS = (TILE + 2) * (TILE + 2);
  const int64_t in_blocks = panel.end_in - panel.first_in;
  const int64_t lines = panel.next ? (panel.next_lines * panel.width + POINTS - 1) / POINTS : 0;
  for (int64_t point = 0; point < POINTS; ++point) {
    const float* v = chunk.v + point * chunk.v_stride + panel.first_in * chunk.count * BLOCK;
    const float* u = panel.u + point * panel.u_stride;
    float* m = panel.m + point * panel.m_stride;
    const int64_t line = lines * point, region = line / panel.next_lines;
    const float* next = panel.next + region * panel.next_stride + (line - region * panel.next_lines) * kLine;
    if (panel.width == GROUP) all_rows<BLOCK, ROWS, GROUP>(chunk.count, v, u, in_blocks, m, panel.first_in > 0, next, lines);
    else all_rows<BLOCK, ROWS, 1>(chunk.count, v, u, in_blocks, m, panel.first_in > 0, next, lines);
  }
}

// --- stage 3 ------------------------------------------------------------------------------------------------------------

template <class V>
RLFLOW_INLINE V activated(const V& given, const Epilogue& e) {
  const V zero = {};
  V value = given;
  switch (e.activation) {
    case Activation::none: return value;
    case Activation::relu: return value < zero ? zero : value;
    case Activation::leaky_relu: return value < zero ? value * e.alpha : value;
    case Activation::hard_sigmoid: {
      value = value * e.alpha + e.beta;
      const V one = zero + 1.0f;
      value = value < zero ? zero : value;
      return value > one ? one : value;
    }
    case Activation::clip: {
      const V low = zero + e.alpha, high = zero + e.beta;
      value = value < low ? low : value;
      return value > high ? high : value;
    }
  }
  return value;
}

template <int TILE, int BLOCK>
void transform_output(const Geometry& g, const Chunk& chunk, const Panel& panel, const Epilogue& e, float* y) {
  using V = typename Lanes<BLOCK>::Vector;
  constexpr int N = TILE + 2;
  for (int64_t k = 0; k < panel.width; ++k) {
    const int64_t block = panel.first_out + k;
    const V bias = e.bias ? load<BLOCK>(e.bias + block * BLOCK) : V{};
    Place place(g, chunk.first);
    for (int64_t tile = 0; tile < chunk.count; ++tile, place.next(g)) {
      const float* from = panel.m + (k * chunk.count + tile) * BLOCK;
      V points[N * N];
      for (int i = 0; i < N * N; ++i) {
        points[i] = load<BLOCK>(from + i * panel.m_stride);
        fetch(from + i * panel.m_stride + kAhead * BLOCK);
      }
      for (int j = 0; j < N; ++j) Axis<TILE, V>::template output<N>(points + j);
      const int64_t top = place.row * TILE, left = place.column * TILE;
      const int64_t rows = g.out_height - top < TILE ? g.out_height - top : TILE;
      const int64_t columns = g.out_width - left < TILE ? g.out_width - left : TILE;
      const int64_t plane = (place.image * g.out_blocks + block) * g.out_height * g.out_width;
      for (int64_t i = 0; i < rows; ++i) {
        Axis<TILE, V>::template output<1>(points + i * N);
        const int64_t at = (plane + (top + i) * g.out_width + left) * BLOCK;
        for (int64_t j = 0; j < columns; ++j) {
          V value = points[i * N + j] + bias;
          if (e.sum) value += load<BLOCK>(e.sum + at + j * BLOCK);
          store<BLOCK>(y + at + j * BLOCK, activated(value, e));
        }
      }
    }
  }
}

template <int TILE, int BLOCK>
const Stages* table() {
  static constexpr Stages stages = {RLFLOW_GROUP(BLOCK), transform_input<TILE, BLOCK>, transform_weights<TILE, BLOCK>, multiply<TILE, BLOCK>,
                                    transform_output<TILE, BLOCK>};
  return &stages;
}

inline const Stages* chosen(int tile, int block) {
  if (block == 8) return tile == 2 ? table<2, 8>() : tile == 4 ? table<4, 8>() : nullptr;
  if (block == 16) return tile == 2 ? table<2, 16>() : tile == 4 ? table<4, 16>() : nullptr;
  return nullptr;
}
