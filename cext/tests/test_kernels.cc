// The Winograd convolution against one written out in double precision, for every instruction set of this machine, and
// the refusals of the library that ONNX Runtime loads.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "caches.h"
#include "orders.h"
#include "ort_api.h"
#include "samples.h"
#include "tasks.h"
#include "testing.h"
#include "winograd.h"

using namespace rlflow::kernels;
using rlflow::testing::Backwards;
using rlflow::testing::random_floats;
using rlflow::testing::Threads;

extern "C" rlflow::ort::Status* RegisterCustomOps(rlflow::ort::SessionOptions*, const rlflow::ort::ApiBase*);

namespace {

struct Case {
  int64_t batch, in, out, height, width;
  Padding pad;
  int64_t taps_y = 3, taps_x = 3;

  int64_t taps() const { return taps_y * taps_x; }
};

const Case kCases[] = {
    {1, 16, 16, 8, 8, {1, 1, 1, 1}}, {2, 32, 48, 7, 9, {1, 1, 1, 1}}, {1, 48, 16, 5, 6, {0, 0, 0, 0}},  {3, 16, 80, 13, 11, {2, 0, 1, 3}},
    {1, 16, 32, 1, 1, {1, 1, 1, 1}}, {1, 16, 16, 3, 3, {0, 0, 0, 0}}, {2, 16, 16, 30, 3, {0, 1, 0, 1}}, {1, 16, 16, 4, 33, {3, 4, 5, 6}},
};

struct OtherForm {
  int tile;
  Case first, second;
};

const OtherForm kOtherForms[] = {
    {2, {1, 16, 16, 9, 8, {0, 3, 0, 3}, 1, 7}, {2, 32, 48, 5, 17, {1, 0, 0, 2}, 1, 7}},
    {2, {1, 16, 16, 8, 9, {3, 0, 3, 0}, 7, 1}, {2, 32, 48, 17, 5, {0, 1, 2, 0}, 7, 1}},
    {4, {1, 16, 16, 6, 8, {0, 1, 0, 1}, 1, 3}, {2, 32, 48, 3, 9, {1, 0, 0, 2}, 1, 3}},
    {4, {1, 16, 16, 8, 6, {1, 0, 1, 0}, 3, 1}, {2, 32, 48, 9, 3, {0, 1, 2, 0}, 3, 1}},
    {2, {1, 16, 16, 7, 8, {2, 2, 2, 2}, 5, 5}, {2, 32, 48, 9, 5, {0, 1, 2, 0}, 5, 5}},
};

// Under the sanitizer of threads, which takes a hundred times as long, only what runs in threads is of interest.
#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadsOnly = true;
#else
constexpr bool kThreadsOnly = false;
#endif

// Where a channel lies in a blocked tensor of planes of `plane` pixels.
std::size_t at(const Case&, int block, int64_t image, int64_t channels, int64_t channel, int64_t plane, int64_t pixel) {
  return static_cast<std::size_t>(((image * channels + channel / block * block) * plane + pixel * block) + channel % block);
}

double direct(const Case& c, int block, const std::vector<float>& x, const std::vector<float>& w, int64_t image, int64_t out, int64_t row,
              int64_t column) {
  double sum = 0;
  for (int64_t in = 0; in < c.in; ++in)
    for (int64_t k = 0; k < c.taps(); ++k) {
      const int64_t y = row + k / c.taps_x - c.pad.top, z = column + k % c.taps_x - c.pad.left;
      if (y < 0 || z < 0 || y >= c.height || z >= c.width) continue;
      const int64_t weight = (((out / block * (c.in / block) + in / block) * c.taps() + k) * block + in % block) * block + out % block;
      sum += double{x[at(c, block, image, c.in, in, c.height * c.width, y * c.width + z)]} * w[static_cast<std::size_t>(weight)];
    }
  return sum;
}

double activated(double value, const Epilogue& e) {
  switch (e.activation) {
    case Activation::none: return value;
    case Activation::relu: return std::max(value, 0.0);
    case Activation::leaky_relu: return value < 0 ? value * e.alpha : value;
    case Activation::clip: return std::min<double>(std::max<double>(value, e.alpha), e.beta);
    case Activation::hard_sigmoid: return std::min(std::max(value * e.alpha + e.beta, 0.0), 1.0);
  }
  return value;
}

// The largest error over the largest output, of which about `bound` is what roundings make.
void check_case(Isa isa, int tile, int block, const Case& c, Epilogue e, bool with_bias, bool with_sum, const Workers& workers, WinogradTuning tuning,
                double bound) {
  const auto x = random_floats(static_cast<std::size_t>(c.batch * c.in * c.height * c.width), 1, 1);
  const auto w = random_floats(static_cast<std::size_t>(c.out * c.in * c.taps()), 1 / std::sqrt(static_cast<double>(c.taps() * c.in)), 2);
  const Winograd convolution(isa, form_of(tile, c.taps_y, c.taps_x), block, c.out, c.in, c.pad, tuning);
  const int64_t rows = convolution.out_height(c.height), columns = convolution.out_width(c.width);
  const auto size = static_cast<std::size_t>(c.batch * c.out * rows * columns);
  const auto bias = random_floats(static_cast<std::size_t>(c.out), 1, 3), sum = random_floats(size, 1, 4);
  e.bias = with_bias ? bias.data() : nullptr;
  e.sum = with_sum ? sum.data() : nullptr;
  std::vector<float> y(size + 1, std::nanf(""));
  convolution.run(c.batch, c.height, c.width, x.data(), w.data(), e, y.data(), workers);
  CHECK(std::isnan(y[size]));
  double worst = 0, largest = 1;
  for (int64_t image = 0; image < c.batch; ++image)
    for (int64_t out = 0; out < c.out; ++out)
      for (int64_t pixel = 0; pixel < rows * columns; ++pixel) {
        const std::size_t place = at(c, block, image, c.out, out, rows * columns, pixel);
        double truth = direct(c, block, x, w, image, out, pixel / columns, pixel % columns);
        truth += (with_bias ? bias[static_cast<std::size_t>(out)] : 0.0f) + (with_sum ? sum[place] : 0.0f);
        truth = activated(truth, e);
        CHECK(std::isfinite(y[place]));
        worst = std::max(worst, std::abs(truth - y[place]));
        largest = std::max(largest, std::abs(truth));
      }
  CHECK(worst / largest < bound);
}

// Remembers how many tasks there were.
struct Counting : Workers {
  void run(std::size_t count, void (*task)(void*, std::size_t), void* data) const override {
    tasks.push_back(count);
    Backwards{}.run(count, task, data);
  }
  mutable std::vector<std::size_t> tasks;
};

void check_all(Isa isa, int tile, double bound) {
  if (!runs_here(isa)) return;  // what this processor lacks cannot be tried
  const Epilogue plain, relu{nullptr, nullptr, Activation::relu, 0, 0};
  for (const int block : {8, 16})
    for (const Case& c : kCases) {
      if (!kThreadsOnly) check_case(isa, tile, block, c, plain, false, false, Backwards{}, {}, bound);
      check_case(isa, tile, block, c, relu, true, true, Threads{}, {1, block}, bound);
    }
}

void check_other_forms(Isa isa) {
  if (!runs_here(isa)) return;
  for (const OtherForm& form : kOtherForms)
    for (const int block : {8, 16}) {
      if (!kThreadsOnly) check_case(isa, form.tile, block, form.first, {}, false, false, Backwards{}, {}, 1e-5);
      check_case(isa, form.tile, block, form.second, {nullptr, nullptr, Activation::relu, 0, 0}, true, true, Threads{}, {1, block}, 1e-5);
    }
}

// A runtime that is too old: it makes statuses, and knows nothing else.
std::string said;
rlflow::ort::Status* make_status(int, const char* message) {
  said = message;
  return reinterpret_cast<rlflow::ort::Status*>(&said);
}
const void* old_table[] = {reinterpret_cast<const void*>(make_status)};
const void* old_api(uint32_t version) { return version == 1 ? static_cast<const void*>(old_table) : nullptr; }

}  // namespace

