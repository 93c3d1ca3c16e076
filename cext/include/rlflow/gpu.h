// Runs and times graphs on an NVIDIA GPU with cuDNN, cuBLASLt and kernels of our own. Everything of NVIDIA's is loaded while the program
// runs; nothing here needs their headers. Errors are std::runtime_error with a sentence.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rlflow/graph.h"

namespace rlflow::gpu {

class Device;

// What is missing here, a sentence each; empty where nothing is. `folders` are searched before the system's own places.
std::vector<std::string> problems(const std::vector<std::string>& folders, bool system);
std::shared_ptr<Device> open_device(const std::vector<std::string>& folders, bool system, int number);

struct DeviceReport {
  std::string name, architecture, cudnn, cublas, driver, nvrtc;
  int processors = 0;
  size_t memory = 0, cache = 0;
  std::vector<std::string> libraries;
};
DeviceReport report(const Device& device);

// float32: exact float32 products. tf32: products of float32 tensors may round their operands to 10 bits of mantissa. float16 and
// bfloat16: float32 tensors are stored and multiplied in 16 bits, summed in float32.
enum class Precision { kFloat32, kTf32, kFloat16, kBFloat16 };
int storage_dtype(int dtype, Precision precision);              // ONNX element type in which a tensor lies in the GPU's memory

struct Settings {
  Precision precision = Precision::kFloat32;
  size_t workspace = size_t{256} << 20;                         // the most that a routine may take beside its operands, in bytes
  size_t rotate = 0;                                            // repeated runs read fresh copies of the constants, so many bytes together
  bool tune = true;                                             // time alternatives; else the first that runs is taken
  std::string fusion = "generic";
};

// A graph ready to run. All dimensions must be numbers.
class Executable {
 public:
  // `constants`: for each constant value that work or outputs read, its elements in their storage type, row-major.
  Executable(std::shared_ptr<Device> device, GraphPtr graph, const std::vector<std::pair<ValueId, std::string>>& constants, const Settings& settings);
  ~Executable();
  Executable(Executable&&) noexcept;

  size_t input_bytes(size_t index) const;
  size_t output_bytes(size_t index) const;
  void set_input(size_t index, const void* data);
  void get_output(size_t index, void* data) const;
  void prepare();                                               // chooses among alternatives, with the inputs at hand; captures
  void run();                                                   // once, and waits
  // Milliseconds per run, one entry a sample, between events on the GPU: a captured chain of runs, replayed. Warmed up first.
  std::vector<double> time(int samples, double least_ms);
  std::vector<std::pair<std::string, double>> profile(int samples);   // of each step: what it is, median ms
  std::vector<std::string> steps() const;
  size_t memory() const;                                        // bytes taken on the GPU

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rlflow::gpu
