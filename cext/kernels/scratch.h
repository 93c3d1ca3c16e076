// Working memory that all kernels of the process share: a piece is leased for a while and given back. So its size is
// that of the largest request times the threads at work, not times the layers of a network.
#pragma once
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace rlflow::kernels {

class Scratch {
 public:
  // At least `floats` floats, aligned to a cache line; of none, nothing. Throws std::bad_alloc.
  explicit Scratch(std::size_t floats);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  float* data() const { return piece_.data; }

  struct Piece {
    float* data = nullptr;
    std::size_t floats = 0;
    const void* thread = nullptr;  // that gave it back
  };

 private:
  Piece piece_;
};

// A kernel holds one while it lives; when the last is gone, the memory is given back to the system.
class ScratchUser {
 public:
  ScratchUser();
  ~ScratchUser();
  ScratchUser(const ScratchUser&) = delete;
  ScratchUser& operator=(const ScratchUser&) = delete;
};

}  // namespace rlflow::kernels
