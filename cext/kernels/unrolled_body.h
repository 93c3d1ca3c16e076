// A convolution as one matrix product; see routines.h. Included after stages_body.h, under the same rules. The sums of a
// step stay in registers through all parts, and what follows the convolution is done before they are stored.

// Copies what a run of rows reads at one tap: pixels of one row of the input, zeros outside of it.
template <int BLOCK>
RLFLOW_INLINE void copy_run(const float* plane, int64_t width, int64_t left, int64_t step, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i, left += step)
    store<BLOCK>(to + i * BLOCK, plane && left >= 0 && left < width ? load<BLOCK>(plane + left * BLOCK) : typename Lanes<BLOCK>::Vector{});
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
      const float* plane = from < 0 || from >= c.height ? nullptr : c.x + ((image * c.in_blocks + block) * c.height + from) * c.width * BLOCK;
      copy_run<BLOCK>(plane, c.width, column * c.stride_x + kx * c.dilation_x - c.pad_left, c.stride_x, count, to);
      at += count;
      to += count * BLOCK;
    }
  }
}

// ROWS rows times GROUP blocks of output channels, to the end.
template <int BLOCK, int ROWS, int GROUP>
RLFLOW_INLINE void unrolled_step(const Unrolled& c, const UnrolledRows& rows, int64_t begin, int64_t out, Ahead ahead) {
  using V = typename Lanes<BLOCK>::Vector;
  const int64_t filters = c.parts() * BLOCK * BLOCK, plane = c.plane();
  int64_t places[ROWS];  // in the output
  for (int row = 0; row < ROWS; ++row) {
    const int64_t pixel = rows.first + begin + row, image = pixel / plane;
    places[row] = ((image * c.out_blocks + out) * plane + pixel - image * plane) * BLOCK;
    for (int k = 0; k < GROUP; ++k) {
      fetch_to_write(c.y + places[row] + k * plane * BLOCK);
      if (c.epilogue.sum) fetch(c.epilogue.sum + places[row] + k * plane * BLOCK);
    }
  }
  V sums[ROWS][GROUP] = {};
  const Filters f = {c.weights + out * filters, 0, BLOCK, filters, true};
  accumulate<BLOCK, ROWS, GROUP>(rows.values + begin * BLOCK, rows.stride, f, c.parts(), ahead, sums);
#pragma GCC unroll 4
  for (int k = 0; k < GROUP; ++k) {
    const V bias = c.epilogue.bias ? load<BLOCK>(c.epilogue.bias + (out + k) * BLOCK) : V{};
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; ++row) {
      const int64_t at = places[row] + k * plane * BLOCK;
      V value = sums[row][k] + bias;
      if (c.epilogue.sum) value += load<BLOCK>(c.epilogue.sum + at);
      store<BLOCK>(c.y + at, activated(value, c.epilogue));
    }
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
