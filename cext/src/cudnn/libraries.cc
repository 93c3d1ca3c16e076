#include "libraries.h"

#ifndef _WIN32
#include <dlfcn.h>
#endif

namespace rlflow::gpu {
namespace {

constexpr int kOldestDriver = 12000;
constexpr size_t kOldestCudnn = 90000;
const char* const kInstall = "install it with: pip install 'rlflow[gpu]' (or name its folder in RLFLOW_CUDA_PATH)";

#ifdef _WIN32
void* open_file(const std::string&) { return nullptr; }
void* find_symbol(void*, const char*) { return nullptr; }
#else
// Global, because cuDNN looks for cuBLASLt's and NVRTC's functions among what is open already.
void* open_file(const std::string& path) { return dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL); }
void* find_symbol(void* library, const char* name) { return dlsym(library, name); }
#endif

struct Search {
  const std::vector<std::string>& folders;
  bool system;

  void* open(const std::vector<std::string>& names, std::string* found) const {
    for (const std::string& folder : folders)
      for (const std::string& name : names)
        if (void* library = open_file(folder + "/" + name)) return *found = folder + "/" + name, library;
    if (system)
      for (const std::string& name : names)
        if (void* library = open_file(name)) return *found = name, library;
    return nullptr;
  }
};

std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }
std::string cudnn_text(size_t v) { return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100); }

template <class Function>
void bind(void* library, const char* library_name, const char* symbol, Function& function, std::vector<std::string>& problems) {
  function = reinterpret_cast<Function>(find_symbol(library, symbol));
  if (!function)
    problems.push_back(std::string(library_name) + " has no function " + symbol + ": another version of it is needed; " + kInstall + ".");
}

void check_driver(Libraries& l) {
  if (int status = l.api.cuInit(0); status != 0) {
    const char* text = nullptr;
    l.api.cuGetErrorString(status, &text);
    l.problems.push_back("The NVIDIA driver could not be started (cuInit: " + std::string(text ? text : "unknown error") +
                         "); expected a driver that sees a GPU.");
    return;
  }
  if (l.api.cuDriverGetVersion(&l.driver) != 0 || l.driver < kOldestDriver)
    l.problems.push_back("The NVIDIA driver supports CUDA " + version_text(l.driver) + ", expected " + version_text(kOldestDriver) +
                         " or newer: update the driver.");
  if (l.api.cuDeviceGetCount(&l.devices) != 0 || l.devices < 1)
    l.problems.push_back("The NVIDIA driver sees no GPU here; expected at least one (is it hidden by CUDA_VISIBLE_DEVICES?).");
}

}  // namespace

Libraries Libraries::load(const std::vector<std::string>& folders, bool system) {
  Libraries l;
#ifdef _WIN32
  l.problems.push_back("The cudnn back end runs on Linux alone.");
#else
  Search search{folders, system};
  l.found.resize(4);
#define RLFLOW_BIND(symbol, declared, result, arguments) bind(library, name, #symbol, l.api.symbol, l.problems);
  {
    const char* name = "libcuda.so.1";
    if (void* library = search.open({"libcuda.so.1"}, &l.found[0])) {
      RLFLOW_CUDA_API(RLFLOW_BIND)
      if (l.problems.empty()) check_driver(l);
    } else {
      l.problems.push_back("The NVIDIA driver is not installed here (libcuda.so.1 was not found); the cudnn back end needs it and a GPU.");
    }
  }
  {
    const char* name = "NVRTC";
    if (void* library = search.open({"libnvrtc.so.13", "libnvrtc.so.12"}, &l.found[1])) {
      RLFLOW_NVRTC_API(RLFLOW_BIND)
      if (l.api.nvrtcVersion) l.api.nvrtcVersion(&l.nvrtc_major, &l.nvrtc_minor);
    } else {
      l.problems.push_back(std::string("NVRTC (libnvrtc.so.13 or .12) was not found: ") + kInstall + ".");
    }
  }
  {
    const char* name = "cuBLASLt";
    if (void* library = search.open({"libcublasLt.so.13", "libcublasLt.so.12"}, &l.found[2])) {
      RLFLOW_CUBLAS_API(RLFLOW_BIND)
      if (l.api.cublasLtGetVersion) l.cublas = l.api.cublasLtGetVersion();
    } else {
      l.problems.push_back(std::string("cuBLASLt (libcublasLt.so.13 or .12) was not found: ") + kInstall + ".");
    }
  }
  std::string beside;  // parts of cuDNN call cuBLAS itself; where it is missing they say so
  search.open({"libcublas.so.13", "libcublas.so.12"}, &beside);
  {
    const char* name = "cuDNN";
    if (void* library = search.open({"libcudnn.so.9"}, &l.found[3])) {
      RLFLOW_CUDNN_API(RLFLOW_BIND)
      if (l.api.cudnnGetVersion) l.cudnn = l.api.cudnnGetVersion();
      if (l.api.cudnnGetVersion && l.cudnn < kOldestCudnn)
        l.problems.push_back("cuDNN is version " + cudnn_text(l.cudnn) + ", expected " + cudnn_text(kOldestCudnn) + " or newer: " + kInstall + ".");
    } else {
      l.problems.push_back(std::string("cuDNN (libcudnn.so.9) was not found: ") + kInstall + ".");
    }
  }
#undef RLFLOW_BIND
#endif
  return l;
}

}  // namespace rlflow::gpu
