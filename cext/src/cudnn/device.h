// One GPU: its context, a stream, handles of cuDNN and cuBLASLt, compiled kernels. Errors are std::runtime_error with a sentence.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels.h"
#include "libraries.h"
#include "operation_graph.h"

namespace rlflow::gpu {

struct DeviceFacts {
  std::string name;
  int major = 0, minor = 0, processors = 0, cache_bytes = 0;
  size_t memory = 0;
};

struct Kernel {
  const char* name = nullptr;
  void* function = nullptr;                                     // none before it is compiled
};

class Device {
 public:
  Device(const std::vector<std::string>& folders, bool system, int number);  // throws Failure with the loader's sentences
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Api& api() const { return libraries_.api; }
  const Libraries& libraries() const { return libraries_; }
  const DeviceFacts& facts() const { return facts_; }
  void* stream() const { return stream_; }
  void* cudnn() const { return cudnn_; }
  void* cublas() const { return cublas_; }
  DnnTarget dnn() const { return {&api(), cudnn_, nullptr}; }

  void use() const;                                             // makes the context current in this thread
  void synchronize() const;
  // A copy from ordinary memory may return before it has arrived, and our stream does not wait for the one it runs on.
  void finish_copies() const;
  void check(int status, const char* what) const;               // driver
  void check_cudnn(int status, const char* what) const;
  void check_cublas(int status, const char* what) const;
  // A kernel with these constants, `count` long longs. It can be launched after `compile`.
  const Kernel* kernel(const char* name, const long long* fixed, size_t count);
  void compile();                                               // all kernels that are not yet, side by side: each takes 50 ms

 private:
  std::string binary_of(const Kernel& kernel, const std::string& source) const;
  Libraries libraries_;
  DeviceFacts facts_;
  int device_ = 0;
  void *context_ = nullptr, *stream_ = nullptr, *cudnn_ = nullptr, *cublas_ = nullptr;
  std::map<std::string, Kernel> kernels_;                       // by source
  std::vector<std::map<std::string, Kernel>::value_type*> waiting_;
  std::vector<void*> modules_;
};

class Memory {                                                  // device memory that belongs to its holder
 public:
  Memory() = default;
  Memory(const Device& device, size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept;
  DevicePtr at(size_t offset = 0) const { return start_ + offset; }
  size_t bytes() const { return bytes_; }

 private:
  const Device* device_ = nullptr;
  DevicePtr start_ = 0;
  size_t bytes_ = 0;
};

class Event {
 public:
  explicit Event(const Device& device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() const;
  float ms_since(const Event& earlier) const;                   // waits for this one

 private:
  const Device& device_;
  void* handle_ = nullptr;
};

// What `record` put on the stream, to be run again at once.
class Replay {
 public:
  Replay() = default;
  template <class Record>
  Replay(const Device& device, Record record) : device_(&device) {
    begin();
    try {
      record();
    } catch (...) {
      abandon();
      throw;
    }
    end();
  }
  ~Replay();
  Replay(Replay&& other) noexcept { *this = std::move(other); }
  Replay& operator=(Replay&& other) noexcept;
  void launch() const;
  explicit operator bool() const { return exec_ != nullptr; }

 private:
  void begin() const;
  void abandon() const;
  void end();
  const Device* device_ = nullptr;
  void* exec_ = nullptr;
};

}  // namespace rlflow::gpu
