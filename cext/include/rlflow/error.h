// The one exception family of the core. The binding maps each kind to a class of rlflow/errors.py.
#pragma once
#include <stdexcept>
#include <string>

namespace rlflow {

enum class ErrorKind : int {
  kGraph = 0,  // a graph that is malformed: unknown value, wrong arity, a cycle
  kType = 1,   // shape or dtype inference found a definite contradiction
  kRule = 2,   // a rule that does not parse, binds nothing, or is used wrongly
  kUsage = 3,  // a call with arguments that make no sense
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace rlflow
