// The stages with AVX2 and FMA: 16 registers of 8 floats, 12 of which hold sums. A panel has half the columns that it has with
// AVX-512, so that a tile has half the work to share the transformed weights with: chunks are larger. Of 36 points the weights
// of 128 input channels would fill half of a second-level cache of 512 KB.
#include "routines.h"
#include "stages.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define RLFLOW_ROWS(block) 6
#define RLFLOW_GROUP(block) ((block) == 8 ? 2 : 1)
#define RLFLOW_LEAST_TILES 128
#define RLFLOW_LEAST_GIVEN 48
#define RLFLOW_LEAST_SHARED 48
#define RLFLOW_PART(points) ((points) > 16 ? 64 : 128)
#define RLFLOW_UNROLLED 16
#define RLFLOW_LANES 8

namespace rlflow::kernels {
namespace {
#include "stages_body.h"

#include "norm_body.h"

#include "product_body.h"

#include "gelu_body.h"

#include "planes_body.h"

#include "groups_body.h"

#include "unrolled_body.h"

#include "strassen_body.h"
}  // namespace

const Stages* avx2_stages(const Form& form, int block) { return chosen(form, block); }

const Routines* avx2_routines() {
  static constexpr Routines table = {norm_rows,   product_panels, convolved_plane, group_rows<8>,   group_rows<16>, gelu_rows,
                                     unroll<8>,   unroll<16>,     unrolled<8>,     unrolled<16>,    halve<8>,       halve<16>,
                                     strassen<8>, strassen<16>,   blocked_norm<8>, blocked_norm<16>};
  return &table;
}

}  // namespace rlflow::kernels

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
namespace rlflow::kernels {
const Stages* avx2_stages(const Form&, int) { return nullptr; }
const Routines* avx2_routines() { return nullptr; }
}  // namespace rlflow::kernels
#endif
