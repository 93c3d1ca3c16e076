#include "unrolled.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "caches.h"
#include "isa.h"
#include "scratch.h"
#include "tasks.h"

namespace rlflow::kernels {
namespace {

// Fewer rows would read the weights too often.
constexpr int64_t kLeastRows = 48;
// Of Strassen's algorithm, whose sums of weights are made anew for each chunk.
constexpr int64_t kLeastHalves = 256;
// Multiplications of a chunk: of fewer a thread is done before another one has come to its own.
constexpr int64_t kLeastWork = 400'000;
// Blocks of outputs in a task.
constexpr int64_t kTaskBlocks = 2;
// Keeps equal rows of neighbouring parts out of one another's cache sets.
constexpr int64_t kSkew = 16;
// Sums of quarters of the weights that Strassen's algorithm makes.
constexpr int64_t kWeightSums = 4;

class Job {
 public:
  std::atomic<bool> out_of_memory{false};

  Job(const Unrolled& unrolled, int64_t block, bool in_place, UnrolledTuning tuning)
      : c_(unrolled), block_(block), in_place_(in_place && (c_.batch == 1 || c_.plane() >= 2 * kLeastRows)) {
    halves_ = tuning.strassen && c_.parts() % 2 == 0 && c_.out_blocks >= 2;
    const int64_t cache = second_level_cache() / static_cast<int64_t>(sizeof(float)), rows = in_place_ ? c_.plane() : c_.batch * c_.plane();
    const int64_t fitting = cache / (halves_ ? 4 : 2) / (c_.parts() * block);
    const int64_t least_rows = halves_ ? kLeastHalves : kLeastRows, most = tuning.chunk > 0 ? tuning.chunk : std::max(least_rows, fitting);
    // Weights that stay in the cache may be read by each thread for chunks of its own.
    const int64_t weights = c_.out_blocks * c_.parts() * block * block;
    const bool fits = weights <= cache;
    const int64_t enough = fits && tuning.chunk == 0 ? std::min({rows / least_rows, rows * weights / kLeastWork, kSideBySide}) : 1;
    const int64_t least = std::max(ceiling(rows, most), enough), even = least > 1 && tuning.chunk == 0 ? evened(least) : least;
    step_ = ceiling(rows, even);
    chunks_ = ceiling(rows, step_);
    side_by_side_ = chunks_ * (in_place_ ? c_.batch : 1) >= (fits ? 2 : kSideBySide);
    const Routines& table = routines(process_isa());
    unroll_ = block == 16 ? table.unroll_16 : table.unroll_8;
    product_ = block == 16 ? table.unrolled_16 : table.unrolled_8;
    halve_ = block == 16 ? table.halve_16 : table.halve_8;
    strassen_ = block == 16 ? table.strassen_16 : table.strassen_8;
  }

  void run(const Workers& workers) {
    const int64_t chunks = chunks_ * (in_place_ ? c_.batch : 1);
    if (side_by_side_) {
      workers.run(static_cast<std::size_t>(chunks), whole_chunk, this);
    } else {
      const Scratch values(chunk_floats()), sums(sums_floats());
      for (int64_t number = 0; number < chunks; ++number) {
        now_ = chunk(number, values.data(), sums.data());
        if (!in_place_) workers.run(static_cast<std::size_t>(c_.in_blocks), input, this);
        if (halves_) workers.run(static_cast<std::size_t>(now_.parts), half_input, this);
        workers.run(static_cast<std::size_t>(tasks_of_product()), panel, this);
      }
    }
    if (out_of_memory) throw std::bad_alloc();
  }

 private:
  int64_t half_blocks() const { return c_.out_blocks / 2; }
  // Of Strassen's, one for some blocks of each half; the odd block out, which is done without, comes last.
  int64_t tasks_of_product() const { return halves_ ? ceiling(half_blocks(), kTaskBlocks) + c_.out_blocks % 2 : ceiling(c_.out_blocks, kTaskBlocks); }

