// NchwcWinograd(X, W, B?, Sum?) -> Y: a convolution of stride 1 in the blocked layout of com.microsoft.nchwc. W must be
// constant, [out channels, in channels, taps, taps] in the runtime's blocked order, or, where the attribute taps says how many
// there are, the transformed weights [blocks of out channels, points, in channels, block]. Attributes: block (8, 16), tile (outputs of
// a tile along each axis with several taps: 2 or 4 of 3×3, 2 of 5×5, 1×7 and 7×1, 4 of 1×3 and 3×1), pads (top, left, bottom,
// right), and optional activation with activation_params as ONNX Runtime writes them, what a tuner chooses, chunk and part, and
// threads (WinogradTuning).
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "operators.h"
#include "winograd.h"

namespace rlflow::kernels {

Epilogue epilogue_of(const Attributes& attributes) {
  const std::string name = attributes.text("activation");
  const std::vector<float> numbers = attributes.floats("activation_params");
  const auto number = [&](std::size_t at, float otherwise) { return at < numbers.size() ? numbers[at] : otherwise; };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Epilogue found;
  if (name == "Relu") {
    found.activation = Activation::relu;
  } else if (name == "LeakyRelu") {
    found = {nullptr, nullptr, Activation::leaky_relu, number(0, 0.01f), 0};
  } else if (name == "Clip") {
    found = {nullptr, nullptr, Activation::clip, number(0, -infinity), number(1, infinity)};
  } else if (name == "HardSigmoid") {
    found = {nullptr, nullptr, Activation::hard_sigmoid, number(0, 0.2f), number(1, 0.5f)};
  } else if (!name.empty()) {
    throw std::invalid_argument("rlflow.kernels has no activation " + name + ".");
  }
  return found;
}

namespace {

Padding padding_of(const Attributes& attributes) {
  const std::vector<int64_t> pads = attributes.integers("pads");
  if (pads.empty()) return {};
  if (pads.size() != 4) throw std::invalid_argument("NchwcWinograd: pads has " + std::to_string(pads.size()) + " numbers; expected 4.");
  return {pads[0], pads[1], pads[2], pads[3]};
}

class WinogradKernel {
 public:
  static constexpr const char* kName = "NchwcWinograd";
  static constexpr std::size_t kInputs = 4, kRequired = 2, kOutputs = 1;
  const Api api;

  WinogradKernel(Api calls, const ort::KernelInfo* info) : api(calls) {
    const Attributes attributes{api, info};
    epilogue_ = epilogue_of(attributes);
    const std::vector<int64_t> sizes = constant_shape(api, info, 1, "NchwcWinograd: the weights are not constant.");
    if (sizes.size() != 4) throw std::invalid_argument("NchwcWinograd: the weights have another shape than [channels, channels, taps, taps].");
    const int64_t tile = attributes.integer("tile", 0), block = attributes.integer("block", 0);
    if ((tile != 2 && tile != 4) || (block != 8 && block != 16))
      throw std::invalid_argument("NchwcWinograd: the attributes tile (2, 4) and block (8, 16) are missing or have other values.");
    const std::vector<int64_t> taps = attributes.integers("taps");
    const bool transformed = !taps.empty();
    if (transformed && taps.size() != 2) throw std::invalid_argument("NchwcWinograd: taps has another count of numbers than 2.");
    const Form form = transformed ? form_of(tile, taps[0], taps[1]) : form_of(tile, sizes[2], sizes[3]);
    if (transformed && (sizes[1] != form.points() || sizes[3] != block))
      throw std::invalid_argument("NchwcWinograd: the transformed weights have another shape than [blocks, points, channels, block].");
    convolution_ = std::make_unique<Winograd>(
        process_isa(), form, static_cast<int>(block), transformed ? sizes[0] * block : sizes[0], transformed ? sizes[2] : sizes[1],
        padding_of(attributes), WinogradTuning{attributes.integer("chunk", 0), attributes.integer("part", 0), attributes.integer("threads", 0)},
        transformed ? Weights::transformed : Weights::plain);
  }

  void run(ort::KernelContext* context) const {
    const ort::Value* x = api.input(context, 0);
    const std::vector<int64_t> in = api.shape(x);
    if (in.size() != 4 || in[1] != convolution_->in_channels())
      throw std::invalid_argument("NchwcWinograd: the input has another number of channels than the weights.");
    const std::vector<int64_t> out = {in[0], convolution_->out_channels(), convolution_->out_height(in[2]), convolution_->out_width(in[3])};
    constexpr const char* refusal = "NchwcWinograd: the bias or the residual has another shape than the output.";
    Epilogue epilogue = epilogue_;
    epilogue.bias = api.optional(context, 2, {out[1]}, refusal);
    epilogue.sum = api.optional(context, 3, out, refusal);
    float* y = api.output(context, 0, out);
    convolution_->run(in[0], in[2], in[3], api.data(x), api.data(api.input(context, 1)), epilogue, y, RuntimePool(api, context));
  }

 private:
  Epilogue epilogue_;
  std::unique_ptr<Winograd> convolution_;
};

}  // namespace

const ort::CustomOp& winograd_operator() {
  static const ort::CustomOp op = operator_of<WinogradKernel>();
  return op;
}

}  // namespace rlflow::kernels
