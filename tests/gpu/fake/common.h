// The stand-in for the NVIDIA driver, NVRTC, cuDNN and cuBLASLt on a machine without a GPU: one shared object under their four names.
//
// Memory is the host's, every operation is computed plainly in double precision, and our own kernels run on the host in whole blocks,
// compiled from the same text that NVRTC gets (blocks.h). The clock is virtual: each operation adds its own number of microseconds, so
// that choices and times are exact.
// In the environment, RLFLOW_FAKE_DEVICES, _DRIVER and _CUDNN change what it says about itself; RLFLOW_FAKE_ORDER is the order of threads.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <type_traits>

#include "cudnn/api.h"

#define API extern "C" __attribute__((visibility("default")))

namespace fake {

using namespace rlflow::gpu;

using Work = std::function<std::string()>;   // says what went wrong
int enqueue(double us, Work work);           // now, or into the capture at hand
int enqueue_routine(double us, std::function<void()> routine);  // one that is no kernel of ours; what it must not touch is said too
template <class Do>
int submit(double us, Do work) {
  if constexpr (std::is_void_v<std::invoke_result_t<Do&>>) return enqueue_routine(us, work);
  else return enqueue(us, work);
}
int setting(const char* name, int usual);

// Elements of the types that cuDNN and cuBLAS store, by cuDNN's number of the type.
double get(const void* p, int type, int64_t i);
void put(void* p, int type, int64_t i, double v);
inline double scalar(const void* p, int type) { return type == kDnnDouble ? *static_cast<const double*>(p) : *static_cast<const float*>(p); }

}  // namespace fake

using namespace fake;

// The stand-in has the interface that the back end calls: a definition with another signature does not compile.
#define RLFLOW_DECLARED(symbol, declared, result, arguments) API result symbol arguments;
RLFLOW_CUDA_API(RLFLOW_DECLARED)
RLFLOW_NVRTC_API(RLFLOW_DECLARED)
RLFLOW_CUDNN_API(RLFLOW_DECLARED)
RLFLOW_CUBLAS_API(RLFLOW_DECLARED)
