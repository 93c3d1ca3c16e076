// The stages, written once in vector types of GCC and Clang; a file per instruction set includes this inside a namespace
// of its own, after it has switched the instruction set on. So nothing here may call a library's template or inline
// function: the linker would keep one instance of it for all instruction sets.
//
// The includer defines what suits the instruction set:
//   RLFLOW_ROWS(block), RLFLOW_GROUP(block): the tiles, and the blocks of output channels, whose sums one inner loop keeps in
//     registers;
//   RLFLOW_LEAST_TILES, RLFLOW_LEAST_GIVEN, RLFLOW_LEAST_SHARED, RLFLOW_PART(points): see Stages, in stages.h;
//   RLFLOW_UNROLLED: the most vectors of a window that are worked on in code without loops;
//   RLFLOW_LANES: floats of a vector where no block says so.

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

#include "axes_body.h"

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

// Whether a window, of so many vectors, is worked on as a whole, in code without loops. Where the registers cannot hold it, a
// compiler moves each vector through memory several times.
constexpr bool is_small(int vectors) { return vectors <= RLFLOW_UNROLLED; }

template <int BLOCK, int ROWS, int COLUMNS, class V>
RLFLOW_INLINE void read_window(const Geometry& g, const float* plane, int64_t top, int64_t left, V* window) {
  if (top >= 0 && left >= 0 && top + ROWS <= g.height && left + COLUMNS <= g.width) {
    for (int i = 0; i < ROWS; ++i)
      for (int j = 0; j < COLUMNS; ++j) window[i * COLUMNS + j] = load<BLOCK>(plane + ((top + i) * g.width + left + j) * BLOCK);
    return;
  }
  for (int i = 0; i < ROWS; ++i) {
    const bool row_inside = top + i >= 0 && top + i < g.height;
    for (int j = 0; j < COLUMNS; ++j) {
      const bool inside = row_inside && left + j >= 0 && left + j < g.width;
      window[i * COLUMNS + j] = inside ? load<BLOCK>(plane + ((top + i) * g.width + left + j) * BLOCK) : V{};
    }
  }
}

// A window to V, `stride` floats from point to point.
template <int BLOCK, int ROWS, int COLUMNS>
RLFLOW_INLINE void small_window(const Geometry& g, const float* plane, int64_t top, int64_t left, float* to, int64_t stride) {
  using V = typename Lanes<BLOCK>::Vector;
  V window[ROWS * COLUMNS];
  read_window<BLOCK, ROWS, COLUMNS>(g, plane, top, left, window);
  for (int j = 0; j < COLUMNS; ++j) Inputs<ROWS, V>::template apply<COLUMNS>(window + j);
  for (int i = 0; i < ROWS * COLUMNS; ++i) fetch_to_write(to + i * stride + kAhead * BLOCK);
  for (int i = 0; i < ROWS; ++i) {
    Inputs<COLUMNS, V>::template apply<1>(window + i * COLUMNS);
    for (int j = 0; j < COLUMNS; ++j) store<BLOCK>(to + (i * COLUMNS + j) * stride, window[i * COLUMNS + j]);
  }
}

// The same, a column and then a row at a time, each of which stays in registers.
template <int BLOCK, int ROWS, int COLUMNS>
RLFLOW_INLINE void large_window(const Geometry& g, const float* plane, int64_t top, int64_t left, float* to, int64_t stride) {
  using V = typename Lanes<BLOCK>::Vector;
  V copied[ROWS * COLUMNS], half[ROWS * COLUMNS];
  const float* from = plane + (top * g.width + left) * BLOCK;
  int64_t width = g.width * BLOCK;
  if (top < 0 || left < 0 || top + ROWS > g.height || left + COLUMNS > g.width) {
    read_window<BLOCK, ROWS, COLUMNS>(g, plane, top, left, copied);
    from = reinterpret_cast<const float*>(copied);
    width = COLUMNS * BLOCK;
  }
#pragma GCC unroll 1
  for (int j = 0; j < COLUMNS; ++j) {
    V column[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) column[i] = load<BLOCK>(from + i * width + j * BLOCK);
    Inputs<ROWS, V>::template apply<1>(column);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) half[i * COLUMNS + j] = column[i];
  }
#pragma GCC unroll 1
  for (int i = 0; i < ROWS; ++i, to += COLUMNS * stride) {
    V row[COLUMNS];
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; ++j) row[j] = half[i * COLUMNS + j];
    Inputs<COLUMNS, V>::template apply<1>(row);
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; ++j) {
      fetch_to_write(to + j * stride + kAhead * BLOCK);
      store<BLOCK>(to + j * stride, row[j]);
    }
  }
}

