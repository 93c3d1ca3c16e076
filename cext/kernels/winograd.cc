#include "winograd.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <stdexcept>
#include <string>

#include "caches.h"
#include "tasks.h"

namespace rlflow::kernels {
namespace {

// Fewer tiles would leave the product's registers idle.
constexpr int64_t kFewTiles = 8;
// Weights that take more than so many caches are not transformed once more for each thread.
constexpr int64_t kManyCaches = 8;
// Keeps equal points of neighbouring tiles out of one another's cache sets.
constexpr int64_t kSkew = 32;
// More than any kernel has.
constexpr int64_t kMostTaps = 99;

std::string of(int64_t value) { return std::to_string(value); }

}  // namespace

Form form_of(int64_t tile, int64_t taps_y, int64_t taps_x) {
  const auto along = [tile](int64_t taps) { return static_cast<int>(taps > 1 ? std::clamp<int64_t>(tile, 0, kMostTaps) : 1); };
  const auto count = [](int64_t taps) { return static_cast<int>(std::clamp<int64_t>(taps, 0, kMostTaps)); };
  return {along(taps_y), along(taps_x), count(taps_y), count(taps_x)};
}

Winograd::Winograd(Isa isa, Form form, int block, int64_t out_channels, int64_t in_channels, Padding padding, WinogradTuning tuning, Weights given)
    : form_(form), block_(block), padding_(padding), tuning_(tuning), given_(given) {
  stages_ = stages(isa, form, block);
  if (!stages_)
    throw std::invalid_argument("There is no Winograd kernel for tiles of " + of(form.tile_y) + "x" + of(form.tile_x) + ", " + of(form.taps_y) + "x" +
                                of(form.taps_x) + " taps and blocks of " + of(block) + ".");
  if (out_channels <= 0 || in_channels <= 0 || out_channels % block || in_channels % block)
    throw std::invalid_argument("The weights have " + of(out_channels) + " by " + of(in_channels) + " channels; expected multiples of " + of(block) +
                                ".");
  for (const int64_t pad : {padding.top, padding.left, padding.bottom, padding.right})
    if (pad < 0 || pad > (1 << 20)) throw std::invalid_argument("The padding " + of(pad) + " is not between 0 and 1048576.");
  if (tuning.chunk < 0 || tuning.chunk > (1 << 20))
    throw std::invalid_argument("A chunk of " + of(tuning.chunk) + " tiles is not between 0 and 1048576.");
  if (tuning.threads < 0 || tuning.threads > (1 << 20))
    throw std::invalid_argument("A number of " + of(tuning.threads) + " threads is not between 0 and 1048576.");
  if (tuning.part < 0 || tuning.part > (1 << 20) || tuning.part % block)
    throw std::invalid_argument("A part of " + of(tuning.part) + " channels is not a multiple of " + of(block) + " between 0 and 1048576.");
  in_blocks_ = in_channels / block;
  out_blocks_ = out_channels / block;
}

int64_t Winograd::out_height(int64_t height) const {
  const int64_t size = height + padding_.top + padding_.bottom - (form_.taps_y - 1);
  if (height < 1 || size < 1) throw std::invalid_argument("An input of height " + of(height) + " leaves no output.");
  return size;
}

int64_t Winograd::out_width(int64_t width) const {
  const int64_t size = width + padding_.left + padding_.right - (form_.taps_x - 1);
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
          ceiling(rows, form_.tile_y),
          ceiling(columns, form_.tile_x)};
}

int64_t Winograd::v_stride(int64_t tiles) const { return in_blocks_ * tiles * block_ + kSkew; }
int64_t Winograd::u_stride(int64_t in_blocks) const { return in_blocks * block_ * stages_->group * block_ + kSkew; }
int64_t Winograd::m_stride(int64_t tiles) const { return stages_->group * tiles * block_ + kSkew; }

// The most tiles of a chunk by the caches. Beside weights that stay there V and M have a third of the second; else they, and U of
// a panel, about two thirds; of U that is given, two points.
int64_t Winograd::most_tiles(int64_t part, bool fits) const {
  const int64_t cache = second_level_cache() / static_cast<int64_t>(sizeof(float));
  const int64_t tile = points() * (in_blocks_ + stages_->group) * block_, u = (given_ == Weights::plain ? points() : 2) * u_stride(part);
  const int64_t fitting = (cache * 2 / 3 - u) / tile;
  if (fits) return std::max(stages_->least_shared, std::min(fitting, cache / 3 / tile));
  return std::max(given_ == Weights::plain ? stages_->least_tiles : stages_->least_given, fitting);
}

