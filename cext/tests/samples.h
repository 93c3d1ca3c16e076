// Numbers to try kernels with.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

namespace rlflow::testing {

// Normally distributed around 0, the same for a seed.
inline std::vector<float> random_floats(std::size_t count, double scale, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(normal(engine));
  return values;
}

inline std::vector<float> floats(int64_t count, unsigned seed) { return random_floats(static_cast<std::size_t>(count), 1, seed); }

}  // namespace rlflow::testing
