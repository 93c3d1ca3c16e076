// The kernels that are one routine each against the same in double precision, for every instruction set of this machine.
#include <cmath>
#include <random>
#include <vector>

#include "isa.h"
#include "testing.h"

using namespace rlflow::kernels;

namespace {

std::vector<float> normal_floats(int64_t count, double mean, double scale, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(mean, scale);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(normal(engine));
  return values;
}

std::vector<Isa> isas_here() {
  std::vector<Isa> found;
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512})
    if (runs_here(isa)) found.push_back(isa);
  return found;
}

// --- normalised rows ---

struct NormCase {
  int64_t rows, width, skip_rows;  // 0: nothing is added
  bool centred, shift, bias;
  double mean;
};

const NormCase kNorms[] = {
    {5, 768, 5, true, true, false, 0}, {3, 1, 0, false, false, false, 0},  {4, 17, 2, true, true, true, 0},   {2, 64, 0, true, false, true, 3},
    {6, 100, 3, false, true, true, 0}, {1, 4096, 1, true, true, false, 1}, {7, 15, 0, false, false, true, 0}, {2, 1023, 2, true, true, true, 30},
};

double norm_term(const Norm& n, int64_t row, int64_t at) {
  double value = n.x[row * n.width + at];
  if (n.skip) value += n.skip[row % n.skip_rows * n.width + at];
  return n.bias ? value + n.bias[at] : value;
}

// The largest error of a row over its largest output.
void check_norm_row(const Norm& n, int64_t row, double bound) {
  const auto width = static_cast<double>(n.width);
  double mean = 0, squares = 0, worst = 0, largest = 1;
  if (n.centred)
    for (int64_t at = 0; at < n.width; ++at) mean += norm_term(n, row, at) / width;
  for (int64_t at = 0; at < n.width; ++at) squares += std::pow(norm_term(n, row, at) - mean, 2) / width;
  for (int64_t at = 0; at < n.width; ++at) {
    double truth = (norm_term(n, row, at) - mean) / std::sqrt(squares + n.epsilon) * n.scale[at];
    truth += n.shift ? n.shift[at] : 0.0f;
    const float found = n.y[row * n.width + at];
    CHECK(std::isfinite(found));
    worst = std::max(worst, std::abs(truth - found));
    largest = std::max(largest, std::abs(truth));
    if (n.sum) CHECK(std::abs(n.sum[row * n.width + at] - norm_term(n, row, at)) <= 1e-6 * (1 + std::abs(norm_term(n, row, at))));
  }
  CHECK(worst / largest < bound);
}

void check_norm(Isa isa, const NormCase& c, bool keeps_sum) {
  const int64_t size = c.rows * c.width;
  const auto x = normal_floats(size, c.mean, 1, 1), skip = normal_floats(c.skip_rows * c.width, 0, 1, 2);
  const auto scale = normal_floats(c.width, 1, 0.2, 3), shift = normal_floats(c.width, 0, 1, 4), bias = normal_floats(c.width, 0, 1, 5);
  std::vector<float> y(static_cast<std::size_t>(size) + 1, std::nanf("")), sum = y;
  const bool adds = c.skip_rows > 0 || c.bias;
  Norm n{c.width,
         1e-5f,
         c.centred,
         scale.data(),
         c.shift ? shift.data() : nullptr,
         c.bias ? bias.data() : nullptr,
         x.data(),
         c.skip_rows > 0 ? skip.data() : nullptr,
         std::max<int64_t>(1, c.skip_rows),
         y.data(),
         adds && keeps_sum ? sum.data() : nullptr};
  routines(isa).norm(n, 0, c.rows / 2);  // in two tasks
  routines(isa).norm(n, c.rows / 2, c.rows);
  CHECK(std::isnan(y.back()) && std::isnan(sum.back()));
  for (int64_t row = 0; row < c.rows; ++row) check_norm_row(n, row, 2e-6 * (1 + c.mean));
}

}  // namespace

TEST(normalised_rows_are_those_in_double_precision) {
  for (const Isa isa : isas_here())
    for (const NormCase& c : kNorms)
      for (const bool keeps_sum : {false, true}) check_norm(isa, c, keeps_sum);
}

// --- the channels of pixels, in blocks ---

