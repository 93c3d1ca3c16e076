// ---- the driver and NVRTC
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "common.h"
#include "kernels.h"

namespace fake {
namespace {

struct Step {
  double us;
  Work work;
};
// A captured graph that can be launched. What it computes is the same each time while nothing else writes, so that of many launches in a
// row the first few compute, and the others take their time by the clock alone.
struct Executable {
  std::vector<Step> steps;
  long long writes = -1;  // of others, when it was last launched
  int computed = 0;       // launches since then
};
constexpr int kComputed = 4;

double now_us = 0;
std::vector<Step>* captured = nullptr;
long long live_bytes = 0, launches = 0, writes = 0;
std::map<DevicePtr, size_t> sizes;
std::string fault;                           // of the last kernel that failed
constexpr int kLaunchFailed = 719;           // CUDA_ERROR_LAUNCH_FAILED
const std::map<std::string, double> kMicroseconds = {{"Pointwise", 4},   {"Transposition", 3}, {"Reducing", 4},  {"Softening", 4},
                                                     {"Normalising", 4}, {"Gathering", 4},     {"Joining", 4},   {"Remapping", 4}, {"Pooling", 6}};

int status_of(const Step& step) {
  now_us += step.us;
  std::string said = step.work();
  if (said.empty()) return 0;
  return fault = said, kLaunchFailed;
}

}  // namespace

int enqueue(double us, Work work) {
  if (captured) return captured->push_back({us, std::move(work)}), 0;
  return ++writes, status_of({us, std::move(work)});
}
int enqueue_routine(double us, std::function<void()> routine) {
  return enqueue(us, [=] { return host::guarded(routine); });
}

int setting(const char* name, int usual) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : usual;
}

namespace {
long long kind_of(int type) {
  return type == kDnnFloat ? host::kF32 : type == kDnnHalf ? host::kF16 : type == kDnnBFloat16 ? host::kBF16 : host::kF64;
}
}  // namespace
double get(const void* p, int type, int64_t i) { return host::load<double>(p, kind_of(type), i); }
void put(void* p, int type, int64_t i, double v) { host::store<double>(p, kind_of(type), i, v); }

}  // namespace fake

