// NchwcUnrolled(X, W, B?, Sum?) -> Y: a convolution without groups as one matrix product, on the blocked tensors of
// com.microsoft.nchwc. W must be constant, [out channels, in channels, kernel_y, kernel_x] in the runtime's blocked order.
// Attributes: block (8, 16), pads (top, left, bottom, right), strides, dilations, activation with activation_params; and what
// a tuner chooses, chunk: rows of the product, pixels of the output, that are worked on at a time (0: by the caches).
#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "caches.h"
#include "conv_steps.h"
#include "isa.h"
#include "operators.h"
#include "scratch.h"

namespace rlflow::kernels {
namespace {

// From so many chunks on they are worked on side by side; fewer would leave threads idle.
constexpr int64_t kSideBySide = 8;
// Fewer rows would read the weights too often.
constexpr int64_t kLeastRows = 48;
// Blocks of outputs in a task.
constexpr int64_t kTaskBlocks = 2;
// Keeps equal rows of neighbouring parts out of one another's cache sets.
constexpr int64_t kSkew = 16;

class UnrolledKernel {
 public:
  static constexpr const char* kName = "NchwcUnrolled";
  static constexpr std::size_t kInputs = 4, kRequired = 2, kOutputs = 1;
  const Api api;

  UnrolledKernel(Api calls, const ort::KernelInfo* info) : api(calls) {
    const Attributes attributes{api, info};
    steps_ = steps_of(attributes);
    epilogue_ = epilogue_of(attributes);
    block_ = attributes.integer("block", 0);
    chunk_ = attributes.integer("chunk", 0);
    const std::vector<int64_t> sizes = constant_shape(api, info, 1, "NchwcUnrolled: the weights are not constant.");
    const bool fits = (block_ == 8 || block_ == 16) && sizes.size() == 4 && *std::min_element(sizes.begin(), sizes.end()) > 0 &&
                      sizes[0] % block_ == 0 && sizes[1] % block_ == 0;
    if (!fits)
      throw std::invalid_argument("NchwcUnrolled: the weights have another shape than [channels, channels, height, width] in blocks of 8 or 16.");
    if (chunk_ < 0 || chunk_ > kMostSteps)
      throw std::invalid_argument("NchwcUnrolled: a chunk of " + std::to_string(chunk_) + " rows is not between 0 and " + std::to_string(kMostSteps) +
                                  ".");
    out_blocks_ = sizes[0] / block_;
    in_blocks_ = sizes[1] / block_;
    kernel_[0] = sizes[2];
    kernel_[1] = sizes[3];
  }

  void run(ort::KernelContext* context) const {
    const Tensors t = tensors_of(api, context, steps_, {in_blocks_ * block_, out_blocks_ * block_}, kernel_, epilogue_);
    const Steps& s = steps_;
    const Unrolled c{t.in[0],      in_blocks_,     out_blocks_,    t.in[2],   t.in[3],   t.out[2], t.out[3],  kernel_[0], kernel_[1], s.strides[0],
                     s.strides[1], s.dilations[0], s.dilations[1], s.pads[0], s.pads[1], t.x,      t.weights, t.epilogue, t.y};
    if (c.batch * c.plane() == 0) return;
    const Routines& table = routines(process_isa());
    Job job{*this, c, cut(c), block_ == 16 ? table.unroll_16 : table.unroll_8, block_ == 16 ? table.unrolled_16 : table.unrolled_8, {}};
    job.run(RuntimePool(api, context));
    if (job.out_of_memory) throw std::bad_alloc();
  }

 private:
  // Rows of a chunk; chunks of an image where `in_place`, else of all. `in_place`: the input has the rows as they are needed.
  struct Cut {
    int64_t step, chunks;
    bool in_place;
  };

