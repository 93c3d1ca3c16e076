// Rows that are added to the operator table at run time, and what a row says in words.
#pragma once
#include <string>
#include <vector>

#include "rlflow/ops.h"

namespace rlflow {

// A pointwise unary operator: the first operand's shape, the flags that it claims.
struct UnaryExtension {
  std::string name;
  uint32_t flags = kPure | kUnary;
  std::vector<AttrDefault> defaults = {};
  double flops_per_output = 1;
};
// Appends a row. Throws Error(kUsage) once anybody has read the table (rules and graphs refer to it), for a name that it has, and
// beyond kMostExtensions. Not for concurrent use.
inline constexpr size_t kMostExtensions = 256;
OpId extend_table(UnaryExtension extension);

// What the row's shape rule is: "as the first operand", "unknown" or "its own"; its float operations: "8 an output element".
std::string shape_rule_text(const OpInfo& op);
std::string flops_text(const OpInfo& op);

}  // namespace rlflow
