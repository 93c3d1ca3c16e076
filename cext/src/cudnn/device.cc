#include "device.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

namespace rlflow::gpu {

Device::Device(const std::vector<std::string>& folders, bool system, int number) : libraries_(Libraries::load(folders, system)) {
  if (!libraries_.complete()) {
    std::string all;
    for (const std::string& problem : libraries_.problems) all += (all.empty() ? "" : " ") + problem;
    throw Failure(all);
  }
  if (number < 0 || number >= libraries_.devices)
    throw Failure("There is no GPU number " + std::to_string(number) + " here; the driver sees " + std::to_string(libraries_.devices) + ".");
  const Api& a = api();
  check(a.cuDeviceGet(&device_, number), "finding the GPU");
  char name[256] = {};
  check(a.cuDeviceGetName(name, sizeof name - 1, device_), "asking the GPU's name");
  facts_.name = name;
  check(a.cuDeviceGetAttribute(&facts_.major, kAttributeMajor, device_), "asking the GPU's generation");
  check(a.cuDeviceGetAttribute(&facts_.minor, kAttributeMinor, device_), "asking the GPU's generation");
  check(a.cuDeviceGetAttribute(&facts_.processors, kAttributeProcessors, device_), "asking for the GPU's multiprocessors");
  check(a.cuDeviceGetAttribute(&facts_.cache_bytes, kAttributeCacheBytes, device_), "asking for the GPU's cache");
  check(a.cuDeviceTotalMem_v2(&facts_.memory, device_), "asking for the GPU's memory");
  check(a.cuDevicePrimaryCtxRetain(&context_, device_), "opening the GPU");
  use();
  check(a.cuStreamCreate(&stream_, kStreamNonBlocking), "making a stream");
  check_cudnn(a.cudnnCreate(&cudnn_), "starting cuDNN");
  check_cudnn(a.cudnnSetStream(cudnn_, stream_), "giving cuDNN a stream");
  check_cublas(a.cublasLtCreate(&cublas_), "starting cuBLASLt");
}

Device::~Device() {
  if (!context_) return;
  const Api& a = api();
  a.cuCtxSetCurrent(context_);
  if (stream_) a.cuStreamSynchronize(stream_);
  for (void* module : modules_) a.cuModuleUnload(module);
  if (cublas_) a.cublasLtDestroy(cublas_);
  if (cudnn_) a.cudnnDestroy(cudnn_);
  if (stream_) a.cuStreamDestroy_v2(stream_);
  a.cuDevicePrimaryCtxRelease_v2(device_);
}

void Device::use() const { check(api().cuCtxSetCurrent(context_), "choosing the GPU"); }
void Device::synchronize() const { check(api().cuStreamSynchronize(stream_), "waiting for the GPU"); }

void Device::finish_copies() const { check(api().cuStreamSynchronize(nullptr), "waiting for copies"); }

void Device::check(int status, const char* what) const {
  if (status == 0) return;
  const char* text = nullptr;
  api().cuGetErrorString(status, &text);
  throw Failure(std::string("The CUDA driver failed while ") + what + ": " + (text ? text : "error " + std::to_string(status)) + ".");
}
void Device::check_cudnn(int status, const char* what) const {
  if (status != 0) throw Failure(dnn_error(api(), status, what));
}
void Device::check_cublas(int status, const char* what) const {
  if (status != 0) throw Failure(std::string("cuBLASLt failed while ") + what + ": " + api().cublasLtGetStatusString(status) + ".");
}

std::string Device::binary_of(const Kernel& kernel, const std::string& source) const {
  const Api& a = api();
  void* program = nullptr;
  auto done = [&](int status, const char* what) {
    if (status != 0) throw Failure(std::string("NVRTC failed while ") + what + ": " + a.nvrtcGetErrorString(status) + ".");
  };
  done(a.nvrtcCreateProgram(&program, source.c_str(), kernel.name, 0, nullptr, nullptr), "reading a kernel");
  struct Closing {
    const Api& a;
    void** program;
    ~Closing() { a.nvrtcDestroyProgram(program); }
  } closing{a, &program};
  std::string target = "-arch=sm_" + std::to_string(facts_.major) + std::to_string(facts_.minor);
  const char* options[] = {target.c_str(), "-std=c++17"};
  if (a.nvrtcCompileProgram(program, 2, options) != 0) {
    size_t size = 0;
    std::string log;
    if (a.nvrtcGetProgramLogSize(program, &size) == 0 && size > 1) {
      log.resize(size);
      a.nvrtcGetProgramLog(program, log.data());
    }
    throw Failure(std::string("NVRTC refused the kernel ") + kernel.name + " for " + target + ": " + log.substr(0, 600));
  }
  size_t size = 0;
  done(a.nvrtcGetCUBINSize(program, &size), "compiling a kernel");
  std::string binary(size, '\0');
  done(a.nvrtcGetCUBIN(program, binary.data()), "compiling a kernel");
  return binary;
}

const Kernel* Device::kernel(const char* name, const long long* fixed, size_t count) {
  const auto [at, is_new] = kernels_.try_emplace(kernel_source(name, fixed, count), Kernel{name, nullptr});
  if (is_new) waiting_.push_back(&*at);
  return &at->second;
}

void Device::compile() {
  constexpr size_t kMostThreads = 16;
  const std::vector<std::map<std::string, Kernel>::value_type*> all = std::exchange(waiting_, {});
  std::vector<std::string> binaries(all.size()), refusals(all.size());
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i = next++; i < all.size(); i = next++) {
      try {
        binaries[i] = binary_of(all[i]->second, all[i]->first);
      } catch (const std::exception& failure) {
        refusals[i] = failure.what();
      }
    }
  };
  const size_t count = std::min({all.size(), kMostThreads, static_cast<size_t>(std::max(std::thread::hardware_concurrency(), 1u))});
  std::vector<std::thread> others;
  for (size_t k = 1; k < count; ++k) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  for (size_t i = 0; i < all.size(); ++i) {
    Kernel& made = all[i]->second;
    try {
      if (!refusals[i].empty()) throw Failure(refusals[i]);
      void* module = nullptr;
      check(api().cuModuleLoadData(&module, binaries[i].data()), "loading a kernel");
      modules_.push_back(module);
      check(api().cuModuleGetFunction(&made.function, module, "kernel"), "finding a kernel");
    } catch (...) {  // whoever wants one of the rest is to compile it
      for (size_t k = i; k < all.size(); ++k) kernels_.erase(all[k]->first);
      throw;
    }
  }
}

