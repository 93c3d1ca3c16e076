// A convolution as one matrix product; see routines.h. Included after stages_body.h, under the same rules. The sums of a
// step stay in registers through all parts, and what follows the convolution is done before they are stored.

// Copies what a run of rows reads at one tap: pixels of one row of the input, zeros outside of it.
template <int BLOCK>
RLFLOW_INLINE void copy_run(const Unrolled& c, const float* line, int64_t left, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i, left += c.stride_x)
    store<BLOCK>(to + i * BLOCK, line && left >= 0 && left < c.width ? load<BLOCK>(line + left * c.from.pixel) : typename Lanes<BLOCK>::Vector{});
}

// The rows' values of some blocks of input channels.
template <int BLOCK>
void unroll(const Unrolled& c, const UnrolledRows& rows, int64_t first_block, int64_t end_block) {
  const int64_t end = rows.first + rows.count;
  for (int64_t part = first_block * c.taps(); part < end_block * c.taps(); ++part) {
    const int64_t block = part / c.taps(), ky = part / c.kernel_x % c.kernel_y, kx = part % c.kernel_x;
    float* to = rows.values + part * rows.stride;
    for (int64_t at = rows.first; at < end;) {  // a row of the output, or what is wanted of it
      const int64_t column = at % c.out_width, row = at / c.out_width % c.out_height, image = at / c.plane();
      const int64_t count = c.out_width - column < end - at ? c.out_width - column : end - at;
      const int64_t from = row * c.stride_y + ky * c.dilation_y - c.pad_top;
      const float* plane = c.x + image * c.from.image + block * c.from.block;
      const float* line = from < 0 || from >= c.height ? nullptr : plane + from * c.width * c.from.pixel;
      copy_run<BLOCK>(c, line, column * c.stride_x + kx * c.dilation_x - c.pad_left, count, to);
      at += count;
      to += count * BLOCK;
    }
  }
}

// Where ROWS rows are in the output, in the block `out`.
template <int ROWS>
RLFLOW_INLINE void find_places(const Unrolled& c, int64_t first_row, int64_t out, int64_t (&places)[ROWS]) {
  const int64_t plane = c.plane();
  for (int row = 0; row < ROWS; ++row) {
    const int64_t pixel = first_row + row, image = pixel / plane;
    places[row] = image * c.to.image + out * c.to.block + (pixel - image * plane) * c.to.pixel;
  }
}

// Asks for what is written there, and what is added to it.
template <int ROWS, int GROUP>
RLFLOW_INLINE void fetch_places(const Unrolled& c, const int64_t (&places)[ROWS], int64_t more = 0) {
  for (int row = 0; row < ROWS; ++row) {
    for (int k = 0; k < GROUP; ++k) {
      fetch_to_write(c.y + places[row] + more + k * c.to.block);
      if (c.epilogue.sum) fetch(c.epilogue.sum + places[row] + more + k * c.to.block);
    }
  }
}

// What follows the convolution.
template <int BLOCK>
RLFLOW_INLINE void finish(const Unrolled& c, int64_t place, const typename Lanes<BLOCK>::Vector& sum, const typename Lanes<BLOCK>::Vector& bias) {
  typename Lanes<BLOCK>::Vector value = sum + bias;
  if (c.epilogue.sum) value += load<BLOCK>(c.epilogue.sum + place);
  store<BLOCK>(c.y + place, activated(value, c.epilogue));
}

template <int BLOCK>
RLFLOW_INLINE typename Lanes<BLOCK>::Vector bias_of(const Unrolled& c, int64_t out) {
  return c.epilogue.bias ? load<BLOCK>(c.epilogue.bias + out * BLOCK) : typename Lanes<BLOCK>::Vector{};
}

// ROWS rows times GROUP blocks of output channels, to the end.
template <int BLOCK, int ROWS, int GROUP>
RLFLOW_INLINE void unrolled_step(const Unrolled& c, const UnrolledRows& rows, int64_t begin, int64_t out, Ahead ahead) {
  using V = typename Lanes<BLOCK>::Vector;
  const int64_t filters = c.parts() * BLOCK * BLOCK;
  int64_t places[ROWS];
  find_places(c, rows.first + begin, out, places);
  fetch_places<ROWS, GROUP>(c, places);
  V sums[ROWS][GROUP] = {};
  const Filters f = {c.weights + out * filters, 0, BLOCK, filters, true};
  accumulate<BLOCK, ROWS, GROUP>(rows.values + begin * BLOCK, rows.stride, f, c.parts(), ahead, sums);
#pragma GCC unroll 4
  for (int k = 0; k < GROUP; ++k) {
    const V bias = bias_of<BLOCK>(c, out + k);
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; ++row) finish<BLOCK>(c, places[row] + k * c.to.block, sums[row][k], bias);
  }
}

template <int BLOCK, int ROWS, int GROUP>
RLFLOW_INLINE void unrolled_rows(int64_t count, const Unrolled& c, const UnrolledRows& rows, int64_t begin, int64_t out, Ahead ahead) {
  if constexpr (ROWS > 1) {
    if (count < ROWS) return unrolled_rows<BLOCK, ROWS - 1, GROUP>(count, c, rows, begin, out, ahead);
  }
  unrolled_step<BLOCK, ROWS, GROUP>(c, rows, begin, out, ahead);
}

// All rows times GROUP blocks of output channels, in steps that are as equal as possible. The first ones fetch the weights
// that the next blocks need.
template <int BLOCK, int ROWS, int GROUP>
void unrolled_panel(const Unrolled& c, const UnrolledRows& rows, int64_t out) {
  constexpr int64_t LINES = BLOCK * BLOCK / kLine;
  const int64_t steps = (rows.count + ROWS - 1) / ROWS, lines = (LINES + steps - 1) / steps, filters = c.parts() * BLOCK * BLOCK;
  const float* next = c.weights + (out + GROUP) * filters;
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t begin = rows.count * step / steps, end = rows.count * (step + 1) / steps;
    const bool any = out + 2 * GROUP <= c.out_blocks && step * lines < LINES;
    unrolled_rows<BLOCK, ROWS, GROUP>(end - begin, c, rows, begin, out, {next + step * lines * c.parts() * kLine, filters, any ? lines : 0});
  }
}

// The rows times the blocks of output channels from `first_out` on.
template <int BLOCK>
void unrolled(const Unrolled& c, const UnrolledRows& rows, int64_t first_out, int64_t end_out) {
  constexpr int ROWS = RLFLOW_ROWS(BLOCK), GROUP = RLFLOW_GROUP(BLOCK);
  int64_t out = first_out;
  for (; out + GROUP <= end_out; out += GROUP) unrolled_panel<BLOCK, ROWS, GROUP>(c, rows, out);
  for (; out < end_out; ++out) unrolled_panel<BLOCK, ROWS, 1>(c, rows, out);
}
