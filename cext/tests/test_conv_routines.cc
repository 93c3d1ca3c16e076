// Depthwise convolutions, and those with a few channels a group, against the same in double precision, for every instruction
// set of this machine.
#include <cmath>
#include <utility>
#include <vector>

#include "isa.h"
#include "samples.h"
#include "testing.h"

using namespace rlflow::kernels;
using rlflow::testing::floats;

namespace {

struct Case {
  int64_t channels, members, height, width, kernel, stride, dilation, pad_top, pad_left, more;  // more: padding at the ends
};

const Case kCases[] = {
    {3, 1, 20, 37, 3, 1, 1, 1, 1, 1}, {2, 1, 9, 16, 5, 1, 1, 2, 2, 2},  {1, 1, 23, 50, 7, 2, 1, 3, 2, 3},  {2, 1, 8, 5, 3, 2, 1, 0, 1, 1},
    {3, 1, 12, 33, 4, 3, 2, 1, 0, 2}, {32, 4, 9, 21, 3, 1, 1, 1, 1, 1}, {16, 8, 12, 17, 3, 2, 1, 1, 1, 0}, {16, 2, 5, 6, 2, 1, 2, 0, 1, 2},
    {16, 4, 2, 2, 3, 1, 1, 1, 1, 1},  {32, 8, 7, 12, 3, 1, 1, 0, 0, 0}, {16, 8, 10, 40, 3, 1, 1, 2, 3, 4},
};

int64_t out_of(const Case& c, int64_t size, int64_t before) { return (size + before + c.more - (c.kernel - 1) * c.dilation - 1) / c.stride + 1; }

// Where a channel's value lies in planes of blocks; block 1: in a plain tensor.
int64_t place(int64_t block, int64_t channel, int64_t plane, int64_t pixel) {
  return channel / block * block * plane + pixel * block + channel % block;
}

// Channel `out` of one pixel of the second of two images; the weights are given by channel, tap and member of the group.
double direct(const Case& c, int64_t block, const std::vector<float>& x, const std::vector<float>& w, int64_t out, int64_t row, int64_t column) {
  const int64_t plane = c.height * c.width, image = c.channels * plane;
  double sum = 0;
  for (int64_t tap = 0; tap < c.kernel * c.kernel; ++tap) {
    const int64_t y = row * c.stride + tap / c.kernel * c.dilation - c.pad_top, z = column * c.stride + tap % c.kernel * c.dilation - c.pad_left;
    if (y < 0 || z < 0 || y >= c.height || z >= c.width) continue;
    for (int64_t member = 0; member < c.members; ++member) {
      const int64_t in = out / c.members * c.members + member;
      const auto at = static_cast<std::size_t>(image + place(block, in, plane, y * c.width + z));
      sum += double{x[at]} * w[static_cast<std::size_t>((out * c.kernel * c.kernel + tap) * c.members + member)];
    }
  }
  return sum;
}

void compare(const Case& c, int64_t block, const std::vector<float>& x, const std::vector<float>& w, const Epilogue& e, const std::vector<float>& y) {
  const int64_t rows = out_of(c, c.height, c.pad_top), columns = out_of(c, c.width, c.pad_left), plane = rows * columns;
  CHECK(std::isnan(y.back()));
  for (int64_t out = 0; out < c.channels; ++out)
    for (int64_t pixel = 0; pixel < plane; ++pixel) {
      const auto at = static_cast<std::size_t>(c.channels * plane + place(block, out, plane, pixel));
      const double truth = direct(c, block, x, w, out, pixel / columns, pixel % columns) + (e.bias ? e.bias[out] : 0.0f) + (e.sum ? e.sum[at] : 0.0f);
      CHECK(std::abs(std::max(truth, 0.0) - y[at]) < 1e-5 * (1 + std::abs(truth)));
    }
}

void check_depthwise(Isa isa, const Case& c, int64_t side_by_side) {
  const int64_t rows = out_of(c, c.height, c.pad_top), columns = out_of(c, c.width, c.pad_left);
  const auto x = floats(2 * c.channels * c.height * c.width, 1), w = floats(c.channels * c.kernel * c.kernel, 2), bias = floats(c.channels, 3);
  const auto sum = floats(2 * c.channels * rows * columns, 4);
  std::vector<float> y(sum.size() + 1, std::nanf(""));
  const Epilogue e{bias.data(), side_by_side == 1 ? nullptr : sum.data(), Activation::relu, 0, 0};
  Planes p{c.channels, c.height,  c.width,    rows,         columns, c.kernel, c.kernel, c.stride, c.stride, c.dilation,
           c.dilation, c.pad_top, c.pad_left, side_by_side, 0,       0,        x.data(), w.data(), e,        y.data()};
  p.set_layout();
  for (int64_t plane = 0; plane < 2 * c.channels; ++plane) {
    std::vector<float> copied(static_cast<std::size_t>(p.rows_read * p.phase * p.stride_x), std::nanf(""));
    routines(isa).plane(p, plane, copied.data());
  }
  compare(c, 1, x, w, e, y);
}

void check_grouped(Isa isa, const Case& c, int64_t block, int64_t side_by_side) {
  const int64_t rows = out_of(c, c.height, c.pad_top), columns = out_of(c, c.width, c.pad_left), taps = c.kernel * c.kernel;
  const auto x = floats(2 * c.channels * c.height * c.width, 1), w = floats(c.channels * taps * c.members, 2), bias = floats(c.channels, 3);
  const auto sum = floats(2 * c.channels * rows * columns, 4);
  std::vector<float> y(sum.size() + 1, std::nanf("")), blocked(w.size());
  for (int64_t out = 0; out < c.channels; ++out)
    for (int64_t at = 0; at < taps * c.members; ++at)
      blocked[static_cast<std::size_t>((out / block * taps * c.members + at) * block + out % block)] =
          w[static_cast<std::size_t>(out * taps * c.members + at)];
  const Epilogue e{bias.data(), side_by_side == 4 ? nullptr : sum.data(), Activation::relu, 0, 0};
  const Groups g{c.channels / block, c.members,  c.height,  c.width,    rows,         columns,  c.kernel,       c.kernel, c.stride, c.stride,
                 c.dilation,         c.dilation, c.pad_top, c.pad_left, side_by_side, x.data(), blocked.data(), e,        y.data()};
  const auto routine = block == 16 ? routines(isa).groups_16 : routines(isa).groups_8;
  for (int64_t image = 0; image < 2; ++image)
    for (int64_t number = 0; number < g.blocks; ++number) {
      routine(g, image, number, 0, rows / 2);
      routine(g, image, number, rows / 2, rows);
    }
  compare(c, block, x, w, e, y);
}

// Some rows by Strassen's algorithm; the odd block of outputs without.
void halved(const Unrolled& u, const UnrolledRows& some, int64_t block, const Routines& table) {
  const int64_t rows = (some.count + 1) / 2, parts = u.parts() / 2, stride = rows * block + 16, half = u.out_blocks / 2;
  std::vector<float> sums(static_cast<std::size_t>(4 * parts * stride), std::nanf(""));
  std::vector<float> memory(static_cast<std::size_t>(8 * parts * block * block), std::nanf(""));
  const UnrolledHalves h{some, parts, rows, some.count - rows, sums.data(), stride};
  (block == 16 ? table.halve_16 : table.halve_8)(h, 0, parts);
  (block == 16 ? table.strassen_16 : table.strassen_8)(u, h, 0, half, memory.data());
  (block == 16 ? table.unrolled_16 : table.unrolled_8)(u, some, 2 * half, u.out_blocks);
}

// As a product, from `in` channels to `out`, in two pieces of rows that no image ends with, each by Strassen's algorithm or not.
void check_unrolled(Isa isa, const Case& c, int64_t block, int64_t in, int64_t out, bool strassen) {
  const int64_t rows = out_of(c, c.height, c.pad_top), columns = out_of(c, c.width, c.pad_left), taps = c.kernel * c.kernel, plane = rows * columns;
  const auto x = floats(2 * in * c.height * c.width, 1), w = floats(out * taps * in, 2), bias = floats(out, 3), sum = floats(2 * out * plane, 4);
  std::vector<float> y(sum.size() + 1, std::nanf("")), blocked(w.size());
  for (int64_t to = 0; to < out; ++to)
    for (int64_t tap = 0; tap < taps; ++tap)
      for (int64_t from = 0; from < in; ++from)
        blocked[static_cast<std::size_t>((((to / block * (in / block) + from / block) * taps + tap) * block + from % block) * block + to % block)] =
            w[static_cast<std::size_t>((to * taps + tap) * in + from)];
  const Epilogue e{bias.data(), strassen ? sum.data() : nullptr, Activation::relu, 0, 0};
  const int64_t pixels = c.height * c.width;
  const Unrolled u{2,
                   in / block,
                   out / block,
                   c.height,
                   c.width,
                   rows,
                   columns,
                   c.kernel,
                   c.kernel,
                   c.stride,
                   c.stride,
                   c.dilation,
                   c.dilation,
                   c.pad_top,
                   c.pad_left,
                   {in * pixels, pixels * block, block},
                   {out * plane, plane * block, block},
                   x.data(),
                   blocked.data(),
                   e,
                   y.data()};
  const Routines& table = routines(isa);
  const int64_t all = 2 * plane, first = plane + plane / 3;
  for (const auto& [begin, end] : {std::pair{int64_t{0}, first}, std::pair{first, all}}) {
    const int64_t stride = (end - begin) * block + 16;
    std::vector<float> values(static_cast<std::size_t>(u.parts() * stride), std::nanf(""));
    const UnrolledRows some{begin, end - begin, values.data(), stride};
    (block == 16 ? table.unroll_16 : table.unroll_8)(u, some, 0, u.in_blocks);
    if (strassen) halved(u, some, block, table);
    else (block == 16 ? table.unrolled_16 : table.unrolled_8)(u, some, 0, u.out_blocks);
  }
  const Case dense{in, in, c.height, c.width, c.kernel, c.stride, c.dilation, c.pad_top, c.pad_left, c.more};
  CHECK(std::isnan(y.back()));
  for (int64_t to = 0; to < out; ++to) {
    // `direct` reads the weights of a channel in the first group, so those of this one are brought there.
    const std::vector<float> own(w.begin() + to * taps * in, w.begin() + (to + 1) * taps * in);
    for (int64_t pixel = 0; pixel < plane; ++pixel) {
      const auto at = static_cast<std::size_t>(out * plane + place(block, to, plane, pixel));
      const double truth =
          direct(dense, block, x, own, 0, pixel / columns, pixel % columns) + bias[static_cast<std::size_t>(to)] + (strassen ? sum[at] : 0.0f);
      CHECK(std::abs(std::max(truth, 0.0) - y[at]) < 1e-5 * (1 + std::sqrt(static_cast<double>(taps * in))));
    }
  }
}

const std::vector<Isa>& isas_here() {
  static const std::vector<Isa> found = [] {
    std::vector<Isa> some;
    for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512})
      if (runs_here(isa)) some.push_back(isa);
    return some;
  }();
  return found;
}

}  // namespace

TEST(depthwise_convolutions_are_those_in_double_precision) {
  for (const Isa isa : isas_here())
    for (const Case& c : kCases)
      for (const int64_t side_by_side : {1, 2, 4})
        if (c.members == 1) check_depthwise(isa, c, side_by_side);
}

TEST(grouped_convolutions_are_those_in_double_precision) {
  for (const Isa isa : isas_here())
    for (const Case& c : kCases)
      for (const int64_t block : {8, 16})
        for (const int64_t side_by_side : {4, 8})
          if (c.members > 1) check_grouped(isa, c, block, side_by_side);
}

TEST(unrolled_convolutions_are_those_in_double_precision) {
  const Case cases[] = {
      {0, 0, 9, 7, 1, 1, 1, 0, 0, 0}, {0, 0, 8, 11, 1, 2, 1, 0, 0, 0}, {0, 0, 9, 10, 3, 2, 1, 1, 1, 1}, {0, 0, 12, 5, 3, 1, 2, 2, 1, 3}};
  for (const Isa isa : isas_here())
    for (const Case& c : cases)
      for (const int64_t block : {8, 16})
        for (const bool strassen : {false, true}) check_unrolled(isa, c, block, 32, 48, strassen);
}
