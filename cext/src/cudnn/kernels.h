// Our own kernels: their parameters (namespace kernels), and the text that NVRTC compiles.
#pragma once
#include <cstdint>
#include <string>

namespace rlflow::gpu {

namespace kernels {
#define RLFLOW_KERNEL_TEXT(...) __VA_ARGS__
#include "kernel_types.h"
#undef RLFLOW_KERNEL_TEXT
}  // namespace kernels

template <class Fixed>
const char* kernel_name();
template <> inline const char* kernel_name<kernels::Pointwise>() { return "Pointwise"; }
template <> inline const char* kernel_name<kernels::Transposition>() { return "Transposition"; }
template <> inline const char* kernel_name<kernels::Reducing>() { return "Reducing"; }
template <> inline const char* kernel_name<kernels::Softening>() { return "Softening"; }
template <> inline const char* kernel_name<kernels::Normalising>() { return "Normalising"; }
template <> inline const char* kernel_name<kernels::Gathering>() { return "Gathering"; }
template <> inline const char* kernel_name<kernels::Joining>() { return "Joining"; }
template <> inline const char* kernel_name<kernels::Remapping>() { return "Remapping"; }
template <> inline const char* kernel_name<kernels::Pooling>() { return "Pooling"; }

// CUDA C of one kernel, called `kernel`, that takes Pointers; `fixed` are its constants, in the order of the structure's members.
std::string kernel_source(const char* name, const long long* fixed, size_t count);

}  // namespace rlflow::gpu