TEST(winograd_2_on_any_processor_is_the_convolution) { check_all(Isa::portable, 2, 2e-6); }
TEST(winograd_4_on_any_processor_is_the_convolution) { check_all(Isa::portable, 4, 8e-6); }
TEST(winograd_2_with_avx2_is_the_convolution) { check_all(Isa::avx2, 2, 2e-6); }
TEST(winograd_4_with_avx2_is_the_convolution) { check_all(Isa::avx2, 4, 8e-6); }
TEST(winograd_2_with_avx512_is_the_convolution) { check_all(Isa::avx512, 2, 2e-6); }
TEST(winograd_4_with_avx512_is_the_convolution) { check_all(Isa::avx512, 4, 8e-6); }

TEST(winograd_of_other_taps_on_any_processor_is_the_convolution) { check_other_forms(Isa::portable); }
TEST(winograd_of_other_taps_with_avx2_is_the_convolution) { check_other_forms(Isa::avx2); }
TEST(winograd_of_other_taps_with_avx512_is_the_convolution) { check_other_forms(Isa::avx512); }

TEST(winograd_does_what_follows_the_convolution) {
  const Epilogue all[] = {{nullptr, nullptr, Activation::leaky_relu, 0.1f, 0},
                          {nullptr, nullptr, Activation::clip, -0.5f, 0.75f},
                          {nullptr, nullptr, Activation::hard_sigmoid, 0.25f, 0.5f}};
  for (const Epilogue& e : all)
    for (const int tile : {2, 4}) check_case(chosen_isa(nullptr), tile, 8, kCases[1], e, true, false, Backwards{}, {}, 8e-6);
}

