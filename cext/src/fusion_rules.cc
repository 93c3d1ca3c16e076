// Which nodes a runtime fuses, as data.
//
// Evidence for "onnxruntime": the optimised models that ONNX Runtime 1.31.1 (CPU, ORT_ENABLE_ALL, AVX-512) saves for small graphs, one per
// row; tests/price/test_fusion_evidence.py repeats the essential ones. Beyond the rows it shows that
//  * a convolution takes Relu, Sigmoid, Tanh, LeakyRelu, HardSigmoid and Clip, but not Elu, Softplus, HardSwish, Gelu, ...;
//  * the residual sum goes into a convolution only in the blocked layout (FusedConv never gets one), slot 0 before slot 1;
//  * BatchNormalization and channel products on a blocked tensor become depthwise convolutions, elsewhere they stay as they are;
//  * MatMul + Add becomes Gemm for rank 2, and Reshape-Gemm-Reshape for rank 3 and 4 by a matrix with an [N] bias. Only the former takes
//    an activation; neither takes Gelu;
//  * a scale by one number and a Transpose of the last two axes go into FusedMatMul, from either side;
//  * permutations of axes that follow each other become one, or none (one that moves no axis stays where it is alone);
//    those of the parts of a Concat move behind it, where a product takes them; several products take one each; one of
//    a tensor with a single axis longer than 1, in front of a Reshape, is a Reshape;
//  * Add of two rank-3 tensors of one shape + LayerNormalization = SkipLayerNormalization, unless the sum is read elsewhere; not for
//    RMSNormalization;
//  * Gelu by Erf, x*Sigmoid(x), LayerNormalization with scale and shift and RMS normalisation with scale are recognised when decomposed;
//  * Softmax, masks, Where, chains of pointwise operators are not fused at all.
// A region that is wider than what the runtime fuses is still priced right, because it is measured whole.
#include <map>
#include <mutex>
#include <sstream>

#include "fusion.h"

