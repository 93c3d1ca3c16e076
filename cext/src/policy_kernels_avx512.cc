// The policy's loops with AVX-512: 12 of 32 registers of 16 floats hold sums.
#include "policy_kernels.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512dq,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512vl,avx512dq,fma,prefer-vector-width=512")
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define RLFLOW_POLICY_ROWS 12

namespace rlflow::policy {
namespace {
#include "policy_kernels_body.h"
}  // namespace

const Kernels* avx512_kernels() { return &kTable; }

}  // namespace rlflow::policy

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
namespace rlflow::policy {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace rlflow::policy
#endif
