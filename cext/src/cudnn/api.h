// The part of NVIDIA's C interfaces that the back end calls, declared here so that neither the build nor the wheel needs their headers.
//
// Handles are void*, enumerations int; `make gpu-compile` compares every signature, constant and structure with NVIDIA's own headers.
// Columns of a list: exported symbol, name under which a recent header declares it, result, arguments.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rlflow::gpu {

using DevicePtr = unsigned long long;

struct ConvolutionPerf {  // cudnnConvolutionFwdAlgoPerf_t
  int algo, status;
  float time;
  size_t memory;
  int determinism, math_type;
  int reserved[3];
};
struct MatmulAlgo {  // cublasLtMatmulAlgo_t
  uint64_t data[8];
};
struct MatmulHeuristic {  // cublasLtMatmulHeuristicResult_t
  MatmulAlgo algo;
  size_t workspace_size;
  int state;
  float waves_count;
  int reserved[4];
};

// clang-format off
#define RLFLOW_CUDA_API(F)                                                                                                              \
  F(cuInit, cuInit, int, (unsigned))                                                                                                    \
  F(cuDriverGetVersion, cuDriverGetVersion, int, (int*))                                                                                \
  F(cuGetErrorString, cuGetErrorString, int, (int, const char**))                                                                       \
  F(cuDeviceGetCount, cuDeviceGetCount, int, (int*))                                                                                    \
  F(cuDeviceGet, cuDeviceGet, int, (int*, int))                                                                                         \
  F(cuDeviceGetName, cuDeviceGetName, int, (char*, int, int))                                                                           \
  F(cuDeviceGetAttribute, cuDeviceGetAttribute, int, (int*, int, int))                                                                  \
  F(cuDeviceTotalMem_v2, cuDeviceTotalMem_v2, int, (size_t*, int))                                                                      \
  F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, int, (void**, int))                                                             \
  F(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease_v2, int, (int))                                                             \
  F(cuCtxSetCurrent, cuCtxSetCurrent, int, (void*))                                                                                     \
  F(cuMemAlloc_v2, cuMemAlloc_v2, int, (DevicePtr*, size_t))                                                                            \
  F(cuMemFree_v2, cuMemFree_v2, int, (DevicePtr))                                                                                       \
  F(cuMemGetInfo_v2, cuMemGetInfo_v2, int, (size_t*, size_t*))                                                                          \
  F(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2, int, (DevicePtr, const void*, size_t))                                                            \
  F(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2, int, (void*, DevicePtr, size_t))                                                                  \
  F(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2, int, (DevicePtr, DevicePtr, size_t, void*))                                             \
  F(cuMemsetD8Async, cuMemsetD8Async, int, (DevicePtr, unsigned char, size_t, void*))                                                   \
  F(cuStreamCreate, cuStreamCreate, int, (void**, unsigned))                                                                            \
  F(cuStreamDestroy_v2, cuStreamDestroy_v2, int, (void*))                                                                               \
  F(cuStreamSynchronize, cuStreamSynchronize, int, (void*))                                                                             \
  F(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2, int, (void*, int))                                                                \
  F(cuStreamEndCapture, cuStreamEndCapture, int, (void*, void**))                                                                       \
  F(cuEventCreate, cuEventCreate, int, (void**, unsigned))                                                                              \
  F(cuEventDestroy_v2, cuEventDestroy_v2, int, (void*))                                                                                 \
  F(cuEventRecord, cuEventRecord, int, (void*, void*))                                                                                  \
  F(cuEventSynchronize, cuEventSynchronize, int, (void*))                                                                               \
  F(cuEventElapsedTime, cuEventElapsedTime_v2, int, (float*, void*, void*))                                                             \
  F(cuModuleLoadData, cuModuleLoadData, int, (void**, const void*))                                                                     \
  F(cuModuleUnload, cuModuleUnload, int, (void*))                                                                                       \
  F(cuModuleGetFunction, cuModuleGetFunction, int, (void**, void*, const char*))                                                        \
  F(cuLaunchKernel, cuLaunchKernel, int,                                                                                                \
    (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**))                               \
  F(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, int, (void**, void*, unsigned long long))                                 \
  F(cuGraphLaunch, cuGraphLaunch, int, (void*, void*))                                                                                  \
  F(cuGraphExecDestroy, cuGraphExecDestroy, int, (void*))                                                                               \
  F(cuGraphDestroy, cuGraphDestroy, int, (void*))

