// The kernels that are one routine each, as one table of functions per instruction set.
#pragma once
#include <cstdint>

namespace rlflow::kernels {

// y = (s − mean(s)) / √(variance(s) + epsilon) · scale + shift for each row s = x + skip + bias (Ba, Kiros and Hinton,
// "Layer Normalization", 2016); where not `centred`, s / √(mean(s²) + epsilon) · scale + shift (Zhang and Sennrich, "Root
// Mean Square Layer Normalization", 2019). A row has `width` floats, and so have scale, shift and bias.
struct Norm {
  int64_t width;
  float epsilon;
  bool centred;
  const float* scale;
  const float *shift, *bias;  // null: none
  const float* x;
  const float* skip;  // null: none; row r is added row r modulo skip_rows
  int64_t skip_rows;
  float* y;
  float* sum;  // where s is kept; null: nowhere
};

// y = x · w + bias for `rows` rows of `depth` floats. The columns of w lie in panels of 64, [panel][depth][column], the last
// one filled up with zeros.
struct Product {
  int64_t rows, depth, columns;
  int64_t ahead;  // cache lines that are fetched before they are needed
  const float *x, *weights;
  const float* bias;  // null: none
  float* y;
};

struct Routines {
  void (*norm)(const Norm&, int64_t first_row, int64_t end_row);
  void (*product)(const Product&, int64_t first_panel, int64_t end_panel);
};

// The tables; null where this build has none.
const Routines* portable_routines();
const Routines* avx2_routines();
const Routines* avx512_routines();

}  // namespace rlflow::kernels
