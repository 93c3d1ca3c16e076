// testing.h, plus a check on the core's own error: its kind and a part of its sentence.
#pragma once
#include <string>
#include <string_view>

#include "rlflow/error.h"
#include "testing.h"

namespace rlflow::testing {

template <class Body>
void check_error(ErrorKind kind, std::string_view part, Body body, const char* text, const char* file, int line) {
  try {
    body();
  } catch (const Error& e) {
    if (e.kind() == kind && std::string_view(e.what()).find(part) != std::string_view::npos) return;
    fail(file, line,
         std::string(text) + " threw kind " + std::to_string(static_cast<int>(e.kind())) + " \"" + e.what() + "\", expected kind " +
             std::to_string(static_cast<int>(kind)) + " with \"" + std::string(part) + "\"");
  }
  fail(file, line, std::string(text) + " threw nothing, expected \"" + std::string(part) + "\"");
}

}  // namespace rlflow::testing

#define CHECK_THROWS_WITH(kind, part, ...) \
  ::rlflow::testing::check_error((kind), (part), [&] { (void)(__VA_ARGS__); }, #__VA_ARGS__, __FILE__, __LINE__)