  Cut cut(const Unrolled& c) const {
    const bool in_place = c.taps() == 1 && std::max(steps_.strides[0], steps_.strides[1]) == 1 &&
                          *std::max_element(steps_.pads, steps_.pads + 4) == 0 && (c.batch == 1 || c.plane() >= 2 * kLeastRows);
    const int64_t cache = second_level_cache() / static_cast<int64_t>(sizeof(float)), rows = in_place ? c.plane() : c.batch * c.plane();
    const int64_t most = chunk_ > 0 ? chunk_ : std::max(kLeastRows, cache / 2 / (c.parts() * block_));
    const int64_t chunks = (rows + most - 1) / most, step = (rows + chunks - 1) / chunks;
    return {step, (rows + step - 1) / step, in_place};
  }

  struct Job {
    const UnrolledKernel& self;
    const Unrolled& c;
    Cut cut;
    void (*unroll)(const Unrolled&, const UnrolledRows&, int64_t, int64_t);
    void (*product)(const Unrolled&, const UnrolledRows&, int64_t, int64_t);
    UnrolledRows rows;
    std::atomic<bool> out_of_memory{false};

    int64_t tasks_of_product() const { return (c.out_blocks + kTaskBlocks - 1) / kTaskBlocks; }

    UnrolledRows chunk(int64_t number, float* values) const {
      const int64_t block = self.block_, image = cut.in_place ? number / cut.chunks : 0;
      const int64_t begin = (cut.in_place ? number % cut.chunks : number) * cut.step;
      const int64_t count = std::min(cut.step, (cut.in_place ? c.plane() : c.batch * c.plane()) - begin);
      if (!cut.in_place) return {begin, count, values, count * block + kSkew};
      float* const x = const_cast<float*>(c.x) + (image * c.in_blocks * c.plane() + begin) * block;  // it is only read
      return {image * c.plane() + begin, count, x, c.plane() * block};
    }
    std::size_t chunk_floats() const { return cut.in_place ? 0 : static_cast<std::size_t>(c.parts() * (cut.step * self.block_ + kSkew)); }

    void run(const Workers& workers) {
      const int64_t chunks = cut.chunks * (cut.in_place ? c.batch : 1);
      if (chunks >= kSideBySide) return workers.run(static_cast<std::size_t>(chunks), whole_chunk, this);
      const Scratch values(chunk_floats());
      for (int64_t number = 0; number < chunks; ++number) {
        rows = chunk(number, values.data());
        if (!cut.in_place) workers.run(static_cast<std::size_t>(c.in_blocks), input, this);
        workers.run(static_cast<std::size_t>(tasks_of_product()), panel, this);
      }
    }
    static void whole_chunk(void* data, std::size_t number) {
      Job& job = *static_cast<Job*>(data);
      try {
        const Scratch values(job.chunk_floats());
        const UnrolledRows rows = job.chunk(static_cast<int64_t>(number), values.data());
        if (!job.cut.in_place) job.unroll(job.c, rows, 0, job.c.in_blocks);
        job.product(job.c, rows, 0, job.c.out_blocks);
      } catch (const std::bad_alloc&) {
        job.out_of_memory = true;
      }
    }
    static void input(void* data, std::size_t number) {
      const Job& job = *static_cast<Job*>(data);
      const auto block = static_cast<int64_t>(number);
      job.unroll(job.c, job.rows, block, block + 1);
    }
    static void panel(void* data, std::size_t number) {
      const Job& job = *static_cast<Job*>(data);
      const int64_t first = static_cast<int64_t>(number) * kTaskBlocks;
      job.product(job.c, job.rows, first, std::min(first + kTaskBlocks, job.c.out_blocks));
    }
  };

  Steps steps_;
  Epilogue epilogue_;
  int64_t block_, chunk_, out_blocks_, in_blocks_, kernel_[2];
  ScratchUser user_;
};

}  // namespace

const ort::CustomOp& unrolled_operator() {
  static const ort::CustomOp op = operator_of<UnrolledKernel>();
  return op;
}

}  // namespace rlflow::kernels
