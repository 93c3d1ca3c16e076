// The part of NVIDIA's C interfaces that the back end calls, declared here so that neither the build nor the wheel needs their headers.
//
// Handles are void*, enumerations int; `make gpu-compile` compares every signature, constant and structure with NVIDIA's own headers.
// Columns of a list: exported symbol, name under which a recent header declares it, result, arguments.
#pragma once
#include <cstddef>
#include <cstdint>

namespace rlflow::gpu {

using DevicePtr = unsigned long long;

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
  F(cudnnGetLastErrorString, cudnnGetLastErrorString, void, (char*, size_t))                                                            \
  F(cudnnBackendCreateDescriptor, cudnnBackendCreateDescriptor, int, (int, void**))                                                     \
  F(cudnnBackendDestroyDescriptor, cudnnBackendDestroyDescriptor, int, (void*))                                                         \
  F(cudnnBackendSetAttribute, cudnnBackendSetAttribute, int, (void*, int, int, int64_t, const void*))                                   \
  F(cudnnBackendGetAttribute, cudnnBackendGetAttribute, int, (void*, int, int, int64_t, int64_t*, void*))                               \
  F(cudnnBackendFinalize, cudnnBackendFinalize, int, (void*))                                                                           \
  F(cudnnBackendExecute, cudnnBackendExecute, int, (void*, void*, void*))                                                               \
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
  F(kDnnCrossCorrelation, CUDNN_CROSS_CORRELATION, 1)                        \
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

// Those of cuDNN's graph interface: kinds of descriptors, types of attributes, attributes, and their values.
#define RLFLOW_GRAPH_CONSTANTS(F)                                                  \
  F(kDescribePointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)                     \
  F(kDescribeConvolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 1)                 \
  F(kDescribeEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                           \
  F(kDescribeEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                  \
  F(kDescribeHeuristic, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                    \
  F(kDescribePlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                     \
  F(kDescribeConvolve, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10) \
  F(kDescribeApply, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)              \
  F(kDescribeGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                   \
  F(kDescribePack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                      \
  F(kDescribeTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                          \
  F(kDescribeDevice, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38)                      \
  F(kTypeHandle, CUDNN_TYPE_HANDLE, 0)                                             \
  F(kTypeDataType, CUDNN_TYPE_DATA_TYPE, 1)                                        \
  F(kTypeBoolean, CUDNN_TYPE_BOOLEAN, 2)                                           \
  F(kTypeInt64, CUDNN_TYPE_INT64, 3)                                               \
  F(kTypeFloat, CUDNN_TYPE_FLOAT, 4)                                               \
  F(kTypeDouble, CUDNN_TYPE_DOUBLE, 5)                                             \
  F(kTypePointer, CUDNN_TYPE_VOID_PTR, 6)                                          \
  F(kTypeConvolutionMode, CUDNN_TYPE_CONVOLUTION_MODE, 7)                          \
  F(kTypeHeuristicMode, CUDNN_TYPE_HEUR_MODE, 8)                                   \
  F(kTypeNumericalNote, CUDNN_TYPE_NUMERICAL_NOTE, 11)                             \
  F(kTypeBehaviourNote, CUDNN_TYPE_BEHAVIOR_NOTE, 19)                              \
  F(kTypePointwiseMode, CUDNN_TYPE_POINTWISE_MODE, 14)                             \
  F(kTypeDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                            \
  F(kTypeChar, CUDNN_TYPE_CHAR, 24)                                                \
  F(kPointwiseMode, CUDNN_ATTR_POINTWISE_MODE, 0)                                  \
  F(kPointwiseCompute, CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                          \
  F(kPointwiseLowerClip, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 3)                  \
  F(kPointwiseUpperClip, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, 4)                  \
  F(kPointwiseLowerSlope, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 5)           \
  F(kPointwiseEluAlpha, CUDNN_ATTR_POINTWISE_ELU_ALPHA, 6)                         \
  F(kConvolutionCompute, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 100)                    \
  F(kConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE, 101)                       \
  F(kConvolutionDilations, CUDNN_ATTR_CONVOLUTION_DILATIONS, 102)                  \
  F(kConvolutionStrides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 103)               \
  F(kConvolutionPaddingAfter, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 104)           \
  F(kConvolutionPaddingBefore, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 105)           \
  F(kConvolutionAxes, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 106)                    \
  F(kHeuristicMode, CUDNN_ATTR_ENGINEHEUR_MODE, 200)                               \
  F(kHeuristicGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                   \
  F(kHeuristicResults, CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                         \
  F(kHeuristicDevice, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 204)                       \
  F(kConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE, 300)                               \
  F(kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)                            \
  F(kPlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                     \
  F(kPlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                 \
  F(kPlanDevice, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 407)                        \
  F(kConvolveAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)           \
  F(kConvolveBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)             \
  F(kConvolveHow, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)         \
  F(kConvolveW, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)                   \
  F(kConvolveX, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)                   \
  F(kConvolveY, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)                   \
  F(kApplyHow, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                  \
  F(kApplyX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)                            \
  F(kApplyB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)                            \
  F(kApplyY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)                            \
  F(kGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)                           \
  F(kGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                          \
  F(kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                       \
  F(kTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                                 \
  F(kTensorDims, CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                                \
  F(kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES, 903)                                \
  F(kTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                                   \
  F(kTensorVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                             \
  F(kPackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                            \
  F(kPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                    \
  F(kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                       \
  F(kEngineIndex, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1301)                            \
  F(kEngineNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)                          \
  F(kEngineBehaviour, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, 1305)                       \
  F(kDeviceText, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)                  \
  F(kHeuristicBest, CUDNN_HEUR_MODE_A, 3)                                          \
  F(kHeuristicFallback, CUDNN_HEUR_MODE_FALLBACK, 2)                               \
  F(kNoteTensorCore, CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0)                          \
  F(kNoteNarrowInputs, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)                \
  F(kNoteNarrowSums, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2)          \
  F(kNoteCompiles, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, 0)                     \
  F(kModeAdd, CUDNN_POINTWISE_ADD, 0)                                              \
  F(kModeRelu, CUDNN_POINTWISE_RELU_FWD, 100)                                      \
  F(kModeTanh, CUDNN_POINTWISE_TANH_FWD, 101)                                      \
  F(kModeSigmoid, CUDNN_POINTWISE_SIGMOID_FWD, 102)                                \
  F(kModeElu, CUDNN_POINTWISE_ELU_FWD, 103)                                        \
  F(kModeGelu, CUDNN_POINTWISE_GELU_FWD, 104)                                      \
  F(kModeGeluTanh, CUDNN_POINTWISE_GELU_APPROX_TANH_FWD, 107)
// clang-format on

#define RLFLOW_DECLARE(ours, theirs, value) inline constexpr int ours = value;
RLFLOW_GPU_CONSTANTS(RLFLOW_DECLARE)
RLFLOW_GRAPH_CONSTANTS(RLFLOW_DECLARE)
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
