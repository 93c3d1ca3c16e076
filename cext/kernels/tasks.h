// What kernels that are cut into tasks share.
#pragma once
#include <cstdint>
#include <new>

namespace rlflow::kernels {

constexpr int64_t ceiling(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// From so many chunks on they are worked on side by side whatever they read; fewer would leave threads idle, or read large
// weights too often.
constexpr int64_t kSideBySide = 8;
// More of few chunks, or less of many, so that each of so many threads has as many: an odd one leaves others idle at the end.
constexpr int64_t evened(int64_t chunks, int64_t threads = 2) {
  const int64_t odd = chunks % threads;
  return odd == 0 ? chunks : chunks > kSideBySide && chunks > threads ? chunks - odd : chunks + threads - odd;
}

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
