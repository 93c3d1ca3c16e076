// The loops of the policy's network that take nearly all of its time, once per instruction set of the processor.
#pragma once
#include <cstdint>

namespace rlflow::policy {

constexpr int64_t kLanes = 16;  // widths are padded to whole vectors of so many floats

// y[r, o] = bias[o] + sum over i of x[r, i] w[i, o], for `out` a multiple of kLanes; `add`: on top of what y holds.
struct Product {
  const float* x;
  int64_t ldx, rows;
  const float* weight;
  const float* bias;
  int64_t in, out;
  float* y;
  int64_t ldy;
  bool add, relu;
};

// y = (x - mean) / sqrt(variance + 1e-5) * weight + bias over the features of each row that `mask` keeps.
struct Normalisation {
  const float* x;
  int64_t ldx, rows, width, stride;
  const float *mask, *weight, *bias;
  float* y;
  int64_t ldy;
};

// What edges carry one way: `sent` by the sender, `received` at the receiver (rows of `ld`), `along` the edge (rows of `ld_along`).
struct Edges {
  int64_t count, stride, heads, head_size;
  const int32_t *sender, *receiver;
  const float *sent, *received;
  int64_t ld;
  const float* along;
  int64_t ld_along;
};

struct Kernels {
  void (*product)(const Product&);
  void (*normalise)(const Normalisation&);
  // scores[e, head] = sum over the head of leaky(sent + received + along) * score. `scratch` [stride].
  void (*attend)(const Edges&, const float* score, float* scores, float* scratch);
  // out[receiver] += weights[e, head] * (sent + along); rows of `ld_out`. `scratch` [stride].
  void (*gather)(const Edges&, const float* weights, float* out, int64_t ld_out, float* scratch);
  // out[receiver] += relu(sent + received + along).
  void (*hear)(const Edges&, float* out, int64_t ld_out);
};

const Kernels* portable_kernels();
const Kernels* avx2_kernels();    // null where the compiler has none
const Kernels* avx512_kernels();
// The best that this processor runs.
const Kernels& kernels();

}  // namespace rlflow::policy
