// A few rows times a matrix that lies in panels; see routines.h. Included after norm_body.h, under the same rules. The
// weights are read once, in the order in which they lie, and the reading is all the time it takes.

constexpr int64_t kPanel = 64;  // columns of a panel: four cache lines a step
constexpr int kPanelVectors = static_cast<int>(kPanel / kLanes);
// Places that one row's product reads at once, and how many of them have sums of their own: the others would not fit.
constexpr int kStreams = RLFLOW_LANES >= 8 ? 4 : 1;
constexpr int kStreamSums = RLFLOW_LANES == 16 ? 4 : 1;
// Vectors of columns whose sums for several rows fill the registers.
constexpr int kShared = RLFLOW_LANES == 16 ? 4 : 2;
// Where these are not all of a panel, so many steps are done for some columns after the other, while the panel is in the cache.
constexpr int64_t kSteps = 64, kPlaces = 4;

// Adds `count` steps of ROWS rows to the sums of VECTORS vectors of columns. `next`: the weights that are fetched meanwhile, in
// the same order; or, where these are not all columns of a panel, a cache line a step, at kPlaces in turn.
template <int ROWS, int VECTORS>
RLFLOW_INLINE void panel_sums(const float* from, const float* x, int64_t depth, int64_t count, const float* next, Floats (&sums)[ROWS][VECTORS]) {
  for (int64_t k = 0; k < count; ++k, from += kPanel) {
    if constexpr (VECTORS < kPanelVectors) fetch(next + k % kPlaces * (kSteps * kPanel / kPlaces) + k / kPlaces * kLine);
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) {
      if (VECTORS == kPanelVectors && v * kLanes % kLine == 0) fetch(next + k * kPanel + v * kLanes);
      const Floats weights = load<RLFLOW_LANES>(from + v * kLanes);
#pragma GCC unroll 4
      for (int row = 0; row < ROWS; ++row) sums[row][v] += weights * x[row * depth + k];
    }
  }
}

// Columns that are there of a panel's last vector are stored one by one.
RLFLOW_INLINE void store_some(float* to, const Floats& value, int64_t count) {
  if (count >= kLanes) return store<RLFLOW_LANES>(to, value);
  for (int64_t lane = 0; lane < count; ++lane) to[lane] = value[lane];
}

RLFLOW_INLINE Floats load_some(const float* from, int64_t count) {
  if (count >= kLanes) return load<RLFLOW_LANES>(from);
  Floats value = {};
  for (int64_t lane = 0; lane < count; ++lane) value[lane] = from[lane];
  return value;
}

// One row times a whole panel, read at kStreams places at once: a processor looks ahead only within a page of memory, in each of
// several.
RLFLOW_INLINE void streamed_sums(const Product& p, const float* panel, const float* x, Floats (&sums)[1][kPanelVectors]) {
  const int64_t part = p.depth / kStreams, ahead = p.ahead * kLine;
  Floats parts[kStreamSums][kPanelVectors] = {};
  for (int64_t k = 0; k < part; ++k) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const float* from = panel + (s * part + k) * kPanel;
      const float value = x[s * part + k];
#pragma GCC unroll 16
      for (int v = 0; v < kPanelVectors; ++v) {
        if (v * kLanes % kLine == 0) fetch(from + ahead + v * kLanes);
        parts[s % kStreamSums][v] += load<RLFLOW_LANES>(from + v * kLanes) * value;
      }
    }
  }
  for (int64_t k = kStreams * part; k < p.depth; ++k)
    for (int v = 0; v < kPanelVectors; ++v) parts[0][v] += load<RLFLOW_LANES>(panel + k * kPanel + v * kLanes) * x[k];
#pragma GCC unroll 16
  for (int v = 0; v < kPanelVectors; ++v) {
    sums[0][v] = parts[0][v];
    for (int s = 1; s < kStreamSums; ++s) sums[0][v] += parts[s][v];
  }
}

template <int ROWS, int VECTORS>
RLFLOW_INLINE void store_sums(const Product& p, int64_t row, int64_t column, const Floats (&sums)[ROWS][VECTORS]) {
#pragma GCC unroll 8
  for (int v = 0; v < VECTORS; ++v) {
    const int64_t at = column + v * kLanes, count = p.columns - at;
    if (count <= 0) return;
    const Floats bias = p.bias ? load_some(p.bias + at, count) : Floats{};
#pragma GCC unroll 4
    for (int k = 0; k < ROWS; ++k) store_some(p.y + (row + k) * p.columns + at, sums[k][v] + bias, count);
  }
}

// ROWS rows times a panel. Where the sums of all its columns do not fit in registers, a quarter of them after the other is done
// for a few steps, and meanwhile a quarter of the next steps' weights is fetched.
template <int ROWS>
void some_rows_of_panel(const Product& p, int64_t panel, int64_t row) {
  constexpr int VECTORS = ROWS == 1 ? kPanelVectors : kShared, PASSES = kPanelVectors / VECTORS;
  const float *weights = p.weights + panel * p.depth * kPanel, *x = p.x + row * p.depth;
  Floats sums[PASSES][ROWS][VECTORS] = {};
  if constexpr (ROWS == 1) {
    streamed_sums(p, weights, x, sums[0]);
  } else if constexpr (PASSES == 1) {
    panel_sums<ROWS, VECTORS>(weights, x, p.depth, p.depth, weights + p.ahead * kLine, sums[0]);
  } else {
    for (int64_t k = 0; k < p.depth; k += kSteps) {
      const int64_t count = p.depth - k < kSteps ? p.depth - k : kSteps;
      for (int pass = 0; pass < PASSES; ++pass) {
        const float *from = weights + k * kPanel + pass * VECTORS * kLanes,
                    *next = weights + (k + kSteps) * kPanel + pass % kPlaces * kSteps / kPlaces * kLine;
        panel_sums<ROWS, VECTORS>(from, x + k, p.depth, count, next, sums[pass]);
      }
    }
  }
  for (int pass = 0; pass < PASSES; ++pass) store_sums<ROWS, VECTORS>(p, row, panel * kPanel + pass * VECTORS * kLanes, sums[pass]);
}

inline void product_panels(const Product& p, int64_t first_panel, int64_t end_panel) {
  for (int64_t panel = first_panel; panel < end_panel; ++panel) {
    int64_t row = 0;
    for (; row + 4 <= p.rows; row += 4) some_rows_of_panel<4>(p, panel, row);
    switch (p.rows - row) {
      case 3: some_rows_of_panel<3>(p, panel, row); break;
      case 2: some_rows_of_panel<2>(p, panel, row); break;
      case 1: some_rows_of_panel<1>(p, panel, row); break;
      default: break;
    }
  }
}
