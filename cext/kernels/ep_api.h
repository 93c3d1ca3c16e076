// What the plug-in execution provider uses of ONNX Runtime's C interface, declared here as in ort_api.h: positions in the
// append-only tables OrtApi and OrtEpApi, and the structs that a provider fills in. Each struct says in its first field
// for which version it was written, and the runtime reads no field that a later version added.
#pragma once
#include "ort_api.h"

namespace rlflow::ort {

// Opaque; only pointers to them are passed around.
struct Allocator;
struct DataTransfer;
struct Environment;
struct EpDevice;
struct Graph;
struct HardwareDevice;
struct KeyValuePairs;
struct Logger;
struct MemoryDevice;
struct MemoryInfo;
struct Metadata;
struct Node;
struct NodeContext;
struct RunOptions;
struct Session;
struct SupportInfo;
struct SyncStream;
struct TypeInfo;
struct ValueInfo;

// Plug-in providers came with version 1.22, and what they compile with 1.23.
inline constexpr uint32_t kProviderVersion = 23;

using CreateEnvironment = Entry<3, int /*severity*/, const char* /*name*/, Environment**>;
using CreateSession = Entry<7, const Environment*, const char* /*path*/, const SessionOptions*, Session**>;
using Run = Entry<9, Session*, const RunOptions*, const char* const*, const Value* const*, std::size_t, const char* const*, std::size_t, Value**>;
using SetOptimizedModelPath = Entry<11, SessionOptions*, const char*>;
using CloneSessionOptions = Entry<12, const SessionOptions*, SessionOptions**>;
using DisableProfiling = Entry<15, SessionOptions*>;
using SetOptimizationLevel = Entry<23, SessionOptions*, int>;
using SessionInputCount = Entry<30, const Session*, std::size_t*>;
using SessionOutputCount = Entry<31, const Session*, std::size_t*>;
using SessionOverridableCount = Entry<32, const Session*, std::size_t*>;
using SessionInputName = Entry<36, const Session*, std::size_t, Allocator*, char**>;
using SessionOutputName = Entry<37, const Session*, std::size_t, Allocator*, char**>;
using SessionOverridableName = Entry<38, const Session*, std::size_t, Allocator*, char**>;
using CastToTensorInfo = Entry<55, const TypeInfo*, const TensorInfo**>;
using GetSymbolicDimensions = Entry<63, const TensorInfo*, const char**, std::size_t>;
using AllocatorFree = Entry<76, Allocator*, void*>;
using DefaultAllocator = Entry<78, Allocator**>;
using SessionMetadata = Entry<111, const Session*, Metadata**>;
using MetadataEntry = Entry<116, const Metadata*, Allocator*, const char* /*key*/, char**>;
using AddSessionConfigEntry = Entry<130, SessionOptions*, const char*, const char*>;
using LogMessage = Entry<247, const Logger*, int /*severity*/, const char*, const char* /*file*/, int /*line*/, const char* /*function*/>;
using ValueInfoName = Entry<289, const ValueInfo*, const char**>;
using ValueInfoType = Entry<290, const ValueInfo*, const TypeInfo**>;
using TensorBytes = Entry<318, const Value*, std::size_t*>;
using ConsumerCount = Entry<324, const ValueInfo*, std::size_t*>;
using IsFromOuterScope = Entry<332, const ValueInfo*, bool*>;
using GraphModelPath = Entry<334, const Graph*, const char**>;
using GraphInputCount = Entry<338, const Graph*, std::size_t*>;
using GraphInputs = Entry<339, const Graph*, const ValueInfo**, std::size_t>;
using GraphOutputCount = Entry<340, const Graph*, std::size_t*>;
using GraphOutputs = Entry<341, const Graph*, const ValueInfo**, std::size_t>;
using GraphNodeCount = Entry<344, const Graph*, std::size_t*>;
using GraphNodes = Entry<345, const Graph*, const Node**, std::size_t>;
using GraphParent = Entry<346, const Graph*, const Node**>;
using NodeInputCount = Entry<353, const Node*, std::size_t*>;
using NodeInputs = Entry<354, const Node*, const ValueInfo**, std::size_t>;
using NodeOutputCount = Entry<355, const Node*, std::size_t*>;
using NodeOutputs = Entry<356, const Node*, const ValueInfo**, std::size_t>;
using NodeProvider = Entry<368, const Node*, const char**>;

struct FusionOptions {
  uint32_t version;
  bool drop_constants;  // the runtime need not keep them for the fused node
};

// Of OrtEpApi.
struct Factory;
using CreateEpDevice = Entry<0, Factory*, const HardwareDevice*, const KeyValuePairs*, const KeyValuePairs*, EpDevice**>;
using AddNodesToFuse = Entry<2, SupportInfo*, const Node* const*, std::size_t, const FusionOptions*>;

// These return nothing, or what they are asked for.
inline void release_environment(const void* api, Environment* one) {
  reinterpret_cast<void(RLFLOW_ORT_CALL*)(Environment*)>(static_cast<void* const*>(api)[92])(one);
}
inline void release_session(const void* api, Session* one) {
  reinterpret_cast<void(RLFLOW_ORT_CALL*)(Session*)>(static_cast<void* const*>(api)[95])(one);
}
inline void release_value(const void* api, Value* one) { reinterpret_cast<void(RLFLOW_ORT_CALL*)(Value*)>(static_cast<void* const*>(api)[96])(one); }
inline void release_session_options(const void* api, SessionOptions* one) {
  reinterpret_cast<void(RLFLOW_ORT_CALL*)(SessionOptions*)>(static_cast<void* const*>(api)[100])(one);
}
inline void release_metadata(const void* api, Metadata* one) {
  reinterpret_cast<void(RLFLOW_ORT_CALL*)(Metadata*)>(static_cast<void* const*>(api)[118])(one);
}
inline int device_type(const void* api, const HardwareDevice* device) {
  return reinterpret_cast<int(RLFLOW_ORT_CALL*)(const HardwareDevice*)>(static_cast<void* const*>(api)[307])(device);
}
inline const void* ep_api(const void* api) { return reinterpret_cast<const void*(RLFLOW_ORT_CALL*)()>(static_cast<void* const*>(api)[317])(); }

inline constexpr int kProcessor = 0;       // OrtHardwareDeviceType
inline constexpr int kWarning = 2;         // OrtLoggingLevel
inline constexpr int kNoOptimization = 0;  // GraphOptimizationLevel
inline constexpr int kString = 8;          // ONNXTensorElementDataType

// OrtNodeComputeInfo.
struct ComputeInfo {
  uint32_t version;
  Status*(RLFLOW_ORT_CALL* create_state)(ComputeInfo*, NodeContext*, void** state);
  Status*(RLFLOW_ORT_CALL* compute)(ComputeInfo*, void* state, KernelContext*);
  void(RLFLOW_ORT_CALL* release_state)(ComputeInfo*, void* state);
};

// OrtEp as of version 23, field by field. Those without a type are functions that may be missing, and are.
struct Ep {
  uint32_t version;
  const char*(RLFLOW_ORT_CALL* name)(const Ep*);
  Status*(RLFLOW_ORT_CALL* capability)(Ep*, const Graph*, SupportInfo*);
  Status*(RLFLOW_ORT_CALL* compile)(Ep*, const Graph**, const Node** fused, std::size_t count, ComputeInfo**, Node** contexts);
  void(RLFLOW_ORT_CALL* release_compute_infos)(Ep*, ComputeInfo**, std::size_t);
  void* layout[2];
  void* dynamic_options;
  Status*(RLFLOW_ORT_CALL* run_starts)(Ep*, const RunOptions*);
  Status*(RLFLOW_ORT_CALL* run_ends)(Ep*, const RunOptions*, bool synchronise);
  void* allocator;
  void* stream;
  void* compatibility;
};

// OrtEpFactory as of version 23.
struct Factory {
  uint32_t version;
  const char*(RLFLOW_ORT_CALL* name)(const Factory*);
  const char*(RLFLOW_ORT_CALL* vendor)(const Factory*);
  Status*(RLFLOW_ORT_CALL* devices)(Factory*, const HardwareDevice* const*, std::size_t, EpDevice**, std::size_t most, std::size_t* count);
  Status*(RLFLOW_ORT_CALL* create)(Factory*, const HardwareDevice* const*, const KeyValuePairs* const*, std::size_t, const SessionOptions*,
                                   const Logger*, Ep**);
  void(RLFLOW_ORT_CALL* release)(Factory*, Ep*);
  uint32_t(RLFLOW_ORT_CALL* vendor_id)(const Factory*);
  const char*(RLFLOW_ORT_CALL* version_text)(const Factory*);
  Status*(RLFLOW_ORT_CALL* compatibility)(Factory*, const HardwareDevice* const*, std::size_t, const char*, int*);
  Status*(RLFLOW_ORT_CALL* create_allocator)(Factory*, const MemoryInfo*, const KeyValuePairs*, Allocator**);
  void(RLFLOW_ORT_CALL* release_allocator)(Factory*, Allocator*);
  Status*(RLFLOW_ORT_CALL* create_data_transfer)(Factory*, DataTransfer**);
  bool(RLFLOW_ORT_CALL* has_streams)(const Factory*);
  Status*(RLFLOW_ORT_CALL* create_stream)(Factory*, const MemoryDevice*, const KeyValuePairs*, SyncStream**);
};

}  // namespace rlflow::ort
