// Who does the tasks of a kernel: the runtime's threads, or those of a test.
#pragma once
#include <cstddef>

namespace rlflow::kernels {

// Runs `tasks` tasks, in any order, perhaps side by side; returns when all are done.
class Workers {
 public:
  virtual ~Workers() = default;
  virtual void run(std::size_t tasks, void (*task)(void* data, std::size_t number), void* data) const = 0;
};

}  // namespace rlflow::kernels
