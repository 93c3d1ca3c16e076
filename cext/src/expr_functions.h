// Codes shared by the parser and the evaluator of expressions: functions by name, operators.
#pragma once
#include <string_view>

namespace rlflow {

// clang-format off
// Functions of a value of the graph. On a sequence they give the list of results (predicates: true for all).
enum ValueFn : int { kRank, kDim, kShape, kDtype, kIsFloat, kNumel, kConstant, kUniform, kScalar, kValueOf, kMinOf, kMaxOf, kFinite, kUsers, kIsScalar, kDataOf };
// Functions of several values, and of ordinary expressions.
enum PlainFn : int {
  kSameShape = 100, kSameType, kIndependent, kDims,
  kLen = 200, kSum, kProd, kCat, kSet, kInsert, kErase, kIota, kFill, kCompose, kInverse, kIndexOf, kStarts, kAllEqual, kAll, kAny, kSorted,
  kRev, kSelect, kDrop, kMin, kMax, kAbs, kSqrt, kFloatOf, kIntOf, kAttrOf, kHasAttr, kBroadcast, kPermIsSwap, kIsConstInt, kFlat, kKnown,
};

struct FunctionRow {
  const char* name;
  int id;
  int min_args, max_args;  // max < 0: any number
};
inline constexpr FunctionRow kFunctions[] = {
    {"rank", kRank, 1, 1}, {"dim", kDim, 2, 2}, {"shape", kShape, 1, 1}, {"dtype", kDtype, 1, 1}, {"is_float", kIsFloat, 1, 1},
    {"numel", kNumel, 1, 1}, {"constant", kConstant, 1, 1}, {"uniform", kUniform, 1, 1}, {"scalar", kScalar, 1, 1},
    {"value", kValueOf, 1, 1}, {"min_of", kMinOf, 1, 1}, {"max_of", kMaxOf, 1, 1}, {"finite", kFinite, 1, 1}, {"users", kUsers, 1, 1},
    {"is_scalar", kIsScalar, 1, 1}, {"data", kDataOf, 1, 1},
    {"same_shape", kSameShape, 1, -1}, {"same_type", kSameType, 1, -1}, {"independent", kIndependent, 1, -1}, {"dims", kDims, 2, 2},
    {"len", kLen, 1, 1}, {"sum", kSum, 1, 1}, {"prod", kProd, 1, 1}, {"cat", kCat, 0, -1}, {"set", kSet, 3, 3}, {"insert", kInsert, 3, 3},
    {"erase", kErase, 2, 2}, {"iota", kIota, 1, 1}, {"fill", kFill, 2, 2}, {"compose", kCompose, 2, 2}, {"inverse", kInverse, 1, 1},
    {"index", kIndexOf, 2, 2}, {"starts", kStarts, 1, 1}, {"all_equal", kAllEqual, 1, 1}, {"all", kAll, 1, 1}, {"any", kAny, 1, 1},
    {"sorted", kSorted, 1, 1}, {"rev", kRev, 1, 1}, {"select", kSelect, 2, 2}, {"drop", kDrop, 2, 2}, {"min", kMin, 1, -1}, {"max", kMax, 1, -1},
    {"abs", kAbs, 1, 1}, {"sqrt", kSqrt, 1, 1}, {"float", kFloatOf, 1, 1}, {"int", kIntOf, 1, 1}, {"attr", kAttrOf, 2, 3},
    {"has_attr", kHasAttr, 2, 2}, {"broadcast", kBroadcast, 2, -1}, {"perm_is_swap", kPermIsSwap, 1, 1}, {"is_const_int", kIsConstInt, 1, 1},
    {"flat", kFlat, 1, 1}, {"known", kKnown, 1, 1},
};
// clang-format on

inline const FunctionRow* find_function(std::string_view name) {
  for (const auto& row : kFunctions)
    if (name == row.name) return &row;
  return nullptr;
}

enum BinaryOp : int { kAddOp, kSubOp, kMulOp, kDivOp, kModOp, kEq, kNe, kLt, kLe, kGt, kGe, kIn, kAnd, kOr };
enum UnaryOp : int { kNeg, kNot };

}  // namespace rlflow
