// The stages for any processor, in whatever vectors the compiler's default has (SSE2, NEON, ...).
#include "stages.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define RLFLOW_ROWS(block) 3
#define RLFLOW_GROUP(block) ((block) == 8 ? 2 : 1)

namespace rlflow::kernels {
namespace {
#include "stages_body.h"
}

const Stages* portable_stages(int tile, int block) { return chosen(tile, block); }

}  // namespace rlflow::kernels