namespace rlflow {
namespace {

constexpr const char* kConvActivations = "Relu Sigmoid Tanh LeakyRelu HardSigmoid Clip";
constexpr const char* kGemmActivations = "Relu Sigmoid Tanh LeakyRelu HardSigmoid Elu Softplus ThresholdedRelu Selu";

using C = Chain;
using G = Guard;

// clang-format off
const std::vector<FusionRow> kOnnxRuntime = {
    // from          operators               guard               to              kind
    {C::kZeroPad,    "Conv",                 G::kFirst,          C::kConv,       "Conv"},
    {C::kStart,      "Conv",                 G::kAlways,         C::kConv,       "Conv"},
    {C::kStart,      "Pad",                  G::kSpatialZeroPad, C::kZeroPad,    ""},
    {C::kConv,       "BatchNormalization",   G::kFirst,          C::kConv,       ""},
    {C::kConv,       "Mul Add",              G::kChannelConst,   C::kConv,       ""},
    {C::kConv,       "Add Sum",              G::kBlockedSum,     C::kConvSum,    ""},
    {C::kConvScale,  "Add Sum",              G::kBlockedSum,     C::kConvSum,    ""},
    {C::kConv,       "Relu",                 G::kFirst,          C::kConvRelu,   ""},
    {C::kConvSum,    "Relu",                 G::kFirst,          C::kConvRelu,   ""},
    {C::kConvScale,  "Relu",                 G::kFirst,          C::kConvRelu,   ""},
    {C::kConv,       kConvActivations,       G::kFirst,          C::kClosed,     ""},
    {C::kConvSum,    kConvActivations,       G::kFirst,          C::kClosed,     ""},
    {C::kConvScale,  kConvActivations,       G::kFirst,          C::kClosed,     ""},
    {C::kConvRelu,   "Clip",                 G::kFirst,          C::kClosed,     ""},
    {C::kStart,      "BatchNormalization",   G::kBlocked,        C::kConvScale,  "Scale"},
    {C::kStart,      "Mul",                  G::kBlockedChannelConst, C::kConvScale, "Scale"},

    {C::kSwap,       "MatMul",               G::kEither,         C::kMatMul,     "MatMul", true},
    {C::kScale,      "MatMul",               G::kEither,         C::kMatMul,     "MatMul", true},
    {C::kStart,      "MatMul",               G::kAlways,         C::kMatMul,     "MatMul"},
    {C::kMatMul,     "Add",                  G::kGemmBias,       C::kGemm,       "Gemm"},
    {C::kMatMul,     "Add",                  G::kRowBias,        C::kClosed,     "Gemm"},
    {C::kMatMul,     "BatchNormalization",   G::kRank2,          C::kGemm,       "Gemm"},
    {C::kMatMul,     "Mul Div",              G::kScalar,         C::kClosed,     "MatMul"},
    {C::kSwap,       "Gemm",                 G::kEither,         C::kGemm,       "Gemm", true},
    {C::kStart,      "Gemm",                 G::kAlways,         C::kGemm,       "Gemm"},
    {C::kGemm,       kGemmActivations,       G::kFirst,          C::kClosed,     ""},

    {C::kScale,      "Transpose",            G::kSwapForProducts, C::kView,      "view"},
    {C::kScale,      "Transpose",            G::kSwapLast,       C::kSwap,       ""},
    {C::kScale,      "Transpose",            G::kKeepsAxes,      C::kScale,      ""},
    {C::kSwap,       "Transpose",            G::kSwapLast,       C::kScale,      ""},
    {C::kSwap,       "Transpose",            G::kKeepsAxes,      C::kSwap,       ""},
    {C::kSwap,       "Transpose",            G::kAlways,         C::kTurn,       ""},
    {C::kTurn,       "Transpose",            G::kAlways,         C::kTurn,       ""},
    {C::kStart,      "Transpose",            G::kSwapForProducts, C::kView,      "view"},
    {C::kStart,      "Transpose",            G::kSwapLast,       C::kSwap,       ""},
    {C::kStart,      "Transpose",            G::kKeepsAxes,      C::kScale,      ""},
    {C::kStart,      "Transpose",            G::kAlways,         C::kTurn,       ""},
    {C::kSwap,       "Concat",               G::kAlways,         C::kSwap,       "", true},
    {C::kSwap,       "Mul Div",              G::kScalarForProducts, C::kView,    "view"},
    {C::kSwap,       "Mul Div",              G::kScalar,         C::kSwap,       ""},
    {C::kStart,      "Mul Div",              G::kScalar,         C::kScale,      ""},

    {C::kBias,       "Add",                  G::kPlainSum,       C::kSum,        ""},
    {C::kStart,      "Add",                  G::kPlainSum,       C::kSum,        ""},
    {C::kSum,        "LayerNormalization",   G::kFirst,          C::kClosed,     "LayerNormalization"},
    {C::kStart,      "Add",                  G::kRowConst,       C::kBias,       ""},
    {C::kBias,       "Gelu",                 G::kFirst,          C::kClosed,     "Gelu"},

    {C::kSwap,       "@view",                G::kOneAxis,        C::kView,       "view"},
    {C::kTurn,       "@view",                G::kOneAxis,        C::kView,       "view"},
    {C::kView,       "@view",                G::kLeading,        C::kView,       ""},
    {C::kStart,      "@view",                G::kAlways,         C::kView,       "view"},
};
// clang-format on

// What any serious runtime does: pointwise work behind a product, or behind other pointwise work, costs no extra pass over memory.
// clang-format off
const std::vector<FusionRow> kGeneric = {
    {C::kZeroPad,    "Conv",                 G::kFirst,          C::kOpen,       "Conv"},
    {C::kStart,      "Pad",                  G::kSpatialZeroPad, C::kZeroPad,    ""},
    {C::kSwap,       "MatMul Gemm",          G::kEither,         C::kOpen,       "MatMul", true},
    {C::kScale,      "MatMul",               G::kEither,         C::kOpen,       "MatMul", true},
    {C::kStart,      "@anchor",              G::kAlways,         C::kOpen,       "anchor"},
    {C::kScale,      "Transpose",            G::kSwapLast,       C::kSwap,       ""},
    {C::kStart,      "Transpose",            G::kSwapLast,       C::kSwap,       ""},
    {C::kSwap,       "Mul Div",              G::kScalar,         C::kSwap,       ""},
    {C::kOpen,       "BatchNormalization",   G::kFirst,          C::kOpen,       ""},
    {C::kPoint,      "BatchNormalization",   G::kFirst,          C::kPoint,      ""},
    {C::kStart,      "BatchNormalization",   G::kAlways,         C::kPoint,      ""},
    {C::kOpen,       "@elementwise",         G::kKeepsShape,     C::kOpen,       ""},
    {C::kPoint,      "@elementwise",         G::kKeepsShape,     C::kPoint,      ""},
    {C::kScale,      "@elementwise",         G::kKeepsShape,     C::kPoint,      ""},
    {C::kSum,        "@elementwise",         G::kKeepsShape,     C::kPoint,      ""},
    {C::kSum,        "LayerNormalization",   G::kFirst,          C::kClosed,     "LayerNormalization"},
    {C::kStart,      "Mul Div",              G::kScalar,         C::kScale,      ""},
    {C::kStart,      "Add",                  G::kPlainSum,       C::kSum,        ""},
    {C::kStart,      "@elementwise",         G::kAlways,         C::kPoint,      ""},
    {C::kView,       "@view",                G::kLeading,        C::kView,       ""},
    {C::kStart,      "@view",                G::kAlways,         C::kView,       "view"},
};
// clang-format on

const std::vector<FusionRow> kNone = {
    {C::kStart, "@view", G::kAlways, C::kView, "view"},
};

// Operators that ONNX Runtime keeps in the blocked layout. Others (LeakyRelu and Clip that are not fused, Sub, Div, Max, Softmax, Slice,
// Split, ReduceMean, ...) make it reorder.
struct LayoutRow {
  Layout layout;
  const char* ops;
};
const std::vector<LayoutRow> kOnnxRuntimeLayouts = {
    {Layout::kConv, "Conv"},
    {Layout::kPool, "MaxPool AveragePool GlobalAveragePool GlobalMaxPool"},
    {Layout::kPointwise, "Relu Sigmoid Tanh HardSigmoid HardSwish Gelu BatchNormalization"},
    {Layout::kCombine, "Mul Sum"},
    {Layout::kCombineBroadcast, "Add"},
    {Layout::kConcat, "Concat"},
    {Layout::kResize, "Resize"},
};

template <class Visit>
void for_each_op(const char* names, Visit visit) {
  std::istringstream text(names);
  for (std::string name; text >> name;) {
    if (name[0] != '@') {
      if (has_op(name)) visit(find_op(name));
      continue;
    }
    FusionClass wanted = name == "@view" ? FusionClass::kView : name == "@anchor" ? FusionClass::kAnchor : FusionClass::kElementwise;
    for (const OpInfo& op : op_table())
      if (op.fusion == wanted) visit(op.id);
  }
}

std::shared_ptr<const FusionRules> compile(std::string_view name, int block, const std::vector<FusionRow>& rows, bool patterns,
                                           const std::vector<LayoutRow>& layouts) {
  auto rules = std::make_shared<FusionRules>();
  size_t count = op_table().size();
  rules->name = name;
  rules->block = block;
  rules->absorbing.resize(count);
  rules->starting.resize(count);
  rules->layout.assign(count, Layout::kPlain);
  rules->patterns.assign(count, 0);
  rules->interior.assign(count, 0);
  for (const FusionRow& row : rows)
    for_each_op(row.ops, [&](OpId op) {
      auto& list = row.from == Chain::kStart ? rules->starting[op] : rules->absorbing[op];
      list.push_back({row.from, row.to, row.guard, row.both, row.kind});
    });
  if (block > 0)
    for (const LayoutRow& row : layouts) for_each_op(row.ops, [&](OpId op) { rules->layout[op] = row.layout; });
  if (patterns) {
    for_each_op("Mul Add", [&](OpId op) { rules->patterns[op] = 1; });
    for_each_op("Pow ReduceMean Sub Add Sqrt Div Mul Erf Sigmoid Reciprocal", [&](OpId op) { rules->interior[op] = 1; });
  }
  return rules;
}

}  // namespace

std::shared_ptr<const FusionRules> fusion_rules(std::string_view name, int block) {
  static std::mutex mutex;
  static auto& cache = *new std::map<std::pair<std::string, int>, std::shared_ptr<const FusionRules>>;
  if (block != 0 && block != 4 && block != 8 && block != 16)
    throw Error(ErrorKind::kUsage, "choosing fusion rules: the channel block is " + std::to_string(block) + ", expected 0, 4, 8 or 16");
  std::lock_guard lock(mutex);
  auto& entry = cache[{std::string(name), block}];
  if (entry) return entry;
  if (name == "onnxruntime") return entry = compile(name, block, kOnnxRuntime, true, kOnnxRuntimeLayouts);
  if (name == "generic") return entry = compile(name, 0, kGeneric, true, {});
  if (name == "none") return entry = compile(name, 0, kNone, false, {});
  cache.erase({std::string(name), block});
  throw Error(ErrorKind::kUsage, "choosing fusion rules: there is no table '" + std::string(name) + "'; there are onnxruntime, generic, none");
}

}  // namespace rlflow
