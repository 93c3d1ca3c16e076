// A text and a place in it: what the parsers of terms and of expressions have in common (private to the core).
#pragma once
#include <cctype>
#include <string>
#include <string_view>

#include "rlflow/error.h"

namespace rlflow {

class TextReader {
 protected:
  // `what` names the text in errors: "term", "expression".
  TextReader(const char* what, std::string_view text) : what_(what), text_(text) {}

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorKind::kRule, std::string("in the ") + what_ + " '" + shown(text_) + "' at column " + std::to_string(at_ + 1) + ": " + why);
  }
  void check_length() const {
    if (text_.size() > kLongestText)
      fail("it has " + std::to_string(text_.size()) + " characters; expected " + std::to_string(kLongestText) + " at most");
  }
  void check_end() {
    skip();
    if (!at_end()) fail("unexpected '" + shown(text_.substr(at_)) + "'");
  }

  static bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }
  static bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  bool at_end() const { return at_ >= text_.size(); }
  bool next_is(char c) const { return !at_end() && text_[at_] == c; }  // no blank before it
  void skip() {
    while (!at_end() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool peek(std::string_view s) {
    skip();
    return text_.substr(at_, s.size()) == s;
  }
  bool take(std::string_view s) {
    if (!peek(s)) return false;
    at_ += s.size();
    return true;
  }
  // The letters, digits and underscores from here on; may be none.
  std::string letters() {
    size_t start = at_;
    while (!at_end() && word_char(text_[at_])) ++at_;
    return std::string(text_.substr(start, at_ - start));
  }

  const char* what_;
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace rlflow