#define RLFLOW_NVRTC_API(F)                                                                                                             \
  F(nvrtcVersion, nvrtcVersion, int, (int*, int*))                                                                                      \
  F(nvrtcGetErrorString, nvrtcGetErrorString, const char*, (int))                                                                       \
  F(nvrtcCreateProgram, nvrtcCreateProgram, int, (void**, const char*, const char*, int, const char* const*, const char* const*))       \
  F(nvrtcCompileProgram, nvrtcCompileProgram, int, (void*, int, const char* const*))                                                    \
  F(nvrtcDestroyProgram, nvrtcDestroyProgram, int, (void**))                                                                            \
  F(nvrtcGetCUBINSize, nvrtcGetCUBINSize, int, (void*, size_t*))                                                                        \
  F(nvrtcGetCUBIN, nvrtcGetCUBIN, int, (void*, char*))                                                                                  \
  F(nvrtcGetProgramLogSize, nvrtcGetProgramLogSize, int, (void*, size_t*))                                                              \
  F(nvrtcGetProgramLog, nvrtcGetProgramLog, int, (void*, char*))

#define RLFLOW_CUDNN_API(F)                                                                                                             \
  F(cudnnGetVersion, cudnnGetVersion, size_t, ())                                                                                       \
  F(cudnnGetErrorString, cudnnGetErrorString, const char*, (int))                                                                       \
  F(cudnnCreate, cudnnCreate, int, (void**))                                                                                            \
  F(cudnnDestroy, cudnnDestroy, int, (void*))                                                                                           \
  F(cudnnSetStream, cudnnSetStream, int, (void*, void*))                                                                                \
  F(cudnnCreateTensorDescriptor, cudnnCreateTensorDescriptor, int, (void**))                                                            \
  F(cudnnSetTensorNdDescriptor, cudnnSetTensorNdDescriptor, int, (void*, int, int, const int*, const int*))                             \
  F(cudnnDestroyTensorDescriptor, cudnnDestroyTensorDescriptor, int, (void*))                                                           \
  F(cudnnCreateFilterDescriptor, cudnnCreateFilterDescriptor, int, (void**))                                                            \
  F(cudnnSetFilterNdDescriptor, cudnnSetFilterNdDescriptor, int, (void*, int, int, int, const int*))                                    \
  F(cudnnDestroyFilterDescriptor, cudnnDestroyFilterDescriptor, int, (void*))                                                           \
  F(cudnnCreateConvolutionDescriptor, cudnnCreateConvolutionDescriptor, int, (void**))                                                  \
  F(cudnnSetConvolutionNdDescriptor, cudnnSetConvolutionNdDescriptor, int, (void*, int, const int*, const int*, const int*, int, int))  \
  F(cudnnSetConvolutionMathType, cudnnSetConvolutionMathType, int, (void*, int))                                                        \
  F(cudnnSetConvolutionGroupCount, cudnnSetConvolutionGroupCount, int, (void*, int))                                                    \
  F(cudnnDestroyConvolutionDescriptor, cudnnDestroyConvolutionDescriptor, int, (void*))                                                 \
  F(cudnnGetConvolutionForwardAlgorithm_v7, cudnnGetConvolutionForwardAlgorithm_v7, int,                                                \
    (void*, void*, void*, void*, void*, int, int*, ConvolutionPerf*))                                                                   \
  F(cudnnGetConvolutionForwardWorkspaceSize, cudnnGetConvolutionForwardWorkspaceSize, int,                                              \
    (void*, void*, void*, void*, void*, int, size_t*))                                                                                  \
  F(cudnnConvolutionForward, cudnnConvolutionForward, int,                                                                              \
    (void*, const void*, void*, const void*, void*, const void*, void*, int, void*, size_t, const void*, void*, void*))                 \
  F(cudnnConvolutionBiasActivationForward, cudnnConvolutionBiasActivationForward, int,                                                  \
    (void*, const void*, void*, const void*, void*, const void*, void*, int, void*, size_t, const void*, void*, const void*, void*,     \
     const void*, void*, void*, void*))                                                                                                 \
  F(cudnnCreateActivationDescriptor, cudnnCreateActivationDescriptor, int, (void**))                                                    \
  F(cudnnSetActivationDescriptor, cudnnSetActivationDescriptor, int, (void*, int, int, double))                                         \
  F(cudnnDestroyActivationDescriptor, cudnnDestroyActivationDescriptor, int, (void*))                                                   \
  F(cudnnCreatePoolingDescriptor, cudnnCreatePoolingDescriptor, int, (void**))                                                          \
  F(cudnnSetPoolingNdDescriptor, cudnnSetPoolingNdDescriptor, int, (void*, int, int, int, const int*, const int*, const int*))          \
  F(cudnnDestroyPoolingDescriptor, cudnnDestroyPoolingDescriptor, int, (void*))                                                         \
  F(cudnnPoolingForward, cudnnPoolingForward, int,                                                                                      \
    (void*, void*, const void*, void*, const void*, const void*, void*, void*))                                                         \
  F(cudnnSoftmaxForward, cudnnSoftmaxForward, int,                                                                                      \
    (void*, int, int, const void*, void*, const void*, const void*, void*, void*))