Memory::Memory(const Device& device, size_t bytes) : device_(&device), bytes_(bytes) {
  if (bytes) device.check(device.api().cuMemAlloc_v2(&start_, bytes), ("taking " + std::to_string(bytes >> 20) + " MB of its memory").c_str());
}
Memory::~Memory() {
  if (start_) device_->api().cuMemFree_v2(start_);
}
Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(start_, other.start_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Event::Event(const Device& device) : device_(device) { device.check(device.api().cuEventCreate(&handle_, 0), "making an event"); }
Event::~Event() { device_.api().cuEventDestroy_v2(handle_); }
void Event::record() const { device_.check(device_.api().cuEventRecord(handle_, device_.stream()), "recording an event"); }
float Event::ms_since(const Event& earlier) const {
  float ms = 0;
  device_.check(device_.api().cuEventSynchronize(handle_), "waiting for an event");
  device_.check(device_.api().cuEventElapsedTime(&ms, earlier.handle_, handle_), "reading the clock");
  return ms;
}

void Replay::begin() const { device_->check(device_->api().cuStreamBeginCapture_v2(device_->stream(), kCaptureRelaxed), "beginning a capture"); }
void Replay::abandon() const {
  void* graph = nullptr;
  device_->api().cuStreamEndCapture(device_->stream(), &graph);
  if (graph) device_->api().cuGraphDestroy(graph);
}
void Replay::end() {
  void* graph = nullptr;
  device_->check(device_->api().cuStreamEndCapture(device_->stream(), &graph), "ending a capture");
  int status = device_->api().cuGraphInstantiateWithFlags(&exec_, graph, 0);
  device_->api().cuGraphDestroy(graph);
  device_->check(status, "preparing a captured graph");
}
void Replay::launch() const { device_->check(device_->api().cuGraphLaunch(exec_, device_->stream()), "replaying a graph"); }
Replay::~Replay() {
  if (exec_) device_->api().cuGraphExecDestroy(exec_);
}
Replay& Replay::operator=(Replay&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(exec_, other.exec_);
  return *this;
}

}  // namespace rlflow::gpu
