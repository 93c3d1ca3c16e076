// The three stages of a Winograd convolution on blocked tensors (NCHWc), as one table of functions per instruction set.
//
// A tensor of C channels lies in memory as [batch][C / block][height][width][block]. The output is cut into tiles of
// m×m pixels; with r×r taps a tile needs a window of n×n input pixels, n = m + r − 1. The stages are (Lavin & Gray, "Fast
// Algorithms for Convolutional Neural Networks", 2016):
//   1. transform_input:  each window d to V = Bᵀ d B, n·n "points" a channel;
//   2. multiply:         for each point a matrix product M = V · U over the input channels;
//   3. transform_output: each tile to Y = Aᵀ M A, then bias, residual and activation.
// Where the taps are 1×r or r×1, so are tile and window, and there is one transform instead of two.
// The weights are either transformed, U = G g Gᵀ, a panel at a time and right before the product, which reads U from the
// cache; or U is given. It is 1.1 to 4 times as large as the weights, and has to come from memory: that pays where few tiles
// share the work of transforming, since the product can fetch a point's weights while it works on the point before.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rlflow::kernels {

// F(tile_y × tile_x, taps_y × taps_x).
struct Form {
  int tile_y, tile_x, taps_y, taps_x;

  int points() const { return (tile_y + taps_y - 1) * (tile_x + taps_x - 1); }
  int taps() const { return taps_y * taps_x; }
};

// One convolution of stride 1 on tensors of one size. Channels are counted in blocks.
struct Geometry {
  int64_t batch, in_blocks, out_blocks;
  int64_t height, width, out_height, out_width;
  int64_t pad_top, pad_left;
  int64_t tiles_y, tiles_x;

  int64_t tiles() const { return batch * tiles_y * tiles_x; }
};

// Tiles that go through the stages together: `count` of them from `first` on, in the order (image, row, column).
// V lies as [point][block of channels][tile][channel]; `v_stride`: floats from point to point.
struct Chunk {
  int64_t first, count, points;
  float* v;
  int64_t v_stride;
};

// Where U lies: [point][input channel of the part][width · block] where it is made here, [block of outputs][point][input
// channel][block] where it is `given`; so many floats from one to the next.
struct Filters {
  const float* u;
  int64_t point, channel, block;
  bool given;
};

// What one pass of the product works on: `width` blocks of output channels from `first_out` on, and a part of the input
// channels. M lies as [point][block of outputs][tile][channel].
struct Panel {
  int64_t first_out, width, first_in, end_in;
  Filters filters;
  float* m;
  int64_t m_stride;
  const float* next;  // the weights that come after these, to be fetched meanwhile; null: none
  int64_t next_stride;  // from one block of outputs to the next
  int64_t next_lines;  // cache lines of each
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
  int group;  // the most blocks of output channels of a panel; a smaller panel has one
  int64_t least_tiles, least_given;  // of a chunk: fewer would transform the weights too often, or read those given
  int64_t least_shared;  // of a chunk, so that there are some for all threads, where the weights stay in the cache
  int64_t part;  // input channels of a pass: so many that adding to M costs little, and few enough for U to stay in the cache
  void (*transform_input)(const Geometry&, const Chunk&, const float* x, int64_t first_block, int64_t end_block);
  void (*transform_weights)(const Geometry&, const Panel&, const float* w, float* u);  // to where the panel's filters lie
  void (*multiply)(const Chunk&, const Panel&);
  void (*transform_output)(const Geometry&, const Chunk&, const Panel&, const Epilogue&, float* y);
};

// The tables; null where this build, this form or this block has none. `block`: 8 or 16.
const Stages* portable_stages(const Form& form, int block);
const Stages* avx2_stages(const Form& form, int block);
const Stages* avx512_stages(const Form& form, int block);

}  // namespace rlflow::kernels
