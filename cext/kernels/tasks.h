// What kernels that are cut into tasks share.
#pragma once
#include <cstdint>
#include <new>

namespace rlflow::kernels {

constexpr int64_t ceiling(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// Does a task of the job `data`, whose workers may not throw; the job remembers that there was no memory.
template <class Job, class Body>
void guarded(void* data, Body body) {
  Job& job = *static_cast<Job*>(data);
  try {
    body(job);
  } catch (const std::bad_alloc&) {
    job.out_of_memory = true;
  }
}

}  // namespace rlflow::kernels
