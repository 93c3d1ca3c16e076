// The policy's loops, in every instruction set that this machine has, against sums written out; a network small enough to be worked out by
// hand. Whole networks are compared with plain numpy in tests/nn.
#include <cmath>
#include <random>

#include "policy_kernels.h"
#include "rlflow/policy_net.h"
#include "testing.h"

using namespace rlflow;
using policy::kLanes;

namespace {

using Floats = std::vector<float>;

Floats drawn(size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  Floats out(count);
  for (float& value : out) value = uniform(engine);
  return out;
}

std::vector<const policy::Kernels*> tables() {
  std::vector<const policy::Kernels*> found = {policy::portable_kernels()};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && policy::avx2_kernels()) found.push_back(policy::avx2_kernels());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && policy::avx512_kernels())
    found.push_back(policy::avx512_kernels());
#endif
  return found;
}

void check_near(float found, float expected) { CHECK(std::fabs(found - expected) <= 1e-5f * (1.0f + std::fabs(expected))); }

float leaky(float v) { return v > 0 ? v : 0.2f * v; }

}  // namespace

TEST(products_of_any_number_of_rows_are_those_written_out) {
  for (const policy::Kernels* table : tables())
    for (int64_t rows = 0; rows < 27; ++rows) {
      const int64_t in = 7, out = 2 * kLanes, ldx = in + 2, ldy = out + 3;
      const Floats x = drawn(rows * ldx, 1), w = drawn(in * out, 2), bias = drawn(out, 3), before = drawn(rows * ldy, 4);
      for (const bool add : {false, true}) {
        Floats y = before;
        table->product({x.data(), ldx, rows, w.data(), bias.data(), in, out, y.data(), ldy, add, add});
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t o = 0; o < ldy; ++o) {
            float sum = o < out ? bias[o] + (add ? before[r * ldy + o] : 0.0f) : before[r * ldy + o];
            for (int64_t i = 0; o < out && i < in; ++i) sum += x[r * ldx + i] * w[i * out + o];
            check_near(y[r * ldy + o], add && o < out ? std::fmax(sum, 0.0f) : sum);
          }
      }
    }
}

TEST(rows_are_normalised_over_the_features_that_count) {
  const int64_t width = 20, stride = 2 * kLanes, rows = 3;
  Floats x = drawn(rows * stride, 5), mask(stride, 0.0f), weight = drawn(stride, 6), bias = drawn(stride, 7);
  for (int64_t j = 0; j < stride; ++j)
    if (j < width) mask[j] = 1;
    else weight[j] = bias[j] = x[j] = x[stride + j] = x[2 * stride + j] = 0;
  for (const policy::Kernels* table : tables()) {
    Floats y(rows * stride, 9.0f);
    table->normalise({x.data(), stride, rows, width, stride, mask.data(), weight.data(), bias.data(), y.data(), stride});
    for (int64_t r = 0; r < rows; ++r) {
      float mean = 0, variance = 0;
      for (int64_t j = 0; j < width; ++j) mean += x[r * stride + j] / width;
      for (int64_t j = 0; j < width; ++j) variance += (x[r * stride + j] - mean) * (x[r * stride + j] - mean) / width;
      for (int64_t j = 0; j < stride; ++j)
        check_near(y[r * stride + j], j < width ? (x[r * stride + j] - mean) / std::sqrt(variance + 1e-5f) * weight[j] + bias[j] : 0.0f);
    }
  }
}

TEST(messages_along_edges_are_those_written_out) {
  const int64_t stride = kLanes, heads = 3, size = 4, edges = 4;
  const std::vector<int32_t> sender = {0, 1, 1, 2}, receiver = {1, 0, 1, 1};
  const Floats sent = drawn(3 * stride, 1), received = drawn(3 * stride, 2), along = drawn(edges * stride, 3), weights = drawn(edges * heads, 5);
  Floats score = drawn(stride, 4);
  std::fill(score.begin() + heads * size, score.end(), 0.0f);
  const policy::Edges e = {edges, stride, heads, size, sender.data(), receiver.data(), sent.data(), received.data(), stride, along.data(), stride};
  for (const policy::Kernels* table : tables()) {
    Floats scores(edges * heads), gathered(3 * stride, 1.0f), heard(3 * stride, 1.0f), scratch(stride);
    table->attend(e, score.data(), scores.data(), scratch.data());
    table->gather(e, weights.data(), gathered.data(), stride, scratch.data());
    table->hear(e, heard.data(), stride);
    Floats sums(3 * stride, 1.0f), totals(3 * stride, 1.0f);
    for (int64_t k = 0; k < edges; ++k)
      for (int64_t j = 0; j < stride; ++j) {
        const float value = sent[sender[k] * stride + j] + along[k * stride + j], all = value + received[receiver[k] * stride + j];
        if (j < heads * size) sums[receiver[k] * stride + j] += weights[k * heads + j / size] * value;
        totals[receiver[k] * stride + j] += std::fmax(all, 0.0f);
      }
    for (int64_t k = 0; k < edges; ++k)
      for (int64_t head = 0; head < heads; ++head) {
        float expected = 0;
        for (int64_t j = head * size; j < (head + 1) * size; ++j)
          expected += score[j] * leaky(sent[sender[k] * stride + j] + along[k * stride + j] + received[receiver[k] * stride + j]);
        check_near(scores[k * heads + head], expected);
      }
    for (size_t i = 0; i < sums.size(); ++i) {
      check_near(gathered[i], sums[i]);
      check_near(heard[i], totals[i]);
    }
  }
}

TEST(a_network_without_its_weights_is_refused) {
  PolicyForm form;
  form.hidden = form.heads = form.layers = form.ops = 1;
  CHECK_THROWS(PolicyNet(form, {}), "the weight graph.op.weight lacks");
  form.hidden = 3;
  form.heads = 2;
  CHECK_THROWS(PolicyNet(form, {}), "a width divisible by the heads");
}
