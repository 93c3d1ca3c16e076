// A convolution, or a product of rows, as one matrix product: how it is cut into tasks.
#pragma once
#include <cstdint>

#include "routines.h"
#include "workers.h"

namespace rlflow::kernels {

// What a tuner may choose.
struct UnrolledTuning {
  int64_t chunk = 0;  // rows that are worked on at a time; 0: by the caches
  bool strassen = false;
};

// `block`: 8 or 16, of the channels. `in_place`: the input has the values of the rows as they are needed, so that they are not
// copied. Strassen's algorithm is done where there are halves of channels, and blocks of outputs in both halves. Throws
// std::bad_alloc.
void run_unrolled(const Unrolled& c, int64_t block, bool in_place, UnrolledTuning tuning, const Workers& workers);

}  // namespace rlflow::kernels
