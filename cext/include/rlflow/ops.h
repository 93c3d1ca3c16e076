// THE operator table: one row an operator. Arity, attributes with defaults, shape rule, classes and cost features are written
// here and nowhere else; Python reads them through the binding (rlflow/ops).
//
// Canonical form (what the frontends produce and rules are written in). Static operands that ONNX passes as tensors are
// attributes when they are constant or expressible:
//   Reshape{shape}(x)  Squeeze{axes}(x)  Unsqueeze{axes}(x)  Slice{starts,ends,axes,steps}(x)  Split{axis,split}(x)
//   Expand{shape}(x)   Tile{repeats}(x)  Pad{mode,pads,value}(x)  Reduce*{axes,keepdims}(x)
//   Resize{mode,scales|sizes,...}(x)     Upsample is Resize. Otherwise the node keeps its tensor operands (and the arity says so).
//   ConstantOfShape{dtype,value}(shape)
// An Expand shape holds 1 where the operand's own dim stays and is no plain number. Float attributes are single precision, kept as
// the double with the shortest text that rounds to the same single (0.1). Reshape{allowzero=1} only where an extent is 0.
// Slice is canonical when axes ascend, 0 <= start, and ends are clipped to the dim where it is known (INT64_MAX-like ends stay
// only for unknown dims). Gather/Concat/Split/Softmax/... axes are non-negative. Conv and pools carry explicit pads, strides,
// dilations, kernel_shape, group (auto_pad resolved). Optional trailing inputs are absent, not empty; an absent inner input is
// kNoValue. Identity and inference Dropout never appear: the builder forwards their operand.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rlflow/attrs.h"
#include "rlflow/error.h"
#include "rlflow/types.h"

namespace rlflow {

using OpId = uint16_t;

enum OpFlag : uint32_t {
  kPure = 1u << 0,            // same inputs, same outputs; may be shared and removed
  kUnary = 1u << 1,           // pointwise function of its first input (others, if any, are scalars/attributes): class `unary`
  kBinary = 1u << 2,          // broadcasting pointwise function of two inputs: class `binary`
  kCommutative = 1u << 3,     // its two inputs may be swapped
  kVariadic = 1u << 4,        // any number of inputs >= min_inputs
  kZeroPreserving = 1u << 5,  // f(0) = 0 for a unary
  kMonotone = 1u << 6,        // unary, non-decreasing
  kView = 1u << 7,            // moves no data in a good runtime: Reshape, Squeeze, Unsqueeze, Flatten
  kReduce = 1u << 8,          // Reduce*{axes,keepdims}
  kVariadicOutputs = 1u << 9,
};

// How a runtime treats the node when it forms fused regions (cost.h).
enum class FusionClass : uint8_t { kSource, kAnchor, kElementwise, kReduction, kNormalisation, kMovement, kView, kOpaque };

struct InferInput {
  bool present = false;
  TypeId type = 0;
  const IntVec* data = nullptr;          // known elements of a small integer tensor (rank 0 or 1), possibly symbolic
  const ConstInfo* constant = nullptr;   // set when the producer is a Constant
};
struct InferOutput {
  TypeId type = 0;
  bool has_data = false;
  IntVec data;
};
struct OpInfo;
struct InferContext {
  const OpInfo& op;
  AttrSet& attrs;                        // the rule may canonicalise: fill defaults, normalise axes
  std::span<const InferInput> inputs;
  std::vector<InferOutput> outputs;      // sized to the wanted number of outputs before the call
};
using InferFn = void (*)(InferContext&); // throws Error(kType) on a definite contradiction; says "unknown" otherwise

// Float operations of one node, where a count per element does not say it (products, convolutions).
using FlopsFn = double (*)(const AttrSet& attrs, std::span<const TypeId> inputs, std::span<const TypeId> outputs);

struct AttrDefault {
  std::string name;
  AttrValue value;
};
struct OpInfo {
  OpId id;
  std::string name;                      // ONNX name; domain ai.onnx
  int since;                             // first default-domain opset in which the exporter may write it
  int min_inputs, max_inputs;            // max < 0: variadic
  int outputs;                           // number of outputs (minimum, where kVariadicOutputs)
  uint32_t flags;
  FusionClass fusion;
  InferFn infer;
  std::vector<AttrDefault> defaults;
  std::vector<std::string> attributes;   // every attribute name allowed in canonical form, sorted
  double flops_per_input = 0;            // float operations per element of the first input
  double flops_per_output = 0;           // ... and per element of the first output
  FlopsFn flops = nullptr;               // instead of the two counts
  bool has(OpFlag f) const { return flags & f; }
};

// The table's special rows have fixed ids.
inline constexpr OpId kOpInput = 0, kOpConstant = 1, kOpOpaque = 2;

const std::vector<OpInfo>& op_table();
const OpInfo& op_info(OpId id);
OpId find_op(std::string_view name);              // throws Error(kGraph), "unknown operator 'Foo' (...)"
bool has_op(std::string_view name);

// Fills defaults, canonicalises attributes and infers output types. `outputs` = wanted number of outputs (0: the row's own number;
// for Split the number of sizes). Definite contradictions throw Error(kType) with a sentence that names operator and shapes.
void infer(OpId op, AttrSet& attrs, std::span<const InferInput> inputs, std::vector<InferOutput>& outputs, int wanted_outputs);
// The same for those who try operands: false where they contradict each other. What else is wrong is thrown.
bool infers(OpId op, AttrSet& attrs, std::span<const InferInput> inputs, std::vector<InferOutput>& outputs, int wanted_outputs);

// Cost features of one node (float operations and bytes read+written, assuming no fusion); unknown dims count as 1.
struct NodeCost {
  double flops = 0;       // a multiply-add is 2
  double bytes_in = 0, bytes_out = 0;
};
NodeCost node_cost(OpId op, const AttrSet& attrs, std::span<const TypeId> inputs, std::span<const TypeId> outputs);

}  // namespace rlflow