Winograd::Cut Winograd::cut(const Geometry& g) const {
  const int64_t cache = second_level_cache() / static_cast<int64_t>(sizeof(float)), panels = ceiling(out_blocks_, stages_->group);
  const int64_t wanted = tuning_.part > 0 ? tuning_.part : stages_->part;
  const int64_t parts = given_ == Weights::plain ? ceiling(in_blocks_ * block_, wanted) : 1, part = ceiling(in_blocks_, parts);
  const int64_t pieces = std::min(in_blocks_, ceiling(kSideBySide, panels));
  // Of weights that stay in the cache each chunk can have all, so that chunks are what threads do side by side: the stages of a
  // convolution of few channels have few parts, and all threads wait after each. Of others, where each thread has enough tiles.
  const int64_t weights = panels * points() * u_stride(in_blocks_);
  const bool fits = weights <= cache * 5 / 8, nearly = weights <= cache * 3 / 2, known = tuning_.threads > 1, plain = given_ == Weights::plain;
  const int64_t threads = known ? tuning_.threads : kSideBySide, tiles = g.tiles(), some = known ? threads : nearly ? 2 : 1;
  const int64_t each = plain && weights > kManyCaches * cache ? stages_->least_tiles : stages_->least_shared;
  const int64_t by_cache = std::clamp<int64_t>(tiles / each, tiles >= 2 * kFewTiles ? 2 : 1, threads);
  const int64_t enough = tuning_.chunk > 0 ? 1 : fits ? by_cache : tiles >= some * each ? some : 1;
  const int64_t needed = std::max(enough, ceiling(tiles, tuning_.chunk > 0 ? tuning_.chunk : most_tiles(part, fits)));
  const bool side_by_side = needed >= (nearly ? 2 : threads);
  const int64_t even = side_by_side && tuning_.chunk == 0 ? evened(needed, known ? threads : 2) : needed;
  const int64_t chunks = std::min(even, std::max(needed, tiles / kFewTiles));
  return {ceiling(tiles, chunks), chunks, part, panels, pieces, chunks > 1 && fits && plain, side_by_side};
}

// What the tasks of one call share.
struct Winograd::Job {
  const Winograd& self;
  Geometry g;
  Cut cut;
  const float *x, *weights;
  const Epilogue& epilogue;
  float* y;
  float* kept = nullptr;  // all transformed weights, [panel][point][...]
  Chunk chunk{};
  std::atomic<bool> out_of_memory{false};

  int64_t kept_floats() const { return self.points() * self.u_stride(self.in_blocks_); }

  Panel panel(int64_t number) const {
    const int64_t first = number * self.stages_->group, left = self.out_blocks_ - first;
    return {first, std::min<int64_t>(left, self.stages_->group), 0, self.in_blocks_, {}, nullptr, 0, nullptr, 0, 1};
  }
  // U of a panel that is made at `u`, by parts of so many blocks of input channels.
  Filters made(const float* u, const Panel& one, int64_t part) const { return {u, self.u_stride(part), one.width * self.block_, self.block_, 0}; }
  // U of a panel that was given.
  Filters given(const Panel& one) const {
    const int64_t point = self.in_blocks_ * self.block_ * self.block_, block = self.points() * point;
    return {weights + one.first_out * block, point, self.block_, block, true};
  }
  Chunk chunk_of(int64_t number, float* v) const {
    const int64_t first = number * g.tiles() / cut.chunks, count = (number + 1) * g.tiles() / cut.chunks - first;
    return {first, count, self.points(), v, self.v_stride(count)};
  }

