// Depthwise convolutions of plain tensors; see routines.h. Included after product_body.h, under the same rules. A vector is
// neighbours in a row of outputs, so any number of channels is as good as another. The input's plane is copied first, with
// its padding, and with the columns of each remainder modulo the stride together, so that a tap's inputs are neighbours too.

RLFLOW_INLINE void zero_floats(float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = 0.0f;
}

// A row of the input as the taps read it: `phase` floats for each remainder.
RLFLOW_INLINE void copy_row(const Planes& p, const float* from, float* to) {
  for (int64_t remainder = 0; remainder < p.stride_x; ++remainder, to += p.phase) {
    // to[j] is column j * stride + remainder - pad.
    const int64_t offset = remainder - p.pad_left;
    const int64_t first = offset >= 0 ? 0 : (-offset + p.stride_x - 1) / p.stride_x;
    int64_t end = (p.width - offset + p.stride_x - 1) / p.stride_x;
    end = end < 0 ? 0 : end > p.phase ? p.phase : end;
    const int64_t begin = first < end ? first : end;
    zero_floats(to, begin);
    if (p.stride_x == 1)
      for (int64_t j = begin; j < end; ++j) to[j] = from[j + offset];
    else if (p.stride_x == 2)
      for (int64_t j = begin; j < end; ++j) to[j] = from[2 * j + offset];
    else
      for (int64_t j = begin; j < end; ++j) to[j] = from[p.stride_x * j + offset];
    zero_floats(to + end, p.phase - end);
  }
}

RLFLOW_INLINE void copy_plane(const Planes& p, const float* from, float* to) {
  const int64_t length = p.phase * p.stride_x;
  for (int64_t row = 0; row < p.rows_read; ++row, to += length) {
    const int64_t source = row - p.pad_top;
    if (source < 0 || source >= p.height) zero_floats(to, length);
    else copy_row(p, from + source * p.width, to);
  }
}

// Where the tap kx of the first output of a row lies in a copied row.
RLFLOW_INLINE int64_t tap_at(const Planes& p, int64_t kx) {
  const int64_t column = kx * p.dilation_x;
  return column % p.stride_x * p.phase + column / p.stride_x;
}

// `plane`: which of the output's, of all images.
RLFLOW_INLINE void store_outputs(const Planes& p, int64_t plane, int64_t row, int64_t column, const Floats& sum) {
  const int64_t at = (plane * p.out_height + row) * p.out_width + column, count = p.out_width - column;
  Floats value = sum;
  if (p.epilogue.sum) value += load_some(p.epilogue.sum + at, count);
  store_some(p.y + at, activated(value, p.epilogue), count);
}

// ROWS rows of COLUMNS vectors of outputs, by a kernel of KERNEL² taps and one stride.
template <int KERNEL, int STRIDE, int ROWS, int COLUMNS>
RLFLOW_INLINE void square_outputs(const Planes& p, const float* copied, const float* taps, float bias, int64_t plane, int64_t row, int64_t column) {
  const int64_t length = p.phase * STRIDE;
  Floats sums[ROWS][COLUMNS];
  for (int r = 0; r < ROWS; ++r)
    for (int c = 0; c < COLUMNS; ++c) sums[r][c] = Floats{} + bias;
#pragma GCC unroll 16
  for (int read = 0; read < (ROWS - 1) * STRIDE + KERNEL; ++read) {
    const float* from = copied + (row * STRIDE + read) * length + column;
#pragma GCC unroll 8
    for (int kx = 0; kx < KERNEL; ++kx) {
#pragma GCC unroll 2
      for (int c = 0; c < COLUMNS; ++c) {
        const Floats values = load<RLFLOW_LANES>(from + kx % STRIDE * p.phase + kx / STRIDE + c * kLanes);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; ++r) {
          const int ky = read - r * STRIDE;
          if (ky >= 0 && ky < KERNEL) sums[r][c] += values * taps[ky * KERNEL + kx];
        }
      }
    }
  }
  for (int r = 0; r < ROWS; ++r)
    for (int c = 0; c < COLUMNS; ++c) {
      const int64_t at = column + c * kLanes;
      if (at < p.out_width) store_outputs(p, plane, row + r, at, sums[r][c]);
    }
}

