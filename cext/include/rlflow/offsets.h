// Buffers with lifetimes, placed side by side in one block of memory of a given size.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace rlflow {

struct TimedBuffer {
  int64_t begin = 0, end = 0;  // alive in [begin, end)
  int64_t size = 0;            // above 0
};

struct Packing {
  std::optional<std::vector<int64_t>> offsets;  // by buffer; none: none was found
  bool exhausted = false;                       // whether it is certain that there is none
  int64_t opened = 0;                           // partial packings that were looked at
};

// Offsets in [0, capacity) at which no two buffers that are alive together overlap: a depth-first search over packings in which every
// buffer lies on the floor or on another (Moffitt 2023, "MiniMalloc": the canonical form and the lower bounds of sections), from
// several orders of preference in turn, then from shuffled ones. `most`: partial packings that are looked at in all. Throws Error (usage)
// for bad numbers.
Packing pack_buffers(const std::vector<TimedBuffer>& buffers, int64_t capacity, int64_t most);

}  // namespace rlflow
