// The stages for any processor, in whatever vectors the compiler's default has (SSE2, NEON, ...).
#include "routines.h"
#include "stages.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define RLFLOW_ROWS(block) 3
#define RLFLOW_GROUP(block) ((block) == 8 ? 2 : 1)
#define RLFLOW_LEAST_TILES 24
#define RLFLOW_LEAST_GIVEN 24
#define RLFLOW_LEAST_SHARED 24
#define RLFLOW_PART(points) 128
#define RLFLOW_UNROLLED 36
#define RLFLOW_LANES 4

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

const Stages* portable_stages(const Form& form, int block) { return chosen(form, block); }

const Routines* portable_routines() {
  static constexpr Routines table = {norm_rows,   product_panels, convolved_plane, group_rows<8>,   group_rows<16>, gelu_rows,
                                     unroll<8>,   unroll<16>,     unrolled<8>,     unrolled<16>,    halve<8>,       halve<16>,
                                     strassen<8>, strassen<16>,   blocked_norm<8>, blocked_norm<16>};
  return &table;
}

}  // namespace rlflow::kernels
