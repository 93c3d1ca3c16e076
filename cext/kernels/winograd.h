// A 3×3 convolution of stride 1 by Winograd's algorithm, on blocked tensors.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "isa.h"
#include "scratch.h"
#include "stages.h"

namespace rlflow::kernels {

// Runs `tasks` tasks, in any order, perhaps side by side; returns when all are done.
class Workers {
 public:
  virtual ~Workers() = default;
  virtual void run(std::size_t tasks, void (*task)(void* data, std::size_t number), void* data) const = 0;
};

struct Padding {
  int64_t top = 0, left = 0, bottom = 0, right = 0;
};

class Winograd {
 public:
  // `weights`: [out_channels / block][in_channels / block][3][3][block of inputs][block of outputs], as ONNX Runtime lays
  // them out. `tile`: 2 or 4; `chunk`: tiles worked on at a time, 0: by the size of the caches.
  // Throws std::invalid_argument with a sentence for what it cannot do.
  Winograd(Isa isa, int tile, int block, int64_t out_channels, int64_t in_channels, const float* weights, Padding padding, int64_t chunk = 0);

  // Sizes of the output for an input of that size; throws std::invalid_argument where it would be empty.
  int64_t out_height(int64_t height) const;
  int64_t out_width(int64_t width) const;

  // x: [batch][in_channels / block][height][width][block]; y likewise. Throws std::bad_alloc.
  void run(int64_t batch, int64_t height, int64_t width, const float* x, const Epilogue& epilogue, float* y, const Workers& workers) const;

  int64_t in_channels() const { return in_blocks_ * block_; }
  int64_t out_channels() const { return out_blocks_ * block_; }
  int block() const { return block_; }

 private:
  struct Job;

  void transform_weights(const float* weights);
  Geometry geometry(int64_t batch, int64_t height, int64_t width) const;
  int64_t chunk_tiles(const Geometry& g) const;
  Chunk chunk_of(const Geometry& g, int64_t first, int64_t count, float* memory) const;
  std::size_t chunk_floats(const Geometry& g, int64_t count) const;
  int points() const { return (tile_ + 2) * (tile_ + 2); }

  int tile_, block_;
  int64_t in_blocks_, out_blocks_;
  Padding padding_;
  int64_t chunk_;
  const Stages* stages_;
  std::vector<float> u_;
  ScratchUser user_;
};

}  // namespace rlflow::kernels