template <int KERNEL, int STRIDE, int ROWS>
void square_rows(const Planes& p, const float* copied, const float* taps, float bias, int64_t plane, int64_t row) {
  int64_t column = 0;
  for (; column + kLanes < p.out_width; column += 2 * kLanes) square_outputs<KERNEL, STRIDE, ROWS, 2>(p, copied, taps, bias, plane, row, column);
  for (; column < p.out_width; column += kLanes) square_outputs<KERNEL, STRIDE, ROWS, 1>(p, copied, taps, bias, plane, row, column);
}

template <int KERNEL, int STRIDE>
void square_plane(const Planes& p, const float* copied, const float* taps, float bias, int64_t plane) {
  int64_t row = 0;
  if (p.side_by_side >= 4)
    for (; row + 4 <= p.out_height; row += 4) square_rows<KERNEL, STRIDE, 4>(p, copied, taps, bias, plane, row);
  if (p.side_by_side >= 2)
    for (; row + 2 <= p.out_height; row += 2) square_rows<KERNEL, STRIDE, 2>(p, copied, taps, bias, plane, row);
  for (; row < p.out_height; ++row) square_rows<KERNEL, STRIDE, 1>(p, copied, taps, bias, plane, row);
}

// Any kernel, stride and dilation.
inline void any_plane(const Planes& p, const float* copied, const float* taps, float bias, int64_t plane) {
  const int64_t length = p.phase * p.stride_x;
  for (int64_t row = 0; row < p.out_height; ++row)
    for (int64_t column = 0; column < p.out_width; column += kLanes) {
      Floats sum = Floats{} + bias;
      for (int64_t ky = 0; ky < p.kernel_y; ++ky) {
        const float* from = copied + (row * p.stride_y + ky * p.dilation_y) * length + column;
        for (int64_t kx = 0; kx < p.kernel_x; ++kx) sum += load<RLFLOW_LANES>(from + tap_at(p, kx)) * taps[ky * p.kernel_x + kx];
      }
      store_outputs(p, plane, row, column, sum);
    }
}

inline void one_plane(const Planes& p, const float* copied, const float* taps, float bias, int64_t plane) {
  const bool square = p.kernel_y == p.kernel_x && p.stride_y == p.stride_x && p.dilation_y == 1 && p.dilation_x == 1;
  if (square && p.stride_x == 1 && p.kernel_x == 3) return square_plane<3, 1>(p, copied, taps, bias, plane);
  if (square && p.stride_x == 1 && p.kernel_x == 5) return square_plane<5, 1>(p, copied, taps, bias, plane);
  if (square && p.stride_x == 1 && p.kernel_x == 7) return square_plane<7, 1>(p, copied, taps, bias, plane);
  if (square && p.stride_x == 2 && p.kernel_x == 3) return square_plane<3, 2>(p, copied, taps, bias, plane);
  if (square && p.stride_x == 2 && p.kernel_x == 5) return square_plane<5, 2>(p, copied, taps, bias, plane);
  if (square && p.stride_x == 2 && p.kernel_x == 7) return square_plane<7, 2>(p, copied, taps, bias, plane);
  any_plane(p, copied, taps, bias, plane);
}

inline void convolved_plane(const Planes& p, int64_t plane, float* copied) {
  const int64_t channel = plane % p.channels;
  copy_plane(p, p.x + plane * p.height * p.width, copied);
  one_plane(p, copied, p.weights + channel * p.kernel_y * p.kernel_x, p.epilogue.bias ? p.epilogue.bias[channel] : 0.0f, plane);
}
