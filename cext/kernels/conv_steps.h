// What the convolutions other than Winograd's read of their attributes and of a call.
#pragma once
#include <cstdint>
#include <vector>

#include "operators.h"

namespace rlflow::kernels {

constexpr int64_t kMostSteps = 1 << 20;  // of a padding, a stride or a dilation

struct Steps {
  int64_t pads[4] = {0, 0, 0, 0}, strides[2] = {1, 1}, dilations[2] = {1, 1};
};

// The attributes pads, strides and dilations. Throws std::invalid_argument.
Steps steps_of(const Attributes& attributes);

// What a convolution reads of a call, and its output.
struct Tensors {
  std::vector<int64_t> in, out;
  const float *x, *weights;
  Epilogue epilogue;
  float* y;
};

struct Channels {
  int64_t in, out;
};

// Makes the output. Throws std::invalid_argument where the shapes do not fit.
Tensors tensors_of(const Api& api, ort::KernelContext* context, const Steps& s, Channels channels, const int64_t (&kernel)[2],
                   const Epilogue& epilogue);

}  // namespace rlflow::kernels