template <int TILE_Y, int TILE_X, int TAPS_Y, int TAPS_X, int BLOCK>
void transform_input(const Geometry& g, const Chunk& chunk, const float* x, int64_t first_block, int64_t end_block) {
  constexpr int ROWS = TILE_Y + TAPS_Y - 1, COLUMNS = TILE_X + TAPS_X - 1;
  for (int64_t block = first_block; block < end_block; ++block) {
    Place place(g, chunk.first);
    for (int64_t tile = 0; tile < chunk.count; ++tile, place.next(g)) {
      const float* plane = x + (place.image * g.in_blocks + block) * g.height * g.width * BLOCK;
      const int64_t top = place.row * TILE_Y - g.pad_top, left = place.column * TILE_X - g.pad_left;
      float* to = chunk.v + (block * chunk.count + tile) * BLOCK;
      if constexpr (is_small(ROWS * COLUMNS)) small_window<BLOCK, ROWS, COLUMNS>(g, plane, top, left, to, chunk.v_stride);
      else large_window<BLOCK, ROWS, COLUMNS>(g, plane, top, left, to, chunk.v_stride);
    }
  }
}

// --- the weights --------------------------------------------------------------------------------------------------------

template <int TILE_Y, int TILE_X, int TAPS_Y, int TAPS_X, int BLOCK>
void transform_weights(const Geometry& g, const Panel& panel, const float* w, float* u) {
  using V = typename Lanes<BLOCK>::Vector;
  constexpr int ROWS = TILE_Y + TAPS_Y - 1, COLUMNS = TILE_X + TAPS_X - 1, TAPS = TAPS_Y * TAPS_X;
  constexpr int64_t TAP = BLOCK * BLOCK, FILTERS = TAPS * TAP;
  float* to = u;
  for (int64_t in = panel.first_in; in < panel.end_in; ++in) {
    for (int64_t lane = 0; lane < BLOCK; ++lane) {
      for (int64_t k = 0; k < panel.width; ++k, to += BLOCK) {
        const float* from = w + ((panel.first_out + k) * g.in_blocks + in) * FILTERS + lane * BLOCK;
        V taps[TAPS], half[ROWS * TAPS_X];
        for (int i = 0; i < TAPS; ++i) {
          taps[i] = load<BLOCK>(from + i * TAP);
          fetch(from + FILTERS + i * TAP);
        }
        for (int i = 0; i < ROWS * COLUMNS; ++i) fetch_to_write(to + i * panel.filters.point + kAhead * 2 * BLOCK);
        for (int j = 0; j < TAPS_X; ++j) Axis<TILE_Y, TAPS_Y, V>::template filter<TAPS_X, TAPS_X>(taps + j, half + j);
        for (int i = 0; i < ROWS; ++i) {
          V row[COLUMNS];
          Axis<TILE_X, TAPS_X, V>::template filter<1, 1>(half + i * TAPS_X, row);
          for (int j = 0; j < COLUMNS; ++j) store<BLOCK>(to + (i * COLUMNS + j) * panel.filters.point, row[j]);
        }
      }
    }
  }
}

// --- stage 2 ------------------------------------------------------------------------------------------------------------

constexpr int64_t kLine = 16;  // floats of a cache line

// What is needed soon: from `at` on, of each of a group's blocks of outputs, `stride` floats apart, so many cache lines with
// each block of inputs.
struct Ahead {
  const float* at;
  int64_t stride, lines;
};

