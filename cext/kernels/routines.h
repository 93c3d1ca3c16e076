// The kernels that are one routine each, as one table of functions per instruction set.
#pragma once
#include <cstdint>

#include "stages.h"

namespace rlflow::kernels {

// y = (s − mean(s)) / √(variance(s) + epsilon) · scale + shift for each row s = x + skip + bias (Ba, Kiros and Hinton,
// "Layer Normalization", 2016); where not `centred`, s / √(mean(s²) + epsilon) · scale + shift (Zhang and Sennrich, "Root
// Mean Square Layer Normalization", 2019). A row has `width` floats, and so have scale, shift and bias.
struct Norm {
  int64_t width;
  float epsilon;
  bool centred;
  const float* scale;
  const float *shift, *bias;  // null: none
  const float* x;
  const float* skip;  // null: none; row r is added row r modulo skip_rows
  int64_t skip_rows;
  float* y;
  float* sum;  // where s is kept; null: nowhere
};

// Layer normalisation of the channels of each pixel, on blocked tensors: as above, without skip and bias.
struct BlockedNorm {
  int64_t blocks, plane;  // pixels of an image
  float epsilon;
  const float* scale;
  const float* shift;  // null: none
  const float* x;
  float* y;
};

// y = x/2 · (1 + erf(x/√2)) of x + bias, rows of `width` floats.
struct Gelu {
  int64_t width;
  const float* bias;  // null: none
  const float* x;
  float* y;
};

// y = x · w + bias for `rows` rows of `depth` floats. The columns of w lie in panels of 64, [panel][depth][column], the last
// one filled up with zeros.
struct Product {
  int64_t rows, depth, columns;
  int64_t ahead;  // cache lines that are fetched before they are needed
  const float *x, *weights;
  const float* bias;  // null: none
  float* y;
};

// A depthwise convolution of plain tensors; `weights`: [channel][kernel_y][kernel_x]. A plane is copied before: `rows_read`
// rows of `stride_x` times `phase` floats.
struct Planes {
  int64_t channels, height, width, out_height, out_width;
  int64_t kernel_y, kernel_x, stride_y, stride_x, dilation_y, dilation_x, pad_top, pad_left;
  int64_t side_by_side;  // rows of outputs that share what is read
  int64_t rows_read, phase;
  const float *x, *weights;
  Epilogue epilogue;
  float* y;

  // Sets the last two by the others: vectors of up to 16 floats may begin at any multiple of 16 that is an output.
  void set_layout() {
    rows_read = (out_height - 1) * stride_y + (kernel_y - 1) * dilation_y + 1;
    phase = (out_width + 15) / 16 * 16 + (kernel_x - 1) * dilation_x / stride_x + 1;
  }
};

// A convolution of 2, 4 or 8 channels a group, as many out as in, on blocked tensors; `weights`: [block][kernel_y][kernel_x]
// [member of the group][channel of the block].
struct Groups {
  int64_t blocks, group, height, width, out_height, out_width;
  int64_t kernel_y, kernel_x, stride_y, stride_x, dilation_y, dilation_x, pad_top, pad_left;
  int64_t side_by_side;  // pixels of a row that share what is read
  const float *x, *weights;
  Epilogue epilogue;
  float* y;
};

// How a tensor lies: floats from image to image, from block to block of channels, from pixel to pixel.
struct Layout {
  int64_t image, block, pixel;
};

// A convolution without groups as one matrix product: a row for each pixel of the output, a column for each output channel.
// The rows' values lie in parts of a block of channels at one tap. `weights`: [block of outputs][block of inputs][kernel_y]
// [kernel_x][input][output].
struct Unrolled {
  int64_t batch, in_blocks, out_blocks, height, width, out_height, out_width;
  int64_t kernel_y, kernel_x, stride_y, stride_x, dilation_y, dilation_x, pad_top, pad_left;
  Layout from, to;
  const float *x, *weights;
  Epilogue epilogue;
  float* y;

  int64_t plane() const { return out_height * out_width; }
  int64_t taps() const { return kernel_y * kernel_x; }
  int64_t parts() const { return in_blocks * taps(); }
};

// `count` rows from `first` on, in the order (image, row, column). They lie as [part][row][channel]; `stride`: floats
// from part to part.
struct UnrolledRows {
  int64_t first, count;
  float* values;
  int64_t stride;
};

// What Strassen's algorithm makes of some rows, in halves of the parts and of the rows. An odd row out is in both halves.
struct UnrolledHalves {
  UnrolledRows all;
  int64_t parts, rows, second;  // of a half; the first row of the second half
  float* sums;  // of the quarters of the rows' values, [sum][part][row][channel]
  int64_t stride;  // floats from part to part of them

  float* sum(int64_t number) const { return sums + number * parts * stride; }
};

struct Routines {
  void (*norm)(const Norm&, int64_t first_row, int64_t end_row);
  void (*product)(const Product&, int64_t first_panel, int64_t end_panel);
  void (*plane)(const Planes&, int64_t plane, float* copied);
  void (*groups_8)(const Groups&, int64_t image, int64_t block, int64_t first_row, int64_t end_row);  // blocks of 8
  void (*groups_16)(const Groups&, int64_t image, int64_t block, int64_t first_row, int64_t end_row);
  void (*gelu)(const Gelu&, int64_t first_row, int64_t end_row);
  void (*unroll_8)(const Unrolled&, const UnrolledRows&, int64_t first_block, int64_t end_block);  // blocks of 8 inputs
  void (*unroll_16)(const Unrolled&, const UnrolledRows&, int64_t first_block, int64_t end_block);
  void (*unrolled_8)(const Unrolled&, const UnrolledRows&, int64_t first_out, int64_t end_out);  // blocks of 8 outputs
  void (*unrolled_16)(const Unrolled&, const UnrolledRows&, int64_t first_out, int64_t end_out);
  // Strassen's: the sums of some parts; then the rows times the blocks of outputs [first, end) of the first half and those of the
  // second half. `memory`: strassen_floats.
  void (*halve_8)(const UnrolledHalves&, int64_t first_part, int64_t end_part);
  void (*halve_16)(const UnrolledHalves&, int64_t first_part, int64_t end_part);
  void (*strassen_8)(const Unrolled&, const UnrolledHalves&, int64_t first_out, int64_t end_out, float* memory);
  void (*strassen_16)(const Unrolled&, const UnrolledHalves&, int64_t first_out, int64_t end_out, float* memory);
  void (*blocked_norm_8)(const BlockedNorm&, int64_t image, int64_t first_pixel, int64_t end_pixel);  // blocks of 8
  void (*blocked_norm_16)(const BlockedNorm&, int64_t image, int64_t first_pixel, int64_t end_pixel);
};

// The tables; null where this build has none.
const Routines* portable_routines();
const Routines* avx2_routines();
const Routines* avx512_routines();

}  // namespace rlflow::kernels