TEST(winograd_of_many_chunks_works_on_them_side_by_side) {
  const Case large{2, 16, 16, 41, 39, {1, 1, 1, 1}};
  for (const int tile : {2, 4}) check_case(chosen_isa(nullptr), tile, 8, large, {}, false, true, Threads{}, {7, 0}, 8e-6);
}

TEST(winograd_gives_each_thread_as_many_chunks) {
  const struct {
    Case convolution;
    int64_t threads;
    std::vector<std::size_t> tasks;  // of each run of the workers
  } cases[] = {
      {{1, 16, 16, 48, 48, {1, 1, 1, 1}}, 2, {2, 2}},  // weights that stay in the cache are made first, in pieces
      {{1, 16, 16, 48, 48, {1, 1, 1, 1}}, 3, {2, 3}},
      {{1, 128, 128, 28, 28, {1, 1, 1, 1}}, 2, {4}},        // each thread makes all of the others for its chunk
      {{1, 128, 128, 12, 12, {1, 1, 1, 1}}, 2, {16, 8}},    // of few tiles the threads have panels
      {{1, 16, 16, 8, 8, {1, 1, 1, 1}}, 64, {2, 1}},
  };
  for (const auto& one : cases) {
    const Counting workers;
    const Case& c = one.convolution;
    check_case(Isa::portable, 4, 8, c, {}, false, false, workers, {0, 0, one.threads}, 8e-6);
    if (second_level_cache() == 1 << 20) CHECK(workers.tasks == one.tasks);
  }
}

TEST(chunks_are_as_many_for_each_thread) {
  const int64_t cases[][3] = {{1, 2, 2}, {2, 2, 2}, {3, 2, 4}, {7, 2, 8}, {9, 2, 8}, {11, 2, 10}, {5, 4, 8}, {9, 4, 8}, {9, 16, 16}, {17, 16, 16}};
  for (const auto& [chunks, threads, expected] : cases) CHECK_EQ(evened(chunks, threads), expected);
}

TEST(winograd_refuses_what_it_cannot_do) {
  CHECK_THROWS(Winograd(Isa::portable, form_of(3, 3, 3), 8, 16, 16, {}), "tiles of 3x3, 3x3 taps and blocks of 8");
  CHECK_THROWS(Winograd(Isa::portable, form_of(2, 3, 3), 8, 12, 16, {}), "expected multiples of 8");
  CHECK_THROWS(Winograd(Isa::portable, form_of(2, 3, 3), 8, 0, 16, {}), "0 by 16 channels");
  CHECK_THROWS(Winograd(Isa::portable, form_of(2, 3, 3), 8, 16, 16, {-1, 0, 0, 0}), "The padding -1");
  CHECK_THROWS(Winograd(Isa::portable, form_of(2, 3, 3), 8, 16, 16, {}, {-1, 0}), "A chunk of -1");
  CHECK_THROWS(Winograd(Isa::portable, form_of(2, 3, 3), 8, 16, 16, {}, {0, 12}), "A part of 12 channels");
  CHECK_THROWS(Winograd(Isa::portable, form_of(2, 3, 3), 8, 16, 16, {}, {0, 0, -1}), "A number of -1 threads");
  const Winograd good(Isa::portable, form_of(2, 3, 3), 8, 16, 16, {});
  CHECK_THROWS(good.out_height(2), "height 2 leaves no output");
  CHECK_THROWS(good.out_width(0), "width 0 leaves no output");
}

TEST(kernels_choose_an_instruction_set) {
  CHECK(chosen_isa("portable") == Isa::portable);
  CHECK(runs_here(chosen_isa("")));
  CHECK_THROWS(chosen_isa("mmx"), "expected avx512, avx2 or portable");
  if (!runs_here(Isa::avx512)) CHECK_THROWS(chosen_isa("avx512"), "does not have");
}

TEST(kernels_refuse_an_old_runtime_with_a_sentence) {
  for (const char* version : {"1.16.3", "0.9", "2.0.1", "", "1.x"}) {
    static const char* answer;
    answer = version;
    const rlflow::ort::ApiBase base{old_api, [] { return answer; }};
    CHECK(RegisterCustomOps(nullptr, &base) != nullptr);
    CHECK(said.find("needs ONNX Runtime 1.17") != std::string::npos);
    CHECK(said.find(version) != std::string::npos);
  }
}
