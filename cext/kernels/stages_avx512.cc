// The stages with AVX-512: 32 registers of 16 floats, 24 of which hold sums. Blocks of 8 fill only half a register, so
// they are left to AVX2.
#include "routines.h"
#include "stages.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,fma,prefer-vector-width=512")
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define RLFLOW_ROWS(block) 12
#define RLFLOW_GROUP(block) 2
#define RLFLOW_LEAST_TILES 64
#define RLFLOW_LEAST_GIVEN 64
#define RLFLOW_LEAST_SHARED 24
#define RLFLOW_PART(points) 128
#define RLFLOW_UNROLLED 36
#define RLFLOW_LANES 16

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

const Stages* avx512_stages(const Form& form, int block) { return block == 16 ? chosen(form, block) : avx2_stages(form, block); }

const Routines* avx512_routines() {
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
const Stages* avx512_stages(const Form&, int) { return nullptr; }
const Routines* avx512_routines() { return nullptr; }
}  // namespace rlflow::kernels
#endif
