// Orders in which a kernel's tasks may be done: backwards, and in threads. One that a stage relied on would show. The tests that
// include this are those that the sanitizer of threads has.
#pragma once
#include <thread>
#include <vector>

#include "workers.h"

namespace rlflow::testing {

struct Backwards : kernels::Workers {
  void run(std::size_t tasks, void (*task)(void*, std::size_t), void* data) const override {
    for (std::size_t number = tasks; number-- > 0;) task(data, number);
  }
};

struct Threads : kernels::Workers {
  void run(std::size_t tasks, void (*task)(void*, std::size_t), void* data) const override {
    std::vector<std::thread> threads;
    for (std::size_t first = 0; first < 3; ++first)
      threads.emplace_back([=] {
        for (std::size_t number = first; number < tasks; number += 3) task(data, number);
      });
    for (std::thread& thread : threads) thread.join();
  }
};

}  // namespace rlflow::testing
