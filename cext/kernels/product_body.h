// A few rows times a matrix that lies in panels; see routines.h. Included after norm_body.h, under the same rules. The
// weights are read once, in the order in which they lie, and the reading is all the time it takes.

constexpr int64_t kPanel = 64;  // columns of a panel: four cache lines a step
constexpr int kPanelVectors = static_cast<int>(kPanel / kLanes);
// Vectors of columns whose sums for several rows fill the registers.
constexpr int kStreams = RLFLOW_LANES == 16 ? 4 : 1;
constexpr int kShared = RLFLOW_LANES == 16 ? 4 : 2;

// ROWS rows times VECTORS vectors of columns of a panel, `first` floats into it.
template <int ROWS, int VECTORS>
RLFLOW_INLINE void panel_sums(const Product& p, const float* panel, int64_t first, const float* x, Floats (&sums)[ROWS][VECTORS]) {
  const int64_t ahead = p.ahead * kLine;
  for (int64_t k = 0; k < p.depth; ++k) {
    const float* from = panel + k * kPanel + first;
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) {
      if (v * kLanes % kLine == 0) fetch(from + ahead + v * kLanes);
      const Floats weights = load<RLFLOW_LANES>(from + v * kLanes);
#pragma GCC unroll 4
      for (int row = 0; row < ROWS; ++row) sums[row][v] += weights * x[row * p.depth + k];
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
  Floats parts[kStreams][kPanelVectors] = {};
  for (int64_t k = 0; k < part; ++k) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const float* from = panel + (s * part + k) * kPanel;
      const float value = x[s * part + k];
#pragma GCC unroll 16
      for (int v = 0; v < kPanelVectors; ++v) {
        if (v * kLanes % kLine == 0) fetch(from + ahead + v * kLanes);
        parts[s][v] += load<RLFLOW_LANES>(from + v * kLanes) * value;
      }
    }
  }
  for (int64_t k = kStreams * part; k < p.depth; ++k)
    for (int v = 0; v < kPanelVectors; ++v) parts[0][v] += load<RLFLOW_LANES>(panel + k * kPanel + v * kLanes) * x[k];
#pragma GCC unroll 16
  for (int v = 0; v < kPanelVectors; ++v) {
    sums[0][v] = parts[0][v];
    for (int s = 1; s < kStreams; ++s) sums[0][v] += parts[s][v];
  }
}

template <int ROWS, int VECTORS>
void some_rows_of_panel(const Product& p, int64_t panel, int64_t row) {
  for (int64_t first = 0; first < kPanel; first += VECTORS * kLanes) {
    Floats sums[ROWS][VECTORS] = {};
    const float* weights = p.weights + panel * p.depth * kPanel;
    if constexpr (ROWS == 1) streamed_sums(p, weights, p.x + row * p.depth, sums);
    else panel_sums<ROWS, VECTORS>(p, weights, first, p.x + row * p.depth, sums);
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) {
      const int64_t column = panel * kPanel + first + v * kLanes, count = p.columns - column;
      if (count <= 0) return;
      const Floats bias = p.bias ? load_some(p.bias + column, count) : Floats{};
#pragma GCC unroll 4
      for (int k = 0; k < ROWS; ++k) store_some(p.y + (row + k) * p.columns + column, sums[k][v] + bias, count);
    }
  }
}

inline void product_panels(const Product& p, int64_t first_panel, int64_t end_panel) {
  for (int64_t panel = first_panel; panel < end_panel; ++panel) {
    int64_t row = 0;
    for (; row + 4 <= p.rows; row += 4) some_rows_of_panel<4, kShared>(p, panel, row);
    switch (p.rows - row) {
      case 3: some_rows_of_panel<3, kShared>(p, panel, row); break;
      case 2: some_rows_of_panel<2, kShared>(p, panel, row); break;
      case 1: some_rows_of_panel<1, kPanelVectors>(p, panel, row); break;
      default: break;
    }
  }
}
