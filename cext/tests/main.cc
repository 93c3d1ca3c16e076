// Runs the unit tests: see testing.h. Exit status 0 when all passed, 1 when one failed, 2 for an unknown name.
#include <algorithm>
#include <exception>
#include <iostream>

#include "testing.h"

using rlflow::testing::Test;

static bool run(const Test& test) {
  try {
    test.body();
    return true;
  } catch (const std::exception& error) {
    std::cerr << "FAILED " << test.name << "\n" << error.what() << "\n";
    return false;
  }
}

int main(int argc, char** argv) {
  const std::vector<std::string> names(argv + 1, argv + argc);
  const auto& tests = rlflow::testing::registry();
  if (names.size() == 1 && names[0] == "--list") {
    for (const Test& test : tests) std::cout << test.name << "\n";
    return 0;
  }
  for (const std::string& name : names) {
    if (std::none_of(tests.begin(), tests.end(), [&](const Test& test) { return test.name == name; })) {
      std::cerr << "no unit test is called '" << name << "'; --list prints their names\n";
      return 2;
    }
  }
  int ran = 0, failed = 0;
  for (const Test& test : tests) {
    if (!names.empty() && std::find(names.begin(), names.end(), test.name) == names.end()) continue;
    ++ran;
    failed += !run(test);
  }
  std::cout << ran - failed << " of " << ran << " unit tests passed\n";
  return failed ? 1 : 0;
}
