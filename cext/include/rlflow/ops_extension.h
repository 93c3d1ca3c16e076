// Rows that are added to the operator table at run time, and what a row says in words.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rlflow/ops.h"

namespace rlflow {

// The result's dims from attributes and operands' types, all of known rank; nothing: the rank is not known. Throws Error(kType) where the
// operands do not fit. Asked once for the same operands and remembered; any thread may ask, and none holds a lock while it does.
using GivenShape = std::function<std::optional<IntVec>(const AttrSet& attrs, const std::vector<TypeId>& operands)>;

// A flag beside those of OpFlag: a broadcasting pointwise function of three or more inputs, of which nothing else is known.
inline constexpr uint32_t kPointwise = 1u << 10;
static_assert(kPointwise > kVariadicOutputs);

// An operator with a fixed number of operands and one result of the first operand's element type.
struct Extension {
  std::string name;
  int inputs = 1;
  uint32_t flags = kPure;                   // those that it claims; what follows from the rest of the row is added
  std::vector<AttrDefault> defaults = {};
  double flops_per_output = 1;
  GivenShape shape = {};                    // none: a pointwise operator, whose operands broadcast
};
// Appends a row. Throws Error(kUsage) once anybody has read the table (rules and graphs refer to it), for a name that it has, and
// beyond kMostExtensions. Not for concurrent use.
inline constexpr size_t kMostExtensions = 256;
OpId extend_table(Extension extension);

// What the row's shape rule is: "as the first operand", "the operands, broadcast", "given", "unknown" or "its own"; its float operations:
// "8 an output element".
std::string shape_rule_text(const OpInfo& op);
std::string flops_text(const OpInfo& op);

}  // namespace rlflow
