// The fusion table's types (private to the pricer).
#pragma once
#include <string>
#include <vector>

#include "rlflow/cost.h"

namespace rlflow {

// What a chain of fused nodes holds so far, seen from the value at its end.
enum class Chain : uint8_t {
  kClosed,      // nothing more is fused behind it
  kConv,        // a convolution that still takes scales, shifts, a residual and an activation
  kConvSum,     // ... with its residual: takes an activation
  kConvRelu,    // ... with Relu: Clip is merged into it
  kConvScale,   // a normalisation or scale that runs as a depthwise convolution in the blocked layout
  kMatMul,      // takes a bias, a scale, BatchNormalization
  kGemm,        // takes an activation
  kScale,       // a product with one constant number, or nothing at all yet, waiting for a MatMul
  kSwap,        // the last two axes exchanged (perhaps scaled), waiting for a MatMul or Gemm
  kTurn,        // a tensor with permuted axes: another permutation joins it
  kSum,         // a residual sum, waiting for a LayerNormalization
  kBias,        // a 1-D constant added, waiting for a Gelu or a residual sum
  kZeroPad,     // spatial zero padding, waiting for a convolution
  kView,        // a renamed tensor
  kPoint,       // a chain of pointwise nodes ("generic" only)
  kOpen,        // a product with pointwise nodes behind it ("generic" only)
  kStart,       // in rows only: the node absorbs nothing
};

// Conditions of a row on the node n, its operand in the slot at hand, and the other operands.
enum class Guard : uint8_t {
  kAlways,
  kFirst,            // the operand is the first one, the others are constants or absent
  kLeading,          // the operand is the first one
  kEither,           // the operand is one of the first two
  kChannelConst,     // the other operand is a constant along the channel axis (or one number, for a product)
  kBlockedChannelConst,  // ... and the operand is in the blocked layout
  kBlocked,          // the first operand is in the blocked layout, the others are constants
  kBlockedSum,       // both operands in the blocked layout, of one shape
  kGemmBias,         // rank 2; the other operand is [N], [1,N], [M,1] or [M,N]
  kRowBias,          // rank > 2 by a matrix; the other operand is [N]
  kRank2,            // the result has rank 2, the other operands are constants
  kScalar,           // the other operand is a constant with one element
  kScalarForProducts,  // ... and only products read the result, several of them, perhaps with their axes exchanged
  kSwapLast,         // perm exchanges the last two axes and keeps the rest
  kKeepsAxes,        // perm moves no axis
  kSwapForProducts,  // perm exchanges the last two axes, and only products read the result, as above
  kOneAxis,          // the operand is the first one, at most one of its dimensions is not 1
  kSpatialZeroPad,   // zeros, on the axes from 2 on
  kPlainSum,         // both operands computed, rank 3, of one shape
  kRowConst,         // the other operand is a constant [N] along the last axis
  kKeepsShape,       // the result has the operand's type
};

struct FusionRow {
  Chain from;
  const char* ops;       // names, separated by blanks; "@elementwise", "@view", "@anchor" stand for classes of the operator table
  Guard guard;
  Chain to;
  const char* kind;      // what the runtime calls the result; "" keeps the kind
  bool both = false;     // the row may take a second operand of the same node too
};

enum class Pattern : uint8_t { kNone, kGelu, kSilu, kLayerNorm, kRmsNorm };

// How the blocked layout (NCHWc) flows.
enum class Layout : uint8_t {
  kPlain,                // never blocked
  kConv,                 // a convolution: own conditions on channels and groups
  kPool,                 // blocked where the channels fill whole blocks
  kPointwise,            // follows its first operand
  kCombine,              // blocked where all operands are, with one shape
  kCombineBroadcast,     // ... or with [N,C,1,1]
  kConcat,               // along the channels, of blocked operands with whole blocks
  kResize,               // follows its operand, for some modes
};

struct FusionRules {
  std::string name;
  int block = 0;
  struct Row {
    Chain from, to;
    Guard guard;
    bool both;
    const char* kind;
  };
  std::vector<std::vector<Row>> absorbing;     // by operator; tried in order, for slot 0, 1, ...
  std::vector<std::vector<Row>> starting;      // by operator; the first whose guard holds
  std::vector<Layout> layout;                  // by operator
  std::vector<uint8_t> patterns;               // by operator: 1 it may be the root of a pattern
  std::vector<uint8_t> interior;               // by operator: 1 it may be inside one
};

// Nodes of a pattern besides its root.
struct PatternMatch {
  Pattern pattern = Pattern::kNone;
  ValueId entry = kNoValue;
  uint32_t count = 0;
  NodeId nodes[14];
};

}  // namespace rlflow
