#include "conv_steps.h"

#include <stdexcept>
#include <string>

namespace rlflow::kernels {
namespace {

template <std::size_t COUNT>
void read(const Attributes& attributes, const char* name, int64_t least, int64_t (&found)[COUNT]) {
  const std::vector<int64_t> given = attributes.integers(name);
  if (given.empty()) return;
  if (given.size() != COUNT)
    throw std::invalid_argument("rlflow.kernels: " + std::string(name) + " has " + std::to_string(given.size()) + " numbers; expected " +
                                std::to_string(COUNT) + ".");
  for (std::size_t at = 0; at < COUNT; ++at) {
    if (given[at] < least || given[at] > kMostSteps)
      throw std::invalid_argument("rlflow.kernels: " + std::string(name) + " has a " + std::to_string(given[at]) + ", which it may not have.");
    found[at] = given[at];
  }
}

int64_t out_size(int64_t size, int64_t before, int64_t after, int64_t kernel, int64_t stride, int64_t dilation) {
  const int64_t span = size + before + after - ((kernel - 1) * dilation + 1);
  if (size < 1 || span < 0) throw std::invalid_argument("rlflow.kernels: an input of " + std::to_string(size) + " pixels leaves no output.");
  return span / stride + 1;
}

}  // namespace

Steps steps_of(const Attributes& attributes) {
  Steps found;
  read(attributes, "pads", 0, found.pads);
  read(attributes, "strides", 1, found.strides);
  read(attributes, "dilations", 1, found.dilations);
  return found;
}

Tensors tensors_of(const Api& api, ort::KernelContext* context, const Steps& s, Channels channels, const int64_t (&kernel)[2],
                   const Epilogue& epilogue) {
  const ort::Value* x = api.input(context, 0);
  Tensors t{api.shape(x), {}, api.data(x), api.data(api.input(context, 1)), epilogue, nullptr};
  if (t.in.size() != 4 || t.in[1] != channels.in)
    throw std::invalid_argument("rlflow.kernels: the input has another number of channels than the weights.");
  t.out = {t.in[0], channels.out, out_size(t.in[2], s.pads[0], s.pads[2], kernel[0], s.strides[0], s.dilations[0]),
           out_size(t.in[3], s.pads[1], s.pads[3], kernel[1], s.strides[1], s.dilations[1])};
  constexpr const char* refusal = "rlflow.kernels: the bias or the residual has another shape than the output.";
  t.epilogue.bias = api.optional(context, 2, {channels.out}, refusal);
  t.epilogue.sum = api.optional(context, 3, t.out, refusal);
  t.y = api.output(context, 0, t.out);
  return t;
}

}  // namespace rlflow::kernels