  // Some rows and, for Strassen's, their halves; chunks of an image where they lie as they are, else of all.
  UnrolledHalves chunk(int64_t number, float* values, float* sums) const {
    const int64_t image = in_place_ ? number / chunks_ : 0, begin = (in_place_ ? number % chunks_ : number) * step_;
    const int64_t count = std::min(step_, (in_place_ ? c_.plane() : c_.batch * c_.plane()) - begin), half = (count + 1) / 2;
    UnrolledRows all{begin, count, values, count * block_ + kSkew};
    if (in_place_) {
      float* const x = const_cast<float*>(c_.x) + image * c_.from.image + begin * block_;  // it is only read
      all = {image * c_.plane() + begin, count, x, c_.from.block};
    }
    return {all, c_.parts() / 2, half, count - half, sums, half * block_ + kSkew};
  }
  std::size_t chunk_floats() const { return in_place_ ? 0 : static_cast<std::size_t>(c_.parts() * (step_ * block_ + kSkew)); }
  std::size_t sums_floats() const { return halves_ ? static_cast<std::size_t>(2 * c_.parts() * ((step_ + 1) / 2 * block_ + kSkew)) : 0; }
  std::size_t weights_floats() const {
    return halves_ ? static_cast<std::size_t>(kWeightSums * kTaskBlocks * (c_.parts() / 2) * block_ * block_) : 0;
  }

  // --- tasks: `number` of those that `data`, the job, has ---

  static void whole_chunk(void* data, std::size_t number) {
    guarded<Job>(data, [number](const Job& job) {
      const Scratch values(job.chunk_floats()), sums(job.sums_floats());
      const UnrolledHalves some = job.chunk(static_cast<int64_t>(number), values.data(), sums.data());
      if (!job.in_place_) job.unroll_(job.c_, some.all, 0, job.c_.in_blocks);
      if (!job.halves_) return job.product_(job.c_, some.all, 0, job.c_.out_blocks);
      const Scratch weights(job.weights_floats());
      job.halve_(some, 0, some.parts);
      job.strassen_(job.c_, some, 0, job.half_blocks(), weights.data());
      job.product_(job.c_, some.all, 2 * job.half_blocks(), job.c_.out_blocks);
    });
  }
  static void input(void* data, std::size_t number) {
    const Job& job = *static_cast<Job*>(data);
    const auto block = static_cast<int64_t>(number);
    job.unroll_(job.c_, job.now_.all, block, block + 1);
  }
  static void half_input(void* data, std::size_t number) {
    const Job& job = *static_cast<Job*>(data);
    const auto part = static_cast<int64_t>(number);
    job.halve_(job.now_, part, part + 1);
  }
  static void panel(void* data, std::size_t number) {
    guarded<Job>(data, [number](const Job& job) {
      const int64_t first = static_cast<int64_t>(number) * kTaskBlocks, end = job.halves_ ? job.half_blocks() : job.c_.out_blocks;
      if (!job.halves_) return job.product_(job.c_, job.now_.all, first, std::min(first + kTaskBlocks, end));
      if (first >= end) return job.product_(job.c_, job.now_.all, 2 * end, job.c_.out_blocks);
      const Scratch weights(job.weights_floats());
      job.strassen_(job.c_, job.now_, first, std::min(first + kTaskBlocks, end), weights.data());
    });
  }

  const Unrolled& c_;
  int64_t block_, step_, chunks_;  // rows of a chunk
  bool in_place_, halves_, side_by_side_;
  void (*unroll_)(const Unrolled&, const UnrolledRows&, int64_t, int64_t);
  void (*product_)(const Unrolled&, const UnrolledRows&, int64_t, int64_t);
  void (*halve_)(const UnrolledHalves&, int64_t, int64_t);
  void (*strassen_)(const Unrolled&, const UnrolledHalves&, int64_t, int64_t, float*);
  UnrolledHalves now_{};
};

}  // namespace

void run_unrolled(const Unrolled& c, int64_t block, bool in_place, UnrolledTuning tuning, const Workers& workers) {
  if (c.batch * c.plane() > 0) Job(c, block, in_place, tuning).run(workers);
}

}  // namespace rlflow::kernels
