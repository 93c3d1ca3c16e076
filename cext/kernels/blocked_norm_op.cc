// NchwcNorm(X, Scale, Shift?) -> Y: LayerNormalization of the channels of each pixel, on the blocked tensors of
// com.microsoft.nchwc, which the runtime would put in plain order before and in blocks again after. The channels fill their
// blocks. Scale and Shift have a value for each. Attributes: block (8, 16), epsilon; and what a tuner chooses, pixels: those of a
// task, 0: by their size.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "isa.h"
#include "operators.h"

namespace rlflow::kernels {
namespace {

constexpr int64_t kTaskFloats = 1 << 14;
constexpr int64_t kMostPixels = 1 << 20;

class BlockedNormKernel {
 public:
  static constexpr const char* kName = "NchwcNorm";
  static constexpr std::size_t kInputs = 3, kRequired = 2, kOutputs = 1;
  const Api api;

  BlockedNormKernel(Api calls, const ort::KernelInfo* info) : api(calls) {
    const Attributes attributes{api, info};
    block_ = attributes.integer("block", 0);
    epsilon_ = attributes.number("epsilon", 1e-5f);
    task_pixels_ = attributes.integer("pixels", 0);
    const std::vector<int64_t> sizes = constant_shape(api, info, 1, "NchwcNorm: the scale is not constant.");
    if ((block_ != 8 && block_ != 16) || sizes.size() != 1 || sizes[0] < 1 || sizes[0] % block_)
      throw std::invalid_argument("NchwcNorm: the scale has another shape than [channels] in blocks of 8 or 16.");
    if (task_pixels_ < 0 || task_pixels_ > kMostPixels)
      throw std::invalid_argument("NchwcNorm: a task of " + std::to_string(task_pixels_) + " pixels is not between 0 and 1048576.");
    channels_ = sizes[0];
  }

  void run(ort::KernelContext* context) const {
    const ort::Value* x = api.input(context, 0);
    const std::vector<int64_t> sizes = api.shape(x);
    if (sizes.size() != 4 || sizes[1] != channels_) throw std::invalid_argument("NchwcNorm: the input has other channels than the scale.");
    const float* shift = api.optional(context, 2, {channels_}, "NchwcNorm: the shift has another size than the scale.");
    float* y = api.output(context, 0, sizes);
    const BlockedNorm norm{channels_ / block_, sizes[2] * sizes[3], epsilon_, api.data(api.input(context, 1)), shift, api.data(x), y};
    const int64_t step = task_pixels_ > 0 ? task_pixels_ : std::max<int64_t>(16, kTaskFloats / channels_);
    const int64_t pieces = (norm.plane + step - 1) / step;
    if (sizes[0] == 0 || pieces == 0) return;
    const Routines& table = routines(process_isa());
    Job job{norm, block_ == 16 ? table.blocked_norm_16 : table.blocked_norm_8, step, pieces};
    const auto task = [](void* data, std::size_t number) {
      const Job& mine = *static_cast<Job*>(data);
      const int64_t image = static_cast<int64_t>(number) / mine.pieces, first = static_cast<int64_t>(number) % mine.pieces * mine.step;
      mine.routine(mine.norm, image, first, std::min(first + mine.step, mine.norm.plane));
    };
    RuntimePool(api, context).run(static_cast<std::size_t>(sizes[0] * pieces), task, &job);
  }

 private:
  struct Job {
    const BlockedNorm& norm;
    void (*routine)(const BlockedNorm&, int64_t, int64_t, int64_t);
    int64_t step, pieces;
  };

  int64_t block_, task_pixels_, channels_;
  float epsilon_;
};

}  // namespace

const ort::CustomOp& blocked_norm_operator() {
  static const ort::CustomOp op = operator_of<BlockedNormKernel>();
  return op;
}

}  // namespace rlflow::kernels
