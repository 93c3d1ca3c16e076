#include "winograd.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <new>
#include <stdexcept>
#include <string>

namespace rlflow::kernels {
namespace {

constexpr int kMostPoints = 6;  // along one axis
// What the transformed tiles of a chunk should take, in floats: about half of a second-level cache.
constexpr int64_t kChunkFloats = 160 * 1024;
// Fewer tiles at a time would read the transformed weights too often.
constexpr int64_t kLeastTiles = 24;
// From so many chunks on they are worked on side by side; fewer would leave threads idle.
constexpr int64_t kSideBySide = 8;
// Keeps equal points of neighbouring tiles out of one another's cache sets.
constexpr int64_t kSkew = 32;

using Filter = std::array<std::array<double, 3>, kMostPoints>;

// G of Y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A: a row (1, p, p²) / N(p) a point p, N(p) the product of p's distances to the other
// points; the last row is the point at infinity.
Filter filter_matrix(int tile) {
  const std::vector<double> points = tile == 2 ? std::vector<double>{0, 1, -1} : std::vector<double>{0, kNear, -kNear, kFar, -kFar};
  Filter g{};
  for (std::size_t row = 0; row < points.size(); ++row) {
    double distance = 1;
    for (const double other : points) distance *= other == points[row] ? 1 : points[row] - other;
    // The input transform of F(2×2) has its first row negated, as is usual.
    if (tile == 2 && row == 0) distance = -distance;
    for (int k = 0; k < 3; ++k) g[row][k] = (k == 0 ? 1 : k == 1 ? points[row] : points[row] * points[row]) / distance;
  }
  g[points.size()][2] = 1;
  return g;
}

std::string of(int64_t value) { return std::to_string(value); }

}  // namespace

Winograd::Winograd(Isa isa, int tile, int block, int64_t out_channels, int64_t in_channels, const float* weights, Padding padding, int64_t chunk)
    : tile_(tile), block_(block), padding_(padding), chunk_(chunk) {
  stages_ = stages(isa, tile, block);
  if (!stages_) throw std::invalid_argument("There is no Winograd kernel for tiles of " + of(tile) + " and blocks of " + of(block) + ".");
  if (out_channels <= 0 || in_channels <= 0 || out_channels % block || in_channels % block)
    throw std::invalid_argument("The weights have " + of(out_channels) + " by " + of(in_channels) + " channels; expected multiples of " + of(block) +
                                ".");
  for (const int64_t pad : {padding.top, padding.left, padding.bottom, padding.right})
    if (pad < 0 || pad > (1 << 20)) throw std::invalid_argument("The padding " + of(pad) + " is not between 0 and 1048576.");
  if (chunk < 0 || chunk > (1 << 20)) throw std::invalid_argument("A chunk of " + of(chunk) + " tiles is not between 0 and 1048576.");
  in_blocks_ = in_channels / block;
  out_blocks_ = out_channels / block;
  transform_weights(weights);
}

// U = G g Gᵀ in double precision, rounded once, laid out as [point][group][input channel][group · block].
void Winograd::transform_weights(const float* weights) {
  const Filter g = filter_matrix(tile_);
  const int n = tile_ + 2;
  const int64_t channels = in_blocks_ * block_, group = stages_->group;
  u_.resize(static_cast<std::size_t>(points() * channels * out_blocks_ * block_));
  std::vector<double> half(static_cast<std::size_t>(n * 3 * block_));
  for (int64_t out = 0; out < out_blocks_; ++out) {
    const int64_t start = out / group * group, width = out_blocks_ - start >= group ? group : 1;
    const int64_t first = width == 1 ? out : start;  // what is left over of the groups stands alone
    float* const column = u_.data() + first * channels * block_ + (out - first) * block_;
    for (int64_t in = 0; in < channels; ++in) {
      const float* from = weights + ((out * in_blocks_ + in / block_) * 9 * block_ + in % block_) * block_;
      for (int i = 0; i < n; ++i)
        for (int k = 0; k < 3; ++k)
          for (int lane = 0; lane < block_; ++lane) {
            double sum = 0;
            for (int l = 0; l < 3; ++l) sum += g[i][l] * from[(l * 3 + k) * block_ * block_ + lane];
            half[(i * 3 + k) * block_ + lane] = sum;
          }
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) {
          float* to = column + (i * n + j) * channels * out_blocks_ * block_ + in * width * block_;
          const double* row = half.data() + i * 3 * block_;
          for (int lane = 0; lane < block_; ++lane)
            to[lane] = static_cast<float>(g[j][0] * row[lane] + g[j][1] * row[block_ + lane] + g[j][2] * row[2 * block_ + lane]);
        }
    }
  }
}

int64_t Winograd::out_height(int64_t height) const {
  const int64_t size = height + padding_.top + padding_.bottom - 2;
  if (height < 1 || size < 1) throw std::invalid_argument("An input of height " + of(height) + " leaves no output.");
  return size;
}

