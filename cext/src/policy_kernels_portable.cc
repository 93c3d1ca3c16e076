// The policy's loops for any processor, in whatever vectors the compiler's default has; and the choice among all.
#include "policy_kernels.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define RLFLOW_POLICY_ROWS 2

namespace rlflow::policy {
namespace {
#include "policy_kernels_body.h"
}  // namespace

const Kernels* portable_kernels() { return &kTable; }

const Kernels& kernels() {
  static const Kernels* const chosen = [] {
    const Kernels* found = nullptr;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
      found = avx512_kernels();
    if (found == nullptr && avx2) found = avx2_kernels();
#endif
    return found ? found : portable_kernels();
  }();
  return *chosen;
}

}  // namespace rlflow::policy