#define RLFLOW_CUBLAS_API(F)                                                                                                            \
  F(cublasLtGetVersion, cublasLtGetVersion, size_t, ())                                                                                 \
  F(cublasLtGetStatusString, cublasLtGetStatusString, const char*, (int))                                                               \
  F(cublasLtCreate, cublasLtCreate, int, (void**))                                                                                      \
  F(cublasLtDestroy, cublasLtDestroy, int, (void*))                                                                                     \
  F(cublasLtMatmulDescCreate, cublasLtMatmulDescCreate, int, (void**, int, int))                                                        \
  F(cublasLtMatmulDescSetAttribute, cublasLtMatmulDescSetAttribute, int, (void*, int, const void*, size_t))                             \
  F(cublasLtMatmulDescDestroy, cublasLtMatmulDescDestroy, int, (void*))                                                                 \
  F(cublasLtMatrixLayoutCreate, cublasLtMatrixLayoutCreate, int, (void**, int, uint64_t, uint64_t, int64_t))                            \
  F(cublasLtMatrixLayoutSetAttribute, cublasLtMatrixLayoutSetAttribute, int, (void*, int, const void*, size_t))                         \
  F(cublasLtMatrixLayoutDestroy, cublasLtMatrixLayoutDestroy, int, (void*))                                                             \
  F(cublasLtMatmulPreferenceCreate, cublasLtMatmulPreferenceCreate, int, (void**))                                                      \
  F(cublasLtMatmulPreferenceSetAttribute, cublasLtMatmulPreferenceSetAttribute, int, (void*, int, const void*, size_t))                 \
  F(cublasLtMatmulPreferenceDestroy, cublasLtMatmulPreferenceDestroy, int, (void*))                                                     \
  F(cublasLtMatmulAlgoGetHeuristic, cublasLtMatmulAlgoGetHeuristic, int,                                                                \
    (void*, void*, void*, void*, void*, void*, void*, int, MatmulHeuristic*, int*))                                                     \
  F(cublasLtMatmul, cublasLtMatmul, int,                                                                                                \
    (void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, void*, void*,                  \
     const MatmulAlgo*, void*, size_t, void*))

