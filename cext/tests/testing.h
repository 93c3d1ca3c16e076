// The whole unit-test framework: TEST(name) { CHECK(...); CHECK_EQ(a, b); CHECK_THROWS(expr, "part of the message"); }
// One program holds all tests. `--list` prints their names, names as arguments run those, no argument runs all.
#pragma once
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rlflow::testing {

struct Test {
  std::string name;
  std::function<void()> body;
};

inline std::vector<Test>& registry() {
  static std::vector<Test> tests;
  return tests;
}

struct Registration {
  Registration(std::string name, std::function<void()> body) { registry().push_back({std::move(name), std::move(body)}); }
};

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  std::ostringstream text;
  text << file << ':' << line << ": " << what;
  throw Failure(text.str());
}

template <class T>
std::string show(const T& value) {
  if constexpr (requires(std::ostream& out) { out << value; }) {
    std::ostringstream text;
    text << value;
    return text.str();
  } else if constexpr (requires {
                         value.begin();
                         value.end();
                       }) {
    std::string text = "[";
    for (const auto& element : value) text += (text.size() > 1 ? ", " : "") + show(element);
    return text + "]";
  } else {
    return "(a value without a printed form)";
  }
}

template <class A, class B>
void check_equal(const A& a, const B& b, const char* a_text, const char* b_text, const char* file, int line) {
  if (!(a == b)) fail(file, line, std::string(a_text) + " == " + b_text + " is false\n  left:  " + show(a) + "\n  right: " + show(b));
}

template <class Body>
void check_throws(Body body, std::string_view part, const char* text, const char* file, int line) {
  std::string message;
  try {
    body();
  } catch (const std::exception& error) {
    message = error.what();
    if (message.find(part) != std::string::npos) return;
    fail(file, line, std::string(text) + " threw \"" + message + "\", expected a message with \"" + std::string(part) + "\"");
  }
  fail(file, line, std::string(text) + " threw nothing, expected a message with \"" + std::string(part) + "\"");
}

}  // namespace rlflow::testing

#define TEST(name)                                                                  \
  static void test_##name();                                                        \
  static const ::rlflow::testing::Registration register_##name(#name, test_##name); \
  static void test_##name()

#define CHECK(condition)                                                                   \
  do {                                                                                     \
    if (!(condition)) ::rlflow::testing::fail(__FILE__, __LINE__, #condition " is false"); \
  } while (false)
#define CHECK_EQ(a, b) ::rlflow::testing::check_equal((a), (b), #a, #b, __FILE__, __LINE__)
#define CHECK_THROWS(expression, part) ::rlflow::testing::check_throws([&] { (void)(expression); }, (part), #expression, __FILE__, __LINE__)
