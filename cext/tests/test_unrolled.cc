// Products of rows by a matrix in blocks, cut into tasks, against the same in double precision.
#include "unrolled.h"

#include <cmath>
#include <vector>

#include "orders.h"
#include "samples.h"
#include "testing.h"

using namespace rlflow::kernels;
using rlflow::testing::floats;

namespace {

void check(int64_t rows, int64_t depth, int64_t columns, int64_t block, UnrolledTuning tuning, const Workers& workers) {
  const auto x = floats(rows * depth, 1), w = floats(depth * columns, 2), bias = floats(columns, 3);
  std::vector<float> blocked(w.size()), y(static_cast<std::size_t>(rows * columns) + 1, std::nanf(""));
  for (int64_t in = 0; in < depth; ++in)
    for (int64_t out = 0; out < columns; ++out)
      blocked[static_cast<std::size_t>(((out / block * (depth / block) + in / block) * block + in % block) * block + out % block)] =
          w[static_cast<std::size_t>(in * columns + out)];
  const Epilogue e{bias.data(), nullptr, Activation::none, 0, 0};
  const Unrolled u{1, depth / block,     columns / block,     1,        rows,           1, rows,    1, 1, 1, 1, 1, 1, 0,
                   0, {0, block, depth}, {0, block, columns}, x.data(), blocked.data(), e, y.data()};
  run_unrolled(u, block, false, tuning, workers);
  CHECK(std::isnan(y.back()));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t out = 0; out < columns; ++out) {
      double truth = bias[static_cast<std::size_t>(out)];
      for (int64_t in = 0; in < depth; ++in)
        truth += double{x[static_cast<std::size_t>(row * depth + in)]} * w[static_cast<std::size_t>(in * columns + out)];
      CHECK(std::abs(truth - y[static_cast<std::size_t>(row * columns + out)]) < 1e-5 * (1 + std::sqrt(static_cast<double>(depth))));
    }
}

void check_all(bool strassen) {
  for (const int64_t block : {8, 16})
    for (const int64_t rows : {1, 2, 31, 64, 75})
      for (const int64_t columns : {16, 32, 80})
        for (const int64_t chunk : {0, 5, 48}) {
          check(rows, 64, columns, block, {chunk, strassen}, rlflow::testing::Threads{});
          check(rows, 48, columns, block, {chunk, strassen}, rlflow::testing::Backwards{});
        }
}

}  // namespace

TEST(products_in_blocks_are_those_in_double_precision) { check_all(false); }
TEST(products_by_strassens_algorithm_are_those_in_double_precision) { check_all(true); }
TEST(a_product_of_no_rows_does_nothing) { check(0, 32, 32, 16, {0, true}, rlflow::testing::Threads{}); }