int64_t Winograd::out_width(int64_t width) const {
  const int64_t size = width + padding_.left + padding_.right - 2;
  if (width < 1 || size < 1) throw std::invalid_argument("An input of width " + of(width) + " leaves no output.");
  return size;
}

Geometry Winograd::geometry(int64_t batch, int64_t height, int64_t width) const {
  const int64_t rows = out_height(height), columns = out_width(width);
  return {batch,
          in_blocks_,
          out_blocks_,
          height,
          width,
          rows,
          columns,
          padding_.top,
          padding_.left,
          (rows + tile_ - 1) / tile_,
          (columns + tile_ - 1) / tile_};
}

int64_t Winograd::chunk_tiles(const Geometry& g) const {
  const int64_t fitting = kChunkFloats / (points() * (in_blocks_ + out_blocks_) * block_);
  const int64_t most = chunk_ > 0 ? chunk_ : std::max(kLeastTiles, fitting);
  const int64_t chunks = (g.tiles() + most - 1) / most;
  return (g.tiles() + chunks - 1) / chunks;
}

Chunk Winograd::chunk_of(const Geometry& g, int64_t first, int64_t count, float* memory) const {
  const int64_t v_stride = g.in_blocks * count * block_ + kSkew, m_stride = g.out_blocks * count * block_ + kSkew;
  return {first, count, memory, memory + points() * v_stride, v_stride, m_stride};
}

std::size_t Winograd::chunk_floats(const Geometry& g, int64_t count) const {
  return static_cast<std::size_t>(points() * ((g.in_blocks + g.out_blocks) * count * block_ + 2 * kSkew));
}

// What the tasks of one call share.
struct Winograd::Job {
  const Winograd* self;
  Geometry g;
  const float* x;
  const Epilogue* epilogue;
  float* y;
  int64_t step;
  Chunk chunk{};
  std::atomic<bool> out_of_memory{false};

  // All stages of one chunk, in memory of its own.
  static void whole_chunk(void* data, std::size_t number) {
    Job& job = *static_cast<Job*>(data);
    const Winograd& self = *job.self;
    const int64_t first = static_cast<int64_t>(number) * job.step, count = std::min(job.step, job.g.tiles() - first);
    try {
      const Scratch memory(self.chunk_floats(job.g, count));
      const Chunk chunk = self.chunk_of(job.g, first, count, memory.data());
      self.stages_->transform_input(job.g, chunk, job.x, 0, job.g.in_blocks);
      self.stages_->multiply(job.g, chunk, self.u_.data(), 0, self.points());
      self.stages_->transform_output(job.g, chunk, *job.epilogue, job.y, 0, job.g.out_blocks);
    } catch (const std::bad_alloc&) {
      job.out_of_memory = true;
    }
  }

  static void input(void* data, std::size_t number) {
    const Job& job = *static_cast<Job*>(data);
    const auto block = static_cast<int64_t>(number);
    job.self->stages_->transform_input(job.g, job.chunk, job.x, block, block + 1);
  }
  static void product(void* data, std::size_t number) {
    const Job& job = *static_cast<Job*>(data);
    const auto point = static_cast<int64_t>(number);
    job.self->stages_->multiply(job.g, job.chunk, job.self->u_.data(), point, point + 1);
  }
  static void output(void* data, std::size_t number) {
    const Job& job = *static_cast<Job*>(data);
    const auto block = static_cast<int64_t>(number);
    job.self->stages_->transform_output(job.g, job.chunk, *job.epilogue, job.y, block, block + 1);
  }
};

void Winograd::run(int64_t batch, int64_t height, int64_t width, const float* x, const Epilogue& epilogue, float* y, const Workers& workers) const {
  if (batch == 0) return;
  Job job{this, geometry(batch, height, width), x, &epilogue, y, 0};
  job.step = chunk_tiles(job.g);
  const int64_t chunks = (job.g.tiles() + job.step - 1) / job.step;
  if (chunks >= kSideBySide) {
    workers.run(static_cast<std::size_t>(chunks), Job::whole_chunk, &job);
    if (job.out_of_memory) throw std::bad_alloc();
    return;
  }
  const Scratch memory(chunk_floats(job.g, job.step));
  for (int64_t first = 0; first < job.g.tiles(); first += job.step) {
    job.chunk = chunk_of(job.g, first, std::min(job.step, job.g.tiles() - first), memory.data());
    workers.run(static_cast<std::size_t>(job.g.in_blocks), Job::input, &job);
    workers.run(static_cast<std::size_t>(points()), Job::product, &job);
    workers.run(static_cast<std::size_t>(job.g.out_blocks), Job::output, &job);
  }
}

}  // namespace rlflow::kernels
