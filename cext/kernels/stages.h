// The three stages of a Winograd convolution on blocked tensors (NCHWc), as one table of functions per instruction set.
//
// A tensor of C channels lies in memory as [batch][C / block][height][width][block]. The output is cut into tiles of
// m×m pixels; a tile needs a window of n×n input pixels, n = m + 2. The stages are (Lavin & Gray, "Fast Algorithms for
// Convolutional Neural Networks", 2016):
//   1. transform_input:  each window d to V = Bᵀ d B, n·n "points" a channel;
//   2. multiply:         for each point a matrix product M = V · U over the input channels (U: the weights, transformed);
//   3. transform_output: each tile to Y = Aᵀ M A, then bias, residual and activation.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rlflow::kernels {

// One convolution 3×3, stride 1, on tensors of one size. Channels are counted in blocks.
struct Geometry {
  int64_t batch, in_blocks, out_blocks;
  int64_t height, width, out_height, out_width;
  int64_t pad_top, pad_left;
  int64_t tiles_y, tiles_x;

  int64_t tiles() const { return batch * tiles_y * tiles_x; }
};

// Tiles that go through the stages together: `count` of them from `first` on, in the order (image, row, column).
// V lies as [point][block of channels][tile][channel], M likewise; the strides are floats from point to point.
struct Chunk {
  int64_t first, count;
  float *v, *m;
  int64_t v_stride, m_stride;
};

enum class Activation { none, relu, leaky_relu, clip, hard_sigmoid };

// What follows the convolution. `bias` (a value a channel) and `sum` (laid out as the output) may be null.
// leaky_relu: slope alpha; clip: from alpha to beta; hard_sigmoid: alpha·x + beta within [0, 1].
struct Epilogue {
  const float* bias = nullptr;
  const float* sum = nullptr;
  Activation activation = Activation::none;
  float alpha = 0, beta = 0;
};

struct Stages {
  int group;  // blocks of output channels that lie side by side in U: [point][group][input channel][group · block]
  void (*transform_input)(const Geometry&, const Chunk&, const float* x, int64_t first_block, int64_t end_block);
  void (*multiply)(const Geometry&, const Chunk&, const float* u, int64_t first_point, int64_t end_point);
  void (*transform_output)(const Geometry&, const Chunk&, const Epilogue&, float* y, int64_t first_block, int64_t end_block);
};

// F(4×4,3×3) interpolates at 0, ±kNear, ±kFar and infinity. These two are exact in binary, and the error is 0.4 times
// that of the usual 1 and 2.
inline constexpr double kNear = 0.75, kFar = 1.5;

// The tables; null where this build or this block has none. `tile`: 2 or 4; `block`: 8 or 16.
const Stages* portable_stages(int tile, int block);
const Stages* avx2_stages(int tile, int block);
const Stages* avx512_stages(int tile, int block);

}  // namespace rlflow::kernels
