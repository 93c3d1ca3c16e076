// The operators of the domain `rlflow.kernels`; a file for each family.
#pragma once
#include "ort_calls.h"
#include "stages.h"

namespace rlflow::kernels {

const ort::CustomOp& winograd_operator();
const ort::CustomOp& norm_operator();
const ort::CustomOp& blocked_norm_operator();
const ort::CustomOp& product_operator();
const ort::CustomOp& depthwise_operator();
const ort::CustomOp& grouped_operator();
const ort::CustomOp& gelu_operator();
const ort::CustomOp& unrolled_operator();
const ort::CustomOp& blocked_product_operator();

// Adds all of them, and the one for the generated code that the options name, to the options.
void add_operators(const Api& api, ort::SessionOptions* options);

// The attributes activation and activation_params as ONNX Runtime writes them. Throws std::invalid_argument.
Epilogue epilogue_of(const Attributes& attributes);

}  // namespace rlflow::kernels
