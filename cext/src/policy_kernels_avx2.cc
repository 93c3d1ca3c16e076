// The policy's loops with AVX2 and FMA: 12 of 16 registers of 8 floats hold sums.
#include "policy_kernels.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define RLFLOW_POLICY_ROWS 6

namespace rlflow::policy {
namespace {
#include "policy_kernels_body.h"
}  // namespace

const Kernels* avx2_kernels() { return &kTable; }

}  // namespace rlflow::policy

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
namespace rlflow::policy {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace rlflow::policy
#endif