// Values of NVIDIA's enumerations: our name, theirs, value.
#define RLFLOW_GPU_CONSTANTS(F)                                              \
  F(kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED, 2)                      \
  F(kStreamNonBlocking, CU_STREAM_NON_BLOCKING, 1)                           \
  F(kAttributeProcessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)      \
  F(kAttributeCacheBytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38)             \
  F(kAttributeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)       \
  F(kAttributeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)       \
  F(kDnnFloat, CUDNN_DATA_FLOAT, 0)                                          \
  F(kDnnDouble, CUDNN_DATA_DOUBLE, 1)                                        \
  F(kDnnHalf, CUDNN_DATA_HALF, 2)                                            \
  F(kDnnBFloat16, CUDNN_DATA_BFLOAT16, 9)                                    \
  F(kDnnNchw, CUDNN_TENSOR_NCHW, 0)                                          \
  F(kDnnCrossCorrelation, CUDNN_CROSS_CORRELATION, 1)                        \
  F(kDnnTensorMath, CUDNN_TENSOR_OP_MATH, 1)                                 \
  F(kDnnFmaMath, CUDNN_FMA_MATH, 3)                                          \
  F(kDnnPrecompGemm, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, 1)    \
  F(kDnnRelu, CUDNN_ACTIVATION_RELU, 1)                                      \
  F(kDnnIdentity, CUDNN_ACTIVATION_IDENTITY, 5)                              \
  F(kDnnPropagateNan, CUDNN_PROPAGATE_NAN, 1)                                \
  F(kDnnIgnoreNan, CUDNN_NOT_PROPAGATE_NAN, 0)                               \
  F(kDnnPoolMax, CUDNN_POOLING_MAX, 0)                                       \
  F(kDnnPoolAverageWithPad, CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING, 1)  \
  F(kDnnPoolAverage, CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING, 2)         \
  F(kDnnSoftmaxAccurate, CUDNN_SOFTMAX_ACCURATE, 1)                          \
  F(kDnnSoftmaxLog, CUDNN_SOFTMAX_LOG, 2)                                    \
  F(kDnnSoftmaxChannel, CUDNN_SOFTMAX_MODE_CHANNEL, 1)                       \
  F(kBlasCompute32, CUBLAS_COMPUTE_32F, 68)                                  \
  F(kBlasComputeTf32, CUBLAS_COMPUTE_32F_FAST_TF32, 77)                      \
  F(kBlasCompute64, CUBLAS_COMPUTE_64F, 70)                                  \
  F(kBlasFloat, CUDA_R_32F, 0)                                               \
  F(kBlasDouble, CUDA_R_64F, 1)                                              \
  F(kBlasHalf, CUDA_R_16F, 2)                                                \
  F(kBlasBFloat16, CUDA_R_16BF, 14)                                          \
  F(kBlasTransA, CUBLASLT_MATMUL_DESC_TRANSA, 3)                             \
  F(kBlasTransB, CUBLASLT_MATMUL_DESC_TRANSB, 4)                             \
  F(kBlasEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                         \
  F(kBlasBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                  \
  F(kBlasEpilogueNone, CUBLASLT_EPILOGUE_DEFAULT, 1)                         \
  F(kBlasEpilogueRelu, CUBLASLT_EPILOGUE_RELU, 2)                            \
  F(kBlasEpilogueBias, CUBLASLT_EPILOGUE_BIAS, 4)                            \
  F(kBlasEpilogueReluBias, CUBLASLT_EPILOGUE_RELU_BIAS, 6)                   \
  F(kBlasOpN, CUBLAS_OP_N, 0)                                                \
  F(kBlasOpT, CUBLAS_OP_T, 1)                                                \
  F(kBlasBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)                  \
  F(kBlasBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)        \
  F(kBlasAlignFirst, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)          \
  F(kBlasAlignSecond, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)         \
  F(kBlasAlignAddend, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)         \
  F(kBlasAlignResult, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)         \
  F(kBlasMaxWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)
// clang-format on

#define RLFLOW_DECLARE(ours, theirs, value) inline constexpr int ours = value;
RLFLOW_GPU_CONSTANTS(RLFLOW_DECLARE)
#undef RLFLOW_DECLARE

// The functions that were found, by their exported names.
struct Api {
#define RLFLOW_MEMBER(symbol, declared, result, arguments) result(*symbol) arguments = nullptr;
  RLFLOW_CUDA_API(RLFLOW_MEMBER)
  RLFLOW_NVRTC_API(RLFLOW_MEMBER)
  RLFLOW_CUDNN_API(RLFLOW_MEMBER)
  RLFLOW_CUBLAS_API(RLFLOW_MEMBER)
#undef RLFLOW_MEMBER
};

}  // namespace rlflow::gpu
