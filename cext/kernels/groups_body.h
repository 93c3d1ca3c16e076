// Convolutions with a few channels a group on blocked tensors; see routines.h. Included after planes_body.h, under the same
// rules. A vector is a pixel's block of channels, which holds whole groups: each lane needs the inputs of its own group, one
// after the other, and a permutation brings them there.

template <int BLOCK>
struct Order {
  typedef int Places __attribute__((vector_size(BLOCK * sizeof(int))));
};

template <int BLOCK, int GROUP>
RLFLOW_INLINE typename Lanes<BLOCK>::Vector of_groups(const typename Lanes<BLOCK>::Vector& value, int member) {
#if defined(__clang__)
  typename Lanes<BLOCK>::Vector found;
  for (int lane = 0; lane < BLOCK; ++lane) found[lane] = value[lane / GROUP * GROUP + member];
  return found;
#else
  typename Order<BLOCK>::Places places;
#pragma GCC unroll 16
  for (int lane = 0; lane < BLOCK; ++lane) places[lane] = lane / GROUP * GROUP + member;
  return __builtin_shuffle(value, places);
#endif
}

template <int BLOCK>
RLFLOW_INLINE void store_pixel(const Groups& g, int64_t at, const typename Lanes<BLOCK>::Vector& sum) {
  typename Lanes<BLOCK>::Vector value = sum;
  if (g.epilogue.sum) value += load<BLOCK>(g.epilogue.sum + at);
  store<BLOCK>(g.y + at, activated(value, g.epilogue));
}

// What a row of outputs of one block reads and writes.
struct GroupRow {
  const float* plane;  // of the input
  const float* weights;  // of the block: [kernel_y][kernel_x][member of the group][lane]
  const float* bias;  // null: none
  int64_t top;  // the input's row of the first tap
  int64_t out;  // where the row begins in the output
};

// Any pixel, kernel, stride and dilation.
template <int BLOCK, int GROUP>
void any_pixel(const Groups& g, const GroupRow& r, int64_t column) {
  using V = typename Lanes<BLOCK>::Vector;
  V sum = r.bias ? load<BLOCK>(r.bias) : V{};
  for (int64_t ky = 0; ky < g.kernel_y; ++ky) {
    const int64_t row = r.top + ky * g.dilation_y;
    if (row < 0 || row >= g.height) continue;
    for (int64_t kx = 0; kx < g.kernel_x; ++kx) {
      const int64_t at = column * g.stride_x - g.pad_left + kx * g.dilation_x;
      if (at < 0 || at >= g.width) continue;
      const V value = load<BLOCK>(r.plane + (row * g.width + at) * BLOCK);
      const float* w = r.weights + (ky * g.kernel_x + kx) * GROUP * BLOCK;
#pragma GCC unroll 8
      for (int member = 0; member < GROUP; ++member) sum += of_groups<BLOCK, GROUP>(value, member) * load<BLOCK>(w + member * BLOCK);
    }
  }
  store_pixel<BLOCK>(g, r.out + column * BLOCK, sum);
}

// PIXELS neighbours of a row whose taps are all inside, by a kernel 3×3. A permuted input serves up to three of them.
template <int BLOCK, int GROUP, int STRIDE, int PIXELS>
RLFLOW_INLINE void three_by_three(const Groups& g, const GroupRow& r, int64_t column) {
  using V = typename Lanes<BLOCK>::Vector;
  V sums[PIXELS];
  for (int pixel = 0; pixel < PIXELS; ++pixel) sums[pixel] = r.bias ? load<BLOCK>(r.bias) : V{};
  for (int64_t ky = 0; ky < 3; ++ky) {
    const int64_t row = r.top + ky;
    if (row < 0 || row >= g.height) continue;
    const float* from = r.plane + (row * g.width + column * STRIDE - g.pad_left) * BLOCK;
    const float* w = r.weights + ky * 3 * GROUP * BLOCK;
#pragma GCC unroll 8
    for (int member = 0; member < GROUP; ++member) {
      V taps[3];
#pragma GCC unroll 3
      for (int kx = 0; kx < 3; ++kx) taps[kx] = load<BLOCK>(w + (kx * GROUP + member) * BLOCK);
#pragma GCC unroll 32
      for (int at = 0; at < (PIXELS - 1) * STRIDE + 3; ++at) {
        const V value = of_groups<BLOCK, GROUP>(load<BLOCK>(from + at * BLOCK), member);
#pragma GCC unroll 3
        for (int kx = 0; kx < 3; ++kx) {
          const int pixel = (at - kx) / STRIDE;
          if (at >= kx && (at - kx) % STRIDE == 0 && pixel < PIXELS) sums[pixel] += value * taps[kx];
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int pixel = 0; pixel < PIXELS; ++pixel) store_pixel<BLOCK>(g, r.out + (column + pixel) * BLOCK, sums[pixel]);
}

template <int BLOCK, int GROUP, int STRIDE>
void three_by_three_row(const Groups& g, const GroupRow& r) {
  // The outputs whose taps are all inside: [first, end).
  int64_t first = (g.pad_left + STRIDE - 1) / STRIDE, end = (g.width - 3 + g.pad_left) / STRIDE + 1;
  first = first < g.out_width ? first : g.out_width;
  end = g.width < 3 || end < first ? first : end < g.out_width ? end : g.out_width;
  int64_t column = 0;
  for (; column < first; ++column) any_pixel<BLOCK, GROUP>(g, r, column);
  if (g.side_by_side >= 8)
    for (; column + 8 <= end; column += 8) three_by_three<BLOCK, GROUP, STRIDE, 8>(g, r, column);
  for (; column + 4 <= end; column += 4) three_by_three<BLOCK, GROUP, STRIDE, 4>(g, r, column);
  for (; column + 2 <= end; column += 2) three_by_three<BLOCK, GROUP, STRIDE, 2>(g, r, column);
  for (; column < g.out_width; ++column) any_pixel<BLOCK, GROUP>(g, r, column);
}

template <int BLOCK, int GROUP>
void group_row(const Groups& g, const GroupRow& r) {
  const bool plain = g.kernel_y == 3 && g.kernel_x == 3 && g.dilation_y == 1 && g.dilation_x == 1;
  if (plain && g.stride_x == 1) return three_by_three_row<BLOCK, GROUP, 1>(g, r);
  if (plain && g.stride_x == 2) return three_by_three_row<BLOCK, GROUP, 2>(g, r);
  for (int64_t column = 0; column < g.out_width; ++column) any_pixel<BLOCK, GROUP>(g, r, column);
}

// One block of channels of one image, rows [first, end).
template <int BLOCK>
void group_rows(const Groups& g, int64_t image, int64_t block, int64_t first, int64_t end) {
  const int64_t plane = image * g.blocks + block, filter = g.kernel_y * g.kernel_x * g.group * BLOCK;
  for (int64_t row = first; row < end; ++row) {
    const GroupRow r{g.x + plane * g.height * g.width * BLOCK, g.weights + block * filter,
                     g.epilogue.bias ? g.epilogue.bias + block * BLOCK : nullptr, row * g.stride_y - g.pad_top,
                     (plane * g.out_height + row) * g.out_width * BLOCK};
    if (g.group == 8) group_row<BLOCK, 8>(g, r);
    else if (g.group == 4) group_row<BLOCK, 4>(g, r);
    else group_row<BLOCK, 2>(g, r);
  }
}