API int cuInit(unsigned) { return setting("RLFLOW_FAKE_DEVICES", 1) < 0 ? 100 : 0; }
API int cuDriverGetVersion(int* v) { return *v = setting("RLFLOW_FAKE_DRIVER", 13000), 0; }
API int cuGetErrorString(int status, const char** text) {
  return *text = status == kLaunchFailed ? fault.c_str() : status == 2 ? "out of memory" : "no CUDA-capable device is detected", 0;
}
API int cuDeviceGetCount(int* n) { return *n = setting("RLFLOW_FAKE_DEVICES", 1), 0; }
API int cuDeviceGet(int* d, int n) { return *d = n, 0; }
API int cuDeviceGetName(char* name, int size, int) { return std::strncpy(name, "Fake GPU", static_cast<size_t>(size)), 0; }
API int cuDeviceGetAttribute(int* v, int which, int) {
  *v = which == kAttributeProcessors ? 4 : which == kAttributeCacheBytes ? 1 << 20 : which == kAttributeMajor ? 9 : 0;
  return 0;
}
API int cuDeviceTotalMem_v2(size_t* n, int) { return *n = size_t{1} << 30, 0; }
API int cuDevicePrimaryCtxRetain(void** c, int) { return *c = &now_us, 0; }
API int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
API int cuCtxSetCurrent(void*) { return 0; }
API int cuMemAlloc_v2(DevicePtr* p, size_t n) {
  if (live_bytes + static_cast<long long>(n) > 1ll << 30) return 2;
  *p = reinterpret_cast<DevicePtr>(host::take((n + 255) / 256 * 256, true));  // reads of what was never written give NaN
  sizes[*p] = n;
  live_bytes += static_cast<long long>(n);
  return 0;
}
API int cuMemFree_v2(DevicePtr p) {
  live_bytes -= static_cast<long long>(sizes[p]);
  sizes.erase(p);
  return host::give(reinterpret_cast<void*>(p)), 0;
}
API int cuMemGetInfo_v2(size_t* a, size_t* b) { return *a = *b = size_t{1} << 30, 0; }
API int cuMemcpyHtoD_v2(DevicePtr to, const void* from, size_t n) { return ++writes, std::memcpy(reinterpret_cast<void*>(to), from, n), 0; }
API int cuMemcpyDtoH_v2(void* to, DevicePtr from, size_t n) { return std::memcpy(to, reinterpret_cast<void*>(from), n), 0; }
API int cuMemcpyDtoDAsync_v2(DevicePtr to, DevicePtr from, size_t n, void*) {
  return submit(1, [=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n); });
}
API int cuMemsetD8Async(DevicePtr to, unsigned char v, size_t n, void*) {
  return submit(1, [=] { std::memset(reinterpret_cast<void*>(to), v, n); });
}
API int cuStreamCreate(void** s, unsigned) { return *s = &captured, 0; }
API int cuStreamDestroy_v2(void*) { return 0; }
API int cuStreamSynchronize(void*) { return captured ? 900 : 0; }
API int cuStreamBeginCapture_v2(void*, int) { return captured = new std::vector<Step>, 0; }
API int cuStreamEndCapture(void*, void** graph) { return *graph = std::exchange(captured, nullptr), 0; }
API int cuEventCreate(void** e, unsigned) { return *e = new double(0), 0; }
API int cuEventDestroy_v2(void* e) { return delete static_cast<double*>(e), 0; }
API int cuEventRecord(void* e, void*) { return *static_cast<double*>(e) = now_us, 0; }
API int cuEventSynchronize(void*) { return 0; }
API int cuEventElapsedTime(float* ms, void* a, void* b) {
  return *ms = static_cast<float>((*static_cast<double*>(b) - *static_cast<double*>(a)) / 1000), 0;
}
API int cuModuleLoadData(void** m, const void* image) { return *m = new std::string(static_cast<const char*>(image)), 0; }
API int cuModuleUnload(void* m) { return delete static_cast<std::string*>(m), 0; }
API int cuModuleGetFunction(void** f, void* m, const char*) { return *f = m, 0; }
API int cuLaunchKernel(void* f, unsigned grid, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned, void*, void** a, void**) {
  const std::string name = *static_cast<std::string*>(f);
  auto cost = kMicroseconds.find(name);
  if (cost == kMicroseconds.end()) return 98;
  const host::Pointers pointers = *static_cast<host::Pointers*>(a[0]);
  const auto* fixed = static_cast<const long long*>(a[1]);      // outlives the capture, as the text's constants do
  return submit(cost->second, [=] {
    const char* asked = std::getenv("RLFLOW_FAKE_ORDER");
    return host::launch(name, fixed, &pointers, grid, threads, asked ? asked : std::to_string(++launches));
  });
}
API int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  return *exec = new Executable{*static_cast<std::vector<Step>*>(graph)}, 0;
}
API int cuGraphLaunch(void* exec, void*) {
  auto& graph = *static_cast<Executable*>(exec);
  now_us += 2;
  if (graph.writes != writes) graph.writes = ++writes, graph.computed = 0;
  const bool computes = graph.computed++ < kComputed;
  for (const Step& step : graph.steps) {
    if (!computes) now_us += step.us;
    else if (int status = status_of(step)) return status;
  }
  return 0;
}
API int cuGraphExecDestroy(void* e) { return delete static_cast<Executable*>(e), 0; }
API int cuGraphDestroy(void* g) { return delete static_cast<std::vector<Step>*>(g), 0; }
API long long fake_live_bytes() { return live_bytes; }

// ---- NVRTC: the "binary" is the kernel's name
API int nvrtcVersion(int* a, int* b) { return *a = 13, *b = 0, 0; }
API const char* nvrtcGetErrorString(int) { return "failed"; }
API int nvrtcCreateProgram(void** p, const char* source, const char* name, int, const char* const*, const char* const*) {
  if (!std::strstr(source, "run(p, fixed)")) return 1;
  return *p = new std::string(name), 0;
}
API int nvrtcCompileProgram(void*, int n, const char* const* options) { return n == 2 && !std::strcmp(options[0], "-arch=sm_90") ? 0 : 6; }
API int nvrtcDestroyProgram(void** p) { return delete static_cast<std::string*>(*p), 0; }
API int nvrtcGetCUBINSize(void* p, size_t* n) { return *n = static_cast<std::string*>(p)->size() + 1, 0; }
API int nvrtcGetCUBIN(void* p, char* out) { return std::strcpy(out, static_cast<std::string*>(p)->c_str()), 0; }
API int nvrtcGetProgramLogSize(void*, size_t* n) { return *n = 1, 0; }
API int nvrtcGetProgramLog(void*, char* out) { return *out = 0, 0; }
