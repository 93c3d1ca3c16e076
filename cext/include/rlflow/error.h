// The one exception family of the core. The binding maps each kind to a class of rlflow/errors.py.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

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

// A text that somebody wrote, cut to what a sentence can hold, before a character of UTF-8 and not within one.
inline std::string shown(std::string_view text) {
  size_t end = 400;
  if (text.size() <= end) return std::string(text);
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

// Counts how deep a parser that calls itself is; `kDeepest` levels are far less than the stack has room for.
struct Level {
  static constexpr int kDeepest = 200;
  explicit Level(int& depth) : depth(depth) { ++depth; }
  ~Level() { --depth; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  bool too_deep() const { return depth > kDeepest; }
  int& depth;
};

// Characters of a term or an expression. Trees are as deep as their text is long, at worst, and are freed level by level.
constexpr size_t kLongestText = 10'000;

}  // namespace rlflow
