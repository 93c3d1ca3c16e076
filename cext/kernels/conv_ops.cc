// Convolutions that the runtime is slow at.
//
// DepthwiseConv(X, W, B?, Sum?) -> Y: depthwise, on plain tensors [batch, channels, height, width]; W is constant, [channels,
// 1, kernel_y, kernel_x]. NchwcGrouped(X, W, B?, Sum?) -> Y: 2, 4 or 8 channels a group, in and out, on blocked tensors; W is
// constant, [blocks, kernel_y, kernel_x, channels of a group, channels of a block]. Attributes of both: pads (top, left, bottom,
// right), strides, dilations, activation with activation_params; and what a tuner chooses, side_by_side: rows (depthwise) or
// pixels of a row (grouped) whose sums one inner loop keeps.
#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "conv_steps.h"
#include "isa.h"
#include "operators.h"
#include "scratch.h"

namespace rlflow::kernels {
namespace {

constexpr int64_t kTaskRows = 4096;  // outputs of a block of channels in a task

int64_t side_by_side_of(const Attributes& attributes, int64_t most) {
  const int64_t found = attributes.integer("side_by_side", most);
  if (found < 1 || found > most)
    throw std::invalid_argument("rlflow.kernels: side_by_side is " + std::to_string(found) + "; expected 1 to " + std::to_string(most) + ".");
  return found;
}

// --- depthwise ----------------------------------------------------------------------------------------------------------

class DepthwiseKernel {
 public:
  static constexpr const char* kName = "DepthwiseConv";
  static constexpr std::size_t kInputs = 4, kRequired = 2, kOutputs = 1;
  const Api api;

  DepthwiseKernel(Api calls, const ort::KernelInfo* info) : api(calls) {
    const Attributes attributes{api, info};
    steps_ = steps_of(attributes);
    epilogue_ = epilogue_of(attributes);
    side_by_side_ = side_by_side_of(attributes, 4);
    const std::vector<int64_t> sizes = constant_shape(api, info, 1, "DepthwiseConv: the weights are not constant.");
    if (sizes.size() != 4 || sizes[1] != 1 || std::min({sizes[0], sizes[2], sizes[3]}) < 1)
      throw std::invalid_argument("DepthwiseConv: the weights have another shape than [channels, 1, height, width].");
    channels_ = sizes[0];
    kernel_[0] = sizes[2];
    kernel_[1] = sizes[3];
  }

  void run(ort::KernelContext* context) const {
    const Tensors t = tensors_of(api, context, steps_, {channels_, channels_}, kernel_, epilogue_);
    const int64_t planes = t.in[0] * channels_;
    if (planes == 0) return;
    Job job{planes_of(t), routines(process_isa()).plane};
    const auto task = [](void* data, std::size_t number) {
      Job& mine = *static_cast<Job*>(data);
      try {
        const Scratch copied(static_cast<std::size_t>(mine.planes.rows_read * mine.planes.phase * mine.planes.stride_x));
        mine.routine(mine.planes, static_cast<int64_t>(number), copied.data());
      } catch (const std::bad_alloc&) {
        mine.out_of_memory = true;
      }
    };
    RuntimePool(api, context).run(static_cast<std::size_t>(planes), task, &job);
    if (job.out_of_memory) throw std::bad_alloc();
  }

 private:
  struct Job {
    Planes planes;
    void (*routine)(const Planes&, int64_t, float*);
    std::atomic<bool> out_of_memory{false};
  };

  Planes planes_of(const Tensors& t) const {
    const Steps& s = steps_;
    Planes p{channels_,      t.in[2],   t.in[3],   t.out[2],      t.out[3], kernel_[0], kernel_[1], s.strides[0], s.strides[1], s.dilations[0],
             s.dilations[1], s.pads[0], s.pads[1], side_by_side_, 0,        0,          t.x,        t.weights,    t.epilogue,   t.y};
    p.set_layout();
    return p;
  }

  Steps steps_;
  Epilogue epilogue_;
  int64_t side_by_side_, channels_, kernel_[2];
  ScratchUser user_;
};

// --- a few channels a group ---------------------------------------------------------------------------------------------

class GroupedKernel {
 public:
  static constexpr const char* kName = "NchwcGrouped";
  static constexpr std::size_t kInputs = 4, kRequired = 2, kOutputs = 1;
  const Api api;

  GroupedKernel(Api calls, const ort::KernelInfo* info) : api(calls) {
    const Attributes attributes{api, info};
    steps_ = steps_of(attributes);
    epilogue_ = epilogue_of(attributes);
    side_by_side_ = side_by_side_of(attributes, 8);
    const std::vector<int64_t> sizes = constant_shape(api, info, 1, "NchwcGrouped: the weights are not constant.");
    const bool fits = sizes.size() == 5 && std::min({sizes[0], sizes[1], sizes[2]}) > 0 && (sizes[4] == 8 || sizes[4] == 16) &&
                      (sizes[3] == 2 || sizes[3] == 4 || sizes[3] == 8);
    if (!fits) throw std::invalid_argument("NchwcGrouped: the weights have another shape than [blocks, height, width, 2, 4 or 8, 8 or 16].");
    blocks_ = sizes[0];
    kernel_[0] = sizes[1];
    kernel_[1] = sizes[2];
    group_ = sizes[3];
    block_ = sizes[4];
  }

  void run(ort::KernelContext* context) const {
    const Tensors t = tensors_of(api, context, steps_, {blocks_ * block_, blocks_ * block_}, kernel_, epilogue_);
    const Steps& s = steps_;
    const Groups g{blocks_,        group_,         t.in[2],   t.in[3],   t.out[2],      t.out[3], kernel_[0], kernel_[1], s.strides[0], s.strides[1],
                   s.dilations[0], s.dilations[1], s.pads[0], s.pads[1], side_by_side_, t.x,      t.weights,  t.epilogue, t.y};
    const Routines& table = routines(process_isa());
    const int64_t step = std::max<int64_t>(1, kTaskRows / g.out_width), pieces = (g.out_height + step - 1) / step;
    Job job{g, block_ == 16 ? table.groups_16 : table.groups_8, step, pieces};
    const auto task = [](void* data, std::size_t number) {
      const Job& mine = *static_cast<Job*>(data);
      const int64_t plane = static_cast<int64_t>(number) / mine.pieces, first = static_cast<int64_t>(number) % mine.pieces * mine.step;
      mine.routine(mine.groups, plane / mine.groups.blocks, plane % mine.groups.blocks, first, std::min(first + mine.step, mine.groups.out_height));
    };
    if (t.in[0] > 0) RuntimePool(api, context).run(static_cast<std::size_t>(t.in[0] * blocks_ * pieces), task, &job);
  }

 private:
  struct Job {
    const Groups& groups;
    void (*routine)(const Groups&, int64_t, int64_t, int64_t, int64_t);
    int64_t step, pieces;
  };

  Steps steps_;
  Epilogue epilogue_;
  int64_t side_by_side_, blocks_, group_, block_, kernel_[2];
};

}  // namespace

const ort::CustomOp& depthwise_operator() {
  static const ort::CustomOp op = operator_of<DepthwiseKernel>();
  return op;
}

const ort::CustomOp& grouped_operator() {
  static const ort::CustomOp op = operator_of<GroupedKernel>();
  return op;
}

}  // namespace rlflow::kernels