  // One panel of the product, through to the output.
  void multiply(const Chunk& now, int64_t number, float* memory) const {
    Panel one = panel(number);
    one.m = memory;
    one.m_stride = self.m_stride(now.count);
    if (kept || self.given_ == Weights::transformed) {
      one.filters = kept ? made(kept + number * kept_floats(), one, self.in_blocks_) : given(one);
      self.stages_->multiply(now, one);
    } else {
      float* const u = memory + self.points() * one.m_stride;
      one.filters = made(u, one, cut.part);
      for (int64_t in = 0; in < self.in_blocks_; in += cut.part) {
        one.first_in = in;
        one.end_in = std::min(in + cut.part, self.in_blocks_);
        fetch_next(one);
        self.stages_->transform_weights(g, one, weights, u);
        self.stages_->multiply(now, one);
      }
    }
    self.stages_->transform_output(g, now, one, epilogue, y);
  }
  // Lets the product of a panel fetch the weights of the one after it.
  void fetch_next(Panel& one) const {
    const int64_t filters = self.form_.taps() * self.block_ * self.block_;
    const bool last = one.end_in == self.in_blocks_;
    const int64_t out = last ? one.first_out + self.stages_->group : one.first_out, in = last ? 0 : one.end_in;
    const bool any = out + one.width <= self.out_blocks_;
    one.next = any ? weights + (out * self.in_blocks_ + in) * filters : nullptr;
    one.next_stride = self.in_blocks_ * filters;
    one.next_lines = std::min(cut.part, self.in_blocks_ - in) * filters / 16;
  }
  std::size_t panel_floats() const {
    const int64_t u = kept || self.given_ == Weights::transformed ? 0 : self.u_stride(cut.part);
    return static_cast<std::size_t>(self.points() * (self.m_stride(cut.step) + u));
  }
  std::size_t chunk_floats() const { return static_cast<std::size_t>(self.points() * self.v_stride(cut.step)); }

  // --- tasks: `number` of those that `data`, the job, has ---

  static void whole_chunk(void* data, std::size_t number) {
    guarded<Job>(data, [number](Job& job) {
      const Scratch v(job.chunk_floats()), memory(job.panel_floats());
      const Chunk now = job.chunk_of(static_cast<int64_t>(number), v.data());
      job.self.stages_->transform_input(job.g, now, job.x, 0, job.g.in_blocks);
      for (int64_t panel = 0; panel < job.cut.panels; ++panel) job.multiply(now, panel, memory.data());
    });
  }
  static void weights_of(void* data, std::size_t number) {
    const Job& job = *static_cast<Job*>(data);
    const auto at = static_cast<int64_t>(number), pieces = job.cut.pieces, in_blocks = job.g.in_blocks;
    Panel one = job.panel(at / pieces);
    float* const u = job.kept + at / pieces * job.kept_floats();
    one.filters = job.made(u, one, in_blocks);
    one.first_in = at % pieces * in_blocks / pieces;
    one.end_in = (at % pieces + 1) * in_blocks / pieces;
    job.self.stages_->transform_weights(job.g, one, job.weights, u + one.first_in * job.self.block_ * one.filters.channel);
  }
  static void input(void* data, std::size_t number) {
    const Job& job = *static_cast<Job*>(data);
    const auto block = static_cast<int64_t>(number);
    job.self.stages_->transform_input(job.g, job.chunk, job.x, block, block + 1);
  }
  static void product(void* data, std::size_t number) {
    guarded<Job>(data, [number](Job& job) {
      const Scratch memory(job.panel_floats());
      job.multiply(job.chunk, static_cast<int64_t>(number), memory.data());
    });
  }
};

void Winograd::run(int64_t batch, int64_t height, int64_t width, const float* x, const float* weights, const Epilogue& epilogue, float* y,
                   const Workers& workers) const {
  if (batch == 0) return;
  const Geometry g = geometry(batch, height, width);
  Job job{*this, g, cut(g), x, weights, epilogue, y};
  const auto panels = static_cast<std::size_t>(job.cut.panels);
  const Scratch kept(job.cut.keeps_weights ? panels * static_cast<std::size_t>(job.kept_floats()) : 0);
  if (job.cut.keeps_weights) {
    job.kept = kept.data();
    workers.run(panels * static_cast<std::size_t>(job.cut.pieces), Job::weights_of, &job);
  }
  if (job.cut.side_by_side) {
    workers.run(static_cast<std::size_t>(job.cut.chunks), Job::whole_chunk, &job);
  } else {
    const Scratch v(job.chunk_floats());
    for (int64_t number = 0; number < job.cut.chunks; ++number) {
      job.chunk = job.chunk_of(number, v.data());
      workers.run(static_cast<std::size_t>(in_blocks_), Job::input, &job);
      workers.run(panels, Job::product, &job);
    }
  }
  if (job.out_of_memory) throw std::bad_alloc();
}

}  // namespace rlflow::kernels
