// Matrix products in blocks of channels.
//
// NchwcUnrolled(X, W, B?, Sum?) -> Y: a convolution without groups as one matrix product, on the blocked tensors of
// com.microsoft.nchwc. W must be constant, [out channels, in channels, kernel_y, kernel_x] in the runtime's blocked order.
// Attributes: block (8, 16), pads (top, left, bottom, right), strides, dilations, activation with activation_params.
// BlockedProduct(X, W, B?) -> Y: rows times a matrix. W must be constant, [blocks of columns, blocks of rows, block, block], a
// row of it for each input. What a tuner chooses, for both: chunk, rows of the product that are worked on at a time (0: by the
// caches); strassen (0, 1): by Strassen's algorithm.
#include "unrolled.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "conv_steps.h"
#include "operators.h"
#include "scratch.h"

namespace rlflow::kernels {
namespace {

bool is_block(int64_t block) { return block == 8 || block == 16; }

UnrolledTuning tuning_of(const Attributes& attributes) {
  const int64_t chunk = attributes.integer("chunk", 0), strassen = attributes.integer("strassen", 0);
  if (chunk < 0 || chunk > kMostSteps)
    throw std::invalid_argument("rlflow.kernels: a chunk of " + std::to_string(chunk) + " rows is not between 0 and " + std::to_string(kMostSteps) +
                                ".");
  if (strassen < 0 || strassen > 1) throw std::invalid_argument("rlflow.kernels: strassen is " + std::to_string(strassen) + "; expected 0 or 1.");
  return {chunk, strassen == 1};
}

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
    tuning_ = tuning_of(attributes);
    const std::vector<int64_t> sizes = constant_shape(api, info, 1, "NchwcUnrolled: the weights are not constant.");
    const bool fits = is_block(block_) && sizes.size() == 4 && *std::min_element(sizes.begin(), sizes.end()) > 0 && sizes[0] % block_ == 0 &&
                      sizes[1] % block_ == 0;
    if (!fits)
      throw std::invalid_argument("NchwcUnrolled: the weights have another shape than [channels, channels, height, width] in blocks of 8 or 16.");
    out_blocks_ = sizes[0] / block_;
    in_blocks_ = sizes[1] / block_;
    kernel_[0] = sizes[2];
    kernel_[1] = sizes[3];
  }

  void run(ort::KernelContext* context) const {
    const Tensors t = tensors_of(api, context, steps_, {in_blocks_ * block_, out_blocks_ * block_}, kernel_, epilogue_);
    const Steps& s = steps_;
    const int64_t in = t.in[2] * t.in[3] * block_, out = t.out[2] * t.out[3] * block_;
    const Unrolled c{t.in[0],
                     in_blocks_,
                     out_blocks_,
                     t.in[2],
                     t.in[3],
                     t.out[2],
                     t.out[3],
                     kernel_[0],
                     kernel_[1],
                     s.strides[0],
                     s.strides[1],
                     s.dilations[0],
                     s.dilations[1],
                     s.pads[0],
                     s.pads[1],
                     {in_blocks_ * in, in, block_},
                     {out_blocks_ * out, out, block_},
                     t.x,
                     t.weights,
                     t.epilogue,
                     t.y};
    const bool in_place = c.taps() == 1 && std::max(s.strides[0], s.strides[1]) == 1 && *std::max_element(s.pads, s.pads + 4) == 0;
    run_unrolled(c, block_, in_place, tuning_, RuntimePool(api, context));
  }

 private:
  Steps steps_;
  Epilogue epilogue_;
  UnrolledTuning tuning_;
  int64_t block_, out_blocks_, in_blocks_, kernel_[2];
  ScratchUser user_;
};

class BlockedProductKernel {
 public:
  static constexpr const char* kName = "BlockedProduct";
  static constexpr std::size_t kInputs = 3, kRequired = 2, kOutputs = 1;
  const Api api;

  BlockedProductKernel(Api calls, const ort::KernelInfo* info) : api(calls) {
    tuning_ = tuning_of(Attributes{api, info});
    const std::vector<int64_t> sizes = constant_shape(api, info, 1, "BlockedProduct: the weights are not constant.");
    const bool fits = sizes.size() == 4 && is_block(sizes[2]) && sizes[3] == sizes[2] && sizes[0] > 0 && sizes[1] > 0;
    if (!fits) throw std::invalid_argument("BlockedProduct: the weights have another shape than [blocks, blocks, block, block] of 8 or 16.");
    out_blocks_ = sizes[0];
    in_blocks_ = sizes[1];
    block_ = sizes[2];
  }

  void run(ort::KernelContext* context) const {
    const ort::Value* x = api.input(context, 0);
    std::vector<int64_t> sizes = api.shape(x);
    const int64_t depth = in_blocks_ * block_, columns = out_blocks_ * block_;
    if (sizes.empty() || sizes.back() != depth)
      throw std::invalid_argument("BlockedProduct: the rows of the input have another length than the columns of the weights.");
    int64_t rows = 1;
    for (std::size_t axis = 0; axis + 1 < sizes.size(); ++axis) rows *= sizes[axis];
    sizes.back() = columns;
    Epilogue epilogue;
    epilogue.bias = api.optional(context, 2, {columns}, "BlockedProduct: the bias has another shape than a row of the output.");
    float* const y = api.output(context, 0, sizes);
    const Unrolled c{1,
                     in_blocks_,
                     out_blocks_,
                     1,
                     rows,
                     1,
                     rows,
                     1,
                     1,
                     1,
                     1,
                     1,
                     1,
                     0,
                     0,
                     {0, block_, depth},
                     {0, block_, columns},
                     api.data(x),
                     api.data(api.input(context, 1)),
                     epilogue,
                     y};
    run_unrolled(c, block_, false, tuning_, RuntimePool(api, context));
  }

 private:
  UnrolledTuning tuning_;
  int64_t block_, out_blocks_, in_blocks_;
  ScratchUser user_;
};

}  // namespace

const ort::CustomOp& unrolled_operator() {
  static const ort::CustomOp op = operator_of<UnrolledKernel>();
  return op;
}

const ort::CustomOp& blocked_product_operator() {
  static const ort::CustomOp op = operator_of<BlockedProductKernel>();
  return op;
}

}  // namespace rlflow::kernels
