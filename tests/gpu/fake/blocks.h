// Runs a CUDA kernel's text on the host with whole blocks: every thread is a fibre with its own stack, a barrier is a barrier, a
// shuffle exchanges the values of real lanes, and shared memory belongs to one block.
//
// One warp runs as far as it can before the next one begins, so a missing barrier is seen: what another warp should have written is not
// there yet, or what it should still read is overwritten. The order of blocks, warps and lanes is the caller's: "forward", "reverse", or
// a number from which each stretch between two barriers is shuffled anew. Faults are sentences.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace host {

struct Place {
  unsigned thread = 0, threads = 1, block = 0, blocks = 1;
};
extern Place place;                          // of the thread that runs

// `site` tells places in the text apart: threads that wait at different barriers never meet.
void synchronise(int site);
uint64_t exchange(int site, unsigned lanes, uint64_t bits, unsigned distance);
void* shared_bytes(const void* key, size_t bytes);

template <class R>
R shuffle_xor(int site, unsigned lanes, R value, int distance) {
  static_assert(sizeof(R) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(site, lanes, bits, static_cast<unsigned>(distance));
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
// A GPU takes some bytes at once only where they lie at a multiple of their number.
void check_alignment(const void* address, size_t bytes);
template <class T>
T* aligned(T* address, size_t bytes) {
  check_alignment(address, bytes);
  return address;
}
template <int site, class T>
T& shared() {
  static char key;                           // its address is the array's name
  return *static_cast<T*>(shared_bytes(&key, sizeof(T)));
}

// What went wrong in a launch; empty where nothing did.
std::string run_grid(unsigned grid, unsigned threads, const std::string& order, const std::function<void()>& kernel);

// The same for a routine that is no kernel: it is one thread, and only memory is watched.
std::string guarded(const std::function<void()>& routine);

// Memory between two pages that nobody may touch. It ends where the second begins, or starts where the first ends.
void* take(size_t bytes, bool at_end);
void give(void* memory);

// A kernel of ours by its name, with its parameters as they lie in memory. `pointers` are outputs first.
std::string launch(const std::string& name, const long long* fixed, const void* pointers, unsigned grid, unsigned threads, const std::string& order);

}  // namespace host
