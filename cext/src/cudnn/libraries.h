// Finds and opens the driver, NVRTC, cuBLASLt and cuDNN while the program runs; says in sentences what is missing.
#pragma once
#include <string>
#include <vector>

#include "api.h"

namespace rlflow::gpu {

struct Libraries {
  Api api;
  std::vector<std::string> problems;     // a sentence each; empty where everything is there
  std::vector<std::string> found;        // path or name of what was opened, in the order of kWanted
  int driver = 0;                        // CUDA version that the driver supports: 13000 is 13.0
  int nvrtc_major = 0, nvrtc_minor = 0;
  size_t cudnn = 0;                      // 90800 is 9.8.0
  size_t cublas = 0;                     // 130100 is 13.1.0
  int devices = 0;

  // Looks in `folders` first and then, if `system`, where the system's loader looks. Opened libraries stay open.
  static Libraries load(const std::vector<std::string>& folders, bool system);
  bool complete() const { return problems.empty(); }
};

}  // namespace rlflow::gpu
