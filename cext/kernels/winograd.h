// A convolution of stride 1 by Winograd's algorithm, on blocked tensors.
#pragma once
#include <cstdint>

#include "isa.h"
#include "scratch.h"
#include "stages.h"
#include "workers.h"

namespace rlflow::kernels {

struct Padding {
  int64_t top = 0, left = 0, bottom = 0, right = 0;
};

// What a tuner may choose, where 0 is by the size of the caches; and the threads that there will be, where they are known.
struct WinogradTuning {
  int64_t chunk = 0;    // tiles worked on at a time
  int64_t part = 0;     // input channels in a pass of the product, a multiple of the block
  int64_t threads = 0;  // 0: any number
};

// The form with that many outputs a tile along each axis that has several taps; there need be no kernel for it.
Form form_of(int64_t tile, int64_t taps_y, int64_t taps_x);

// What is given as weights: those of the convolution, or U (stages.h).
enum class Weights { plain, transformed };

class Winograd {
 public:
  // Throws std::invalid_argument with a sentence for what it cannot do.
  Winograd(Isa isa, Form form, int block, int64_t out_channels, int64_t in_channels, Padding padding, WinogradTuning tuning = {},
           Weights given = Weights::plain);

  // Sizes of the output for an input of that size; throws std::invalid_argument where it would be empty.
  int64_t out_height(int64_t height) const;
  int64_t out_width(int64_t width) const;

  // x: [batch][in_channels / block][height][width][block]; y likewise. `weights`: [out_channels / block]
  // [in_channels / block][taps_y][taps_x][block of inputs][block of outputs], as ONNX Runtime lays them out; where transformed,
  // [out_channels / block][points][in_channels][block of outputs]. Throws std::bad_alloc.
  void run(int64_t batch, int64_t height, int64_t width, const float* x, const float* weights, const Epilogue& epilogue, float* y,
           const Workers& workers) const;

  int64_t in_channels() const { return in_blocks_ * block_; }
  int64_t out_channels() const { return out_blocks_ * block_; }

 private:
  struct Job;
  // How one call is cut: the most tiles in a chunk, chunks, blocks of input channels in a part, panels, pieces of the weights of
  // each; whether all transformed weights are kept for the chunks after the first; whether the chunks are the tasks, or the parts
  // of one after the other.
  struct Cut {
    int64_t step, chunks, part, panels, pieces;
    bool keeps_weights, side_by_side;
  };

  Geometry geometry(int64_t batch, int64_t height, int64_t width) const;
  int64_t most_tiles(int64_t part, bool fits) const;
  Cut cut(const Geometry& g) const;
  int64_t points() const { return form_.points(); }
  int64_t v_stride(int64_t tiles) const;
  int64_t u_stride(int64_t in_blocks) const;
  int64_t m_stride(int64_t tiles) const;

  Form form_;
  int block_;
  int64_t in_blocks_, out_blocks_;
  Padding padding_;
  WinogradTuning tuning_;
  Weights given_;
  const Stages* stages_;
  ScratchUser user_;
};

}  // namespace rlflow::kernels
