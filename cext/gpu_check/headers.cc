// Compiled by `make gpu-compile` alone: our declarations of NVIDIA's interfaces against NVIDIA's own headers.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda.h>
#include <cudnn.h>
#include <nvrtc.h>

#include <type_traits>

#include "cudnn/api.h"

namespace {

// What two declarations must agree on: enumerations are int, a pointer to a structure is void*.
template <class T>
struct Plain {
  using type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
template <class T>
struct Plain<T*> {
  using Bare = std::remove_const_t<T>;
  using type = std::conditional_t<std::is_class_v<Bare> || std::is_void_v<Bare>, void*,
                                  typename Plain<std::conditional_t<std::is_class_v<Bare> || std::is_void_v<Bare>, int, Bare>>::type*>;
};
template <class R, class... A>
struct Plain<R (*)(A...)> {
  using type = typename Plain<R>::type (*)(typename Plain<A>::type...);
};

#define RLFLOW_CHECK(symbol, declared, result, arguments) \
  static_assert(std::is_same_v<Plain<std::remove_const_t<decltype(&declared)>>::type, Plain<decltype(rlflow::gpu::Api::symbol)>::type>, #symbol);
RLFLOW_CUDA_API(RLFLOW_CHECK)
RLFLOW_NVRTC_API(RLFLOW_CHECK)
RLFLOW_CUDNN_API(RLFLOW_CHECK)
RLFLOW_CUBLAS_API(RLFLOW_CHECK)

#define RLFLOW_VALUE(ours, theirs, value) static_assert(rlflow::gpu::ours == static_cast<int>(theirs), #theirs);
RLFLOW_GPU_CONSTANTS(RLFLOW_VALUE)

using rlflow::gpu::DevicePtr;
using rlflow::gpu::MatmulAlgo;
using rlflow::gpu::MatmulHeuristic;
static_assert(std::is_same_v<DevicePtr, CUdeviceptr> && std::is_same_v<int, CUdevice>);
static_assert(sizeof(MatmulAlgo) == sizeof(cublasLtMatmulAlgo_t) && alignof(MatmulAlgo) == alignof(cublasLtMatmulAlgo_t));
static_assert(sizeof(MatmulHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(MatmulHeuristic, workspace_size) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(MatmulHeuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(offsetof(MatmulHeuristic, waves_count) == offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));

}  // namespace
