// What the custom operators use of ONNX Runtime's C interface, declared here so that no header is needed to build.
//
// Two things of it are stable. The table OrtApi is append-only: an entry keeps its position for ever, so a position and
// a signature are all that is needed. And a custom operator says in its first field which version of the struct
// OrtCustomOp it was written for; the runtime reads no field that a later version added.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(_WIN32)
#define RLFLOW_ORT_CALL __stdcall
#else
#define RLFLOW_ORT_CALL
#endif

namespace rlflow::ort {

// Opaque; only pointers to them are passed around.
struct Status;
struct SessionOptions;
struct CustomOpDomain;
struct KernelInfo;
struct KernelContext;
struct Value;
struct TensorInfo;

// The newest entry that is used, KernelContext_ParallelFor, came with version 1.17.
inline constexpr uint32_t kVersion = 17;

struct ApiBase {
  const void*(RLFLOW_ORT_CALL* get_api)(uint32_t version);
  const char*(RLFLOW_ORT_CALL* version_string)();
};

// An entry of OrtApi: its position and its type. All return a status, null where all went well, unless said.
template <std::size_t POSITION, class... Arguments>
struct Entry {
  using Function = Status*(RLFLOW_ORT_CALL*)(Arguments...);
  static Function in(const void* api) { return reinterpret_cast<Function>(static_cast<void* const*>(api)[POSITION]); }
};

using CreateStatus = Entry<0, int /*code*/, const char* /*message*/>;  // returns the new status
using CreateCustomOpDomain = Entry<26, const char*, CustomOpDomain**>;
using CustomOpDomainAdd = Entry<27, CustomOpDomain*, const struct CustomOp*>;
using AddCustomOpDomain = Entry<28, SessionOptions*, CustomOpDomain*>;
using GetTensorMutableData = Entry<51, Value*, void**>;
using GetTensorElementType = Entry<60, const TensorInfo*, int*>;
using GetDimensionsCount = Entry<61, const TensorInfo*, std::size_t*>;
using GetDimensions = Entry<62, const TensorInfo*, int64_t*, std::size_t>;
using GetTensorTypeAndShape = Entry<65, const Value*, TensorInfo**>;
using GetFloatAttribute = Entry<85, const KernelInfo*, const char*, float*>;
using GetIntAttribute = Entry<86, const KernelInfo*, const char*, int64_t*>;
using GetStringAttribute = Entry<87, const KernelInfo*, const char*, char*, std::size_t*>;
using KernelContextGetInput = Entry<90, const KernelContext*, std::size_t, const Value**>;
using KernelContextGetOutput = Entry<91, KernelContext*, std::size_t, const int64_t*, std::size_t, Value**>;
using GetFloatsAttribute = Entry<162, const KernelInfo*, const char*, float*, std::size_t*>;
using GetIntsAttribute = Entry<163, const KernelInfo*, const char*, int64_t*, std::size_t*>;
using GetSessionConfigEntry = Entry<238, const SessionOptions*, const char*, char*, std::size_t*>;
using GetConstantInput = Entry<249, const KernelInfo*, std::size_t, int*, const Value**>;
using ParallelFor = Entry<274, const KernelContext*, void (*)(void*, std::size_t), std::size_t /*total*/, std::size_t /*batches*/, void*>;

// These return nothing.
inline void release_status(const void* api, Status* status) {
  reinterpret_cast<void(RLFLOW_ORT_CALL*)(Status*)>(static_cast<void* const*>(api)[93])(status);
}
inline void release_tensor_info(const void* api, TensorInfo* info) {
  reinterpret_cast<void(RLFLOW_ORT_CALL*)(TensorInfo*)>(static_cast<void* const*>(api)[99])(info);
}
inline void release_domain(const void* api, CustomOpDomain* domain) {
  reinterpret_cast<void(RLFLOW_ORT_CALL*)(CustomOpDomain*)>(static_cast<void* const*>(api)[101])(domain);
}
inline const char* message_of(const void* api, const Status* status) {
  return reinterpret_cast<const char*(RLFLOW_ORT_CALL*)(const Status*)>(static_cast<void* const*>(api)[2])(status);
}

inline constexpr int kFail = 1, kInvalidArgument = 2;  // OrtErrorCode
inline constexpr int kFloat = 1;                       // ONNXTensorElementDataType
inline constexpr int kRequired = 0, kOptional = 1;     // OrtCustomOpInputOutputCharacteristic

// OrtCustomOp as of version 17, field by field.
struct CustomOp {
  uint32_t version;
  void*(RLFLOW_ORT_CALL* create_kernel)(const CustomOp*, const void* api, const KernelInfo*);  // before version 16
  const char*(RLFLOW_ORT_CALL* name)(const CustomOp*);
  const char*(RLFLOW_ORT_CALL* provider)(const CustomOp*);  // null: the processor
  int(RLFLOW_ORT_CALL* input_type)(const CustomOp*, std::size_t);
  std::size_t(RLFLOW_ORT_CALL* inputs)(const CustomOp*);
  int(RLFLOW_ORT_CALL* output_type)(const CustomOp*, std::size_t);
  std::size_t(RLFLOW_ORT_CALL* outputs)(const CustomOp*);
  void(RLFLOW_ORT_CALL* compute)(void* kernel, KernelContext*);  // before version 16
  void(RLFLOW_ORT_CALL* destroy)(void* kernel);
  int(RLFLOW_ORT_CALL* input_kind)(const CustomOp*, std::size_t);
  int(RLFLOW_ORT_CALL* output_kind)(const CustomOp*, std::size_t);
  int(RLFLOW_ORT_CALL* input_memory)(const CustomOp*, std::size_t);
  int(RLFLOW_ORT_CALL* variadic_input_least)(const CustomOp*);
  int(RLFLOW_ORT_CALL* variadic_input_same)(const CustomOp*);
  int(RLFLOW_ORT_CALL* variadic_output_least)(const CustomOp*);
  int(RLFLOW_ORT_CALL* variadic_output_same)(const CustomOp*);
  Status*(RLFLOW_ORT_CALL* create_kernel_v2)(const CustomOp*, const void* api, const KernelInfo*, void** kernel);
  Status*(RLFLOW_ORT_CALL* compute_v2)(void* kernel, KernelContext*);
  Status*(RLFLOW_ORT_CALL* infer_shapes)(const CustomOp*, void* context);
  int(RLFLOW_ORT_CALL* first_version)(const CustomOp*);
  int(RLFLOW_ORT_CALL* last_version)(const CustomOp*);
};

}  // namespace rlflow::ort