// Adds to the sums of ROWS tiles and GROUP blocks of output channels; `v_next`: floats from one block of input channels to the
// next. `ahead`: weights that the next point or panel needs; a little is fetched with each block, while the arithmetic keeps
// the memory idle.
template <int BLOCK, int ROWS, int GROUP>
RLFLOW_INLINE void accumulate(const float* v, int64_t v_next, const Filters& f, int64_t in_blocks, Ahead ahead,
                              typename Lanes<BLOCK>::Vector (&sums)[ROWS][GROUP]) {
  const float* u = f.u;
  for (int64_t block = 0; block < in_blocks; ++block, v += v_next) {
    for (int64_t line = 0; line < ahead.lines; ++line, ahead.at += kLine)
      for (int k = 0; k < GROUP; ++k) fetch_far(ahead.at + k * ahead.stride);
    for (int lane = 0; lane < BLOCK; ++lane, u += f.channel) {
      typename Lanes<BLOCK>::Vector weights[GROUP];
#pragma GCC unroll 4
      for (int k = 0; k < GROUP; ++k) {
        weights[k] = load<BLOCK>(u + k * f.block);
        fetch(u + k * f.block + kStepsAhead * f.channel);
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
}

// ROWS tiles times GROUP blocks of output channels; `v_next`, `m_next`: floats from one block of channels to the next.
// `more`: the products are added to what is there.
template <int BLOCK, int ROWS, int GROUP>
RLFLOW_INLINE void inner_product(const float* v, int64_t v_next, const Filters& f, int64_t in_blocks, float* m, int64_t m_next, bool more,
                                 Ahead ahead) {
  using V = typename Lanes<BLOCK>::Vector;
  V sums[ROWS][GROUP] = {};
  if (more) {
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 4
      for (int k = 0; k < GROUP; ++k) sums[row][k] = load<BLOCK>(m + k * m_next + row * BLOCK);
  }
  accumulate<BLOCK, ROWS, GROUP>(v, v_next, f, in_blocks, ahead, sums);
#pragma GCC unroll 16
  for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 4
    for (int k = 0; k < GROUP; ++k) store<BLOCK>(m + k * m_next + row * BLOCK, sums[row][k]);
}

template <int BLOCK, int ROWS, int GROUP>
RLFLOW_INLINE void some_rows(int64_t rows, const float* v, int64_t v_next, const Filters& f, int64_t in_blocks, float* m, int64_t m_next, bool more,
                             Ahead ahead) {
  if constexpr (ROWS > 1) {
    if (rows < ROWS) return some_rows<BLOCK, ROWS - 1, GROUP>(rows, v, v_next, f, in_blocks, m, m_next, more, ahead);
  }
  inner_product<BLOCK, ROWS, GROUP>(v, v_next, f, in_blocks, m, m_next, more, ahead);
}

// All tiles of a chunk times one group of output channels, in steps that are as equal as possible: a step of one tile
// would take nearly as long as one of many.
template <int BLOCK, int ROWS, int GROUP>
void all_rows(int64_t count, const float* v, const Filters& f, int64_t in_blocks, float* m, bool more, Ahead ahead) {
  const int64_t steps = (count + ROWS - 1) / ROWS, stride = count * BLOCK;
  const int64_t lines = (ahead.lines + steps * in_blocks - 1) / (steps * in_blocks);
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t begin = count * step / steps, end = count * (step + 1) / steps;
    some_rows<BLOCK, ROWS, GROUP>(end - begin, v + begin * BLOCK, stride, f, in_blocks, m + begin * BLOCK, stride, more,
                                  {ahead.at + step * in_blocks * lines * kLine, ahead.stride, lines});
  }
}

// What the product of a point fetches: its part of the weights that the next panel is made of; or the next point of U that is
// given, after the last point the next panel's first.
template <int BLOCK>
RLFLOW_INLINE Ahead ahead_of(const Chunk& chunk, const Panel& panel, int64_t point) {
  const Filters& f = panel.filters;
  if (f.given) {
    const float* at = point + 1 < chunk.points ? f.u + (point + 1) * f.point : f.u + panel.width * f.block;
    return {at, f.block, (panel.end_in - panel.first_in) * BLOCK * BLOCK / kLine};
  }
  const int64_t lines = panel.next ? (panel.next_lines + chunk.points - 1) / chunk.points : 0;
  return {panel.next + lines * point * kLine, panel.next_stride, lines};
}

template <int BLOCK>
void multiply(const Chunk& chunk, const Panel& panel) {
  constexpr int ROWS = RLFLOW_ROWS(BLOCK), GROUP = RLFLOW_GROUP(BLOCK);
  const int64_t in_blocks = panel.end_in - panel.first_in;
  for (int64_t point = 0; point < chunk.points; ++point) {
    const float* v = chunk.v + point * chunk.v_stride + panel.first_in * chunk.count * BLOCK;
    float* m = panel.m + point * panel.m_stride;
    Filters f = panel.filters;
    f.u += point * f.point;
    const Ahead ahead = ahead_of<BLOCK>(chunk, panel, point);
    if (panel.width == GROUP) all_rows<BLOCK, ROWS, GROUP>(chunk.count, v, f, in_blocks, m, panel.first_in > 0, ahead);
    else all_rows<BLOCK, ROWS, 1>(chunk.count, v, f, in_blocks, m, panel.first_in > 0, ahead);
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

// A tile's points of M, `stride` floats from one to the next, to its rows, each of which has COLUMNS vectors to go.
template <int TILE_Y, int TAPS_Y, int COLUMNS, int BLOCK>
RLFLOW_INLINE void columns_of_tile(const float* from, int64_t stride, typename Lanes<BLOCK>::Vector* half) {
  using V = typename Lanes<BLOCK>::Vector;
  constexpr int ROWS = TILE_Y + TAPS_Y - 1;
  if constexpr (is_small(ROWS * COLUMNS)) {
    for (int i = 0; i < ROWS * COLUMNS; ++i) {
      half[i] = load<BLOCK>(from + i * stride);
      fetch(from + i * stride + kAhead * BLOCK);
    }
    for (int j = 0; j < COLUMNS; ++j) Axis<TILE_Y, TAPS_Y, V>::template output<COLUMNS>(half + j);
  } else {
#pragma GCC unroll 1
    for (int j = 0; j < COLUMNS; ++j, from += stride) {
      V column[ROWS];
#pragma GCC unroll 8
      for (int i = 0; i < ROWS; ++i) {
        column[i] = load<BLOCK>(from + i * COLUMNS * stride);
        fetch(from + i * COLUMNS * stride + kAhead * BLOCK);
      }
      Axis<TILE_Y, TAPS_Y, V>::template output<1>(column);
#pragma GCC unroll 8
      for (int i = 0; i < TILE_Y; ++i) half[i * COLUMNS + j] = column[i];
    }
  }
}

template <int TILE_Y, int TILE_X, int TAPS_Y, int TAPS_X, int BLOCK>
void transform_output(const Geometry& g, const Chunk& chunk, const Panel& panel, const Epilogue& e, float* y) {
  using V = typename Lanes<BLOCK>::Vector;
  constexpr int ROWS = TILE_Y + TAPS_Y - 1, COLUMNS = TILE_X + TAPS_X - 1;
  for (int64_t k = 0; k < panel.width; ++k) {
    const int64_t block = panel.first_out + k;
    const V bias = e.bias ? load<BLOCK>(e.bias + block * BLOCK) : V{};
    Place place(g, chunk.first);
    for (int64_t tile = 0; tile < chunk.count; ++tile, place.next(g)) {
      const float* from = panel.m + (k * chunk.count + tile) * BLOCK;
      V points[ROWS * COLUMNS];
      columns_of_tile<TILE_Y, TAPS_Y, COLUMNS, BLOCK>(from, panel.m_stride, points);
      const int64_t top = place.row * TILE_Y, left = place.column * TILE_X;
      const int64_t rows = g.out_height - top < TILE_Y ? g.out_height - top : TILE_Y;
      const int64_t columns = g.out_width - left < TILE_X ? g.out_width - left : TILE_X;
      const int64_t plane = (place.image * g.out_blocks + block) * g.out_height * g.out_width;
      for (int64_t i = 0; i < rows; ++i) {
        Axis<TILE_X, TAPS_X, V>::template output<1>(points + i * COLUMNS);
        const int64_t at = (plane + (top + i) * g.out_width + left) * BLOCK;
        for (int64_t j = 0; j < columns; ++j) {
          V value = points[i * COLUMNS + j] + bias;
          if (e.sum) value += load<BLOCK>(e.sum + at + j * BLOCK);
          store<BLOCK>(y + at + j * BLOCK, activated(value, e));
        }
      }
    }
  }
}

// --- the tables ---------------------------------------------------------------------------------------------------------

template <int BLOCK, int TILE_Y, int TILE_X, int TAPS_Y, int TAPS_X>
const Stages* table(const Form& form) {
  static constexpr Stages stages = {RLFLOW_GROUP(BLOCK),
                                    RLFLOW_LEAST_TILES,
                                    RLFLOW_LEAST_GIVEN,
                                    RLFLOW_LEAST_SHARED,
                                    RLFLOW_PART((TILE_Y + TAPS_Y - 1) * (TILE_X + TAPS_X - 1)),
                                    transform_input<TILE_Y, TILE_X, TAPS_Y, TAPS_X, BLOCK>,
                                    transform_weights<TILE_Y, TILE_X, TAPS_Y, TAPS_X, BLOCK>,
                                    multiply<BLOCK>,
                                    transform_output<TILE_Y, TILE_X, TAPS_Y, TAPS_X, BLOCK>};
  const bool same = form.tile_y == TILE_Y && form.tile_x == TILE_X && form.taps_y == TAPS_Y && form.taps_x == TAPS_X;
  return same ? &stages : nullptr;
}

inline const Stages* first_of(const Stages* one, const Stages* other) { return one ? one : other; }

template <int BLOCK>
const Stages* of_block(const Form& f) {
  const Stages* found = first_of(table<BLOCK, 2, 2, 3, 3>(f), table<BLOCK, 4, 4, 3, 3>(f));
  found = first_of(found, first_of(table<BLOCK, 1, 2, 1, 7>(f), table<BLOCK, 2, 1, 7, 1>(f)));
  found = first_of(found, first_of(table<BLOCK, 1, 4, 1, 3>(f), table<BLOCK, 4, 1, 3, 1>(f)));
  return first_of(found, table<BLOCK, 2, 2, 5, 5>(f));
}

inline const Stages* chosen(const Form& form, int block) { return block == 8 ? of_block<8>(form) : block == 16 ? of_block<16>(form) : nullptr; }