namespace {

struct BlockedNormCase {
  int64_t images, blocks, plane;
  bool shift;
  double mean;
};

const BlockedNormCase kBlockedNorms[] = {{2, 3, 25, true, 0}, {1, 1, 1, false, 0}, {1, 48, 8, true, 3}, {2, 6, 16, false, 30}, {1, 2, 31, true, 0}};

void check_blocked_norm(Isa isa, const BlockedNormCase& c, int64_t block) {
  const int64_t channels = c.blocks * block, size = c.images * channels * c.plane;
  const auto x = normal_floats(size, c.mean, 1, 1), scale = normal_floats(channels, 1, 0.2, 2), shift = normal_floats(channels, 0, 1, 3);
  std::vector<float> y(static_cast<std::size_t>(size) + 1, std::nanf(""));
  const BlockedNorm n{c.blocks, c.plane, 1e-5f, scale.data(), c.shift ? shift.data() : nullptr, x.data(), y.data()};
  const Routines& table = routines(isa);
  const auto routine = block == 16 ? table.blocked_norm_16 : table.blocked_norm_8;
  for (int64_t image = 0; image < c.images; ++image) {
    routine(n, image, 0, c.plane / 3);  // in two tasks
    routine(n, image, c.plane / 3, c.plane);
  }
  CHECK(std::isnan(y.back()));
  // Each pixel as a row of its own.
  std::vector<float> row(static_cast<std::size_t>(channels)), found(row.size());
  for (int64_t pixel = 0; pixel < c.images * c.plane; ++pixel) {
    const int64_t first = (pixel / c.plane * c.blocks * c.plane + pixel % c.plane) * block;
    for (int64_t channel = 0; channel < channels; ++channel) {
      const auto from = static_cast<std::size_t>(first + channel / block * c.plane * block + channel % block), to = static_cast<std::size_t>(channel);
      row[to] = x[from];
      found[to] = y[from];
    }
    const Norm same{channels, n.epsilon, true, n.scale, n.shift, nullptr, row.data(), nullptr, 1, found.data(), nullptr};
    check_norm_row(same, 0, 2e-6 * (1 + c.mean));
  }
}

}  // namespace

TEST(normalised_channels_of_blocks_are_those_in_double_precision) {
  for (const Isa isa : isas_here())
    for (const BlockedNormCase& c : kBlockedNorms)
      for (const int64_t block : {8, 16}) check_blocked_norm(isa, c, block);
}

// --- products with few rows ---

TEST(products_with_few_rows_are_those_in_double_precision) {
  struct Case {
    int64_t rows, depth, columns;
  };
  for (const Isa isa : isas_here())
    for (const Case& c : {Case{1, 768, 128}, {1, 5, 1}, {2, 33, 65}, {3, 64, 200}, {4, 17, 63}, {9, 30, 70}, {4, 150, 129}, {3, 128, 64}}) {
      const int64_t panels = (c.columns + 63) / 64;
      const auto x = normal_floats(c.rows * c.depth, 0, 1, 1), w = normal_floats(panels * c.depth * 64, 0, 1, 2);
      const auto bias = normal_floats(c.columns, 0, 1, 3);
      std::vector<float> y(static_cast<std::size_t>(c.rows * c.columns) + 1, std::nanf(""));
      const Product p{c.rows, c.depth, c.columns, 16, x.data(), w.data(), c.rows == 2 ? nullptr : bias.data(), y.data()};
      for (int64_t panel = 0; panel < panels; ++panel) routines(isa).product(p, panel, panel + 1);
      CHECK(std::isnan(y.back()));
      for (int64_t row = 0; row < c.rows; ++row)
        for (int64_t column = 0; column < c.columns; ++column) {
          double truth = p.bias ? p.bias[column] : 0.0f, size = 1;
          for (int64_t k = 0; k < c.depth; ++k) {
            const double term = double{p.x[row * c.depth + k]} * p.weights[(column / 64 * c.depth + k) * 64 + column % 64];
            truth += term;
            size += std::abs(term);
          }
          CHECK(std::abs(truth - p.y[row * c.columns + column]) <= 1e-6 * size);
        }
    }
}

// --- gelu ---

TEST(gelu_is_that_in_double_precision) {
  for (const Isa isa : isas_here())
    for (const int64_t width : {1, 7, 16, 33, 768})
      for (const bool with_bias : {false, true}) {
        std::vector<float> x = normal_floats(3 * width, 0, 3, 1), y(x.size() + 1, std::nanf(""));
        const auto bias = normal_floats(width, 0, 1, 2);
        x[0] = -60;
        const Gelu g{width, with_bias ? bias.data() : nullptr, x.data(), y.data()};
        routines(isa).gelu(g, 0, 1);
        routines(isa).gelu(g, 1, 3);
        CHECK(std::isnan(y[x.size()]));
        for (std::size_t at = 0; at < x.size(); ++at) {
          const double value = double{x[at]} + (with_bias ? double{bias[at % static_cast<std::size_t>(width)]} : 0.0);
          CHECK(std::abs(y[at] - value / 2 * std::erfc(-value / std::sqrt(2.0))) < 1e-6 * (1 + std::abs(value)));
        }
        CHECK(y[0] == 0.0f);
      }
}
