// Symbolic integers as text: writing and reading them.
#include <algorithm>

#include "polynomial.h"
#include "rlflow/error.h"

namespace rlflow {

using namespace polynomial;

namespace {

bool name_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool name_digit(char c) { return (c >= '0' && c <= '9') || c == '.'; }
bool plain_name(std::string_view s) {
  if (s.empty() || !name_letter(s[0])) return false;
  return std::all_of(s.begin(), s.end(), [&](char c) { return name_letter(c) || name_digit(c); });
}

std::string quoted_name(const std::string& name) {
  if (plain_name(name)) return name;
  std::string out = "'";
  for (char c : name) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

// Recursive descent over  sum := product (('+'|'-') product)* ;  product := factor (('*'|'/'|'//') factor)* ;
// factor := '-' factor | '(' sum ')' | digits | name | 'quoted name' | '?'.
class IntParser {
 public:
  explicit IntParser(std::string_view text) : text_(text) {
    if (text_.size() > kLongest) fail(std::to_string(kLongest) + " characters at most");
  }
  Int sum() {
    Int v = product();
    for (;;) {
      if (take('+')) v = int_add(v, product());
      else if (take('-')) v = int_sub(v, product());
      else return v;
    }
  }
  void expect_end() {
    skip();
    if (at_ < text_.size()) fail("an operator or the end");
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void fail(const std::string& expected) const {
    throw Error(ErrorKind::kUsage,
                "reading the integer expression '" + shown(text_) + "': at column " + std::to_string(at_ + 1) + ", expected " + expected);
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  Int product() {
    Int v = factor();
    for (;;) {
      if (take('*')) {
        v = int_mul(v, factor());
      } else if (take('/')) {
        take('/');
        v = int_div(v, factor());
      } else {
        return v;
      }
    }
  }
  Int factor() {
    Level level(depth_);
    if (level.too_deep()) fail("less nesting");
    if (take('-')) return int_sub(0, factor());
    if (take('?')) return kUnknown;
    if (take('(')) {
      Int v = sum();
      if (!take(')')) fail("')'");
      return v;
    }
    if (take('\'')) return quoted();
    if (at_ >= text_.size()) fail("a number, a name or '('");
    if (text_[at_] >= '0' && text_[at_] <= '9') return digits();
    size_t start = at_;
    while (at_ < text_.size() && (name_letter(text_[at_]) || (at_ > start && name_digit(text_[at_])))) ++at_;
    if (at_ == start) fail("a number, a name or '('");
    return int_symbol(text_.substr(start, at_ - start));
  }
  Int quoted() {
    std::string name;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\'') {
        if (at_ + 1 >= text_.size() || text_[at_ + 1] != '\'') break;
        ++at_;
      }
      name += text_[at_];
    }
    if (at_ >= text_.size() || name.empty()) fail("a closing quote after a name");
    ++at_;
    return int_symbol(name);
  }
  Int digits() {
    int64_t v = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(v, int64_t{10}, &v) || __builtin_add_overflow(v, int64_t{text_[at_] - '0'}, &v)) fail("a number below 2^63");
    return v;
  }
  static constexpr size_t kLongest = 25'000;  // a quoted name of 10,000 characters, all of them quotes, and more
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string int_text(Int v) {
  if (is_plain(v)) return std::to_string(v);
  if (!known_symbolic(v)) return "?";
  std::string out;
  for (const Term& t : poly_of(v)) {
    bool minus = t.coefficient < 0;
    out += minus ? "-" : out.empty() ? "" : "+";
    uint64_t magnitude = minus ? -static_cast<uint64_t>(t.coefficient) : static_cast<uint64_t>(t.coefficient);
    std::string product;
    for (const Factor& f : t.monomial)
      for (uint32_t i = 0; i < f.power; ++i) product += (product.empty() ? "" : "*") + quoted_name(symbol_name(f.symbol));
    if (product.empty()) product = std::to_string(magnitude);
    else if (magnitude != 1) product += "*" + std::to_string(magnitude);
    out += product;
  }
  return out;
}

Int int_parse(std::string_view text) {
  IntParser p(text);
  Int v = p.sum();
  p.expect_end();
  return v;
}

IntVec ints_parse(std::string_view text) {
  IntParser p(text);
  IntVec values;
  do values.push_back(p.sum());
  while (p.take(','));
  p.expect_end();
  return values;
}

}  // namespace rlflow
