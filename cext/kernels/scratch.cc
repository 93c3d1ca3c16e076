#include "scratch.h"

#include <algorithm>
#include <iterator>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace rlflow::kernels {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;

// All but small pieces fill huge pages: the stages write to 36 places far apart, and of the small pages that stores go to
// a processor remembers as few as 16.
constexpr std::size_t kSmall = std::size_t{64} << 10;
std::size_t rounded(std::size_t bytes) { return bytes < kSmall ? bytes : (bytes + kPage - 1) / kPage * kPage; }

std::align_val_t alignment_of(std::size_t bytes) { return std::align_val_t{bytes < kPage ? 64 : kPage}; }

Scratch::Piece new_piece(std::size_t floats) {
  const std::size_t bytes = rounded(floats * sizeof(float));
  void* const data = ::operator new(bytes, alignment_of(bytes));
#if defined(__linux__)
  if (bytes >= kPage) static_cast<void>(madvise(data, bytes, MADV_HUGEPAGE));  // only a wish
#endif
  return {static_cast<float*>(data), bytes / sizeof(float), nullptr};
}

void free_piece(Scratch::Piece piece) { ::operator delete(piece.data, alignment_of(piece.floats * sizeof(float))); }

struct Pool {
  std::mutex mutex;
  std::vector<Scratch::Piece> pieces;
  std::size_t users = 0;

  void drop_all() {
    for (const Scratch::Piece& piece : pieces) free_piece(piece);
    pieces.clear();
  }
};

// An address that each thread has for itself.
const void* this_thread() {
  static thread_local const char mark = 0;
  return &mark;
}

Pool& pool() {
  static Pool* const one = new Pool;  // never destroyed: a session may outlive the library's static objects
  return *one;
}

}  // namespace

Scratch::Scratch(std::size_t floats) {
  if (floats == 0) return;
  {
    const std::lock_guard lock(pool().mutex);
    auto& pieces = pool().pieces;
    if (!pieces.empty()) {  // the last one that this thread gave back is the warmest, and another core's the coldest
      const auto is_large = [floats](const Piece& piece) { return piece.floats >= floats; };
      const auto is_mine = [&is_large, own = this_thread()](const Piece& piece) { return piece.thread == own && is_large(piece); };
      auto found = std::find_if(pieces.rbegin(), pieces.rend(), is_mine);
      if (found == pieces.rend()) found = std::find_if(pieces.rbegin(), pieces.rend(), is_large);
      if (found == pieces.rend()) found = pieces.rbegin();
      piece_ = *found;
      pieces.erase(std::next(found).base());
    }
  }
  if (piece_.floats >= floats) return;
  free_piece(std::exchange(piece_, {}));
  piece_ = new_piece(floats);
}

Scratch::~Scratch() {
  if (!piece_.data) return;
  piece_.thread = this_thread();
  const std::lock_guard lock(pool().mutex);
  try {
    if (pool().users > 0) {
      pool().pieces.push_back(piece_);
      return;
    }
  } catch (const std::bad_alloc&) {  // no room to remember it
  }
  free_piece(piece_);
}

ScratchUser::ScratchUser() {
  const std::lock_guard lock(pool().mutex);
  ++pool().users;
}

ScratchUser::~ScratchUser() {
  const std::lock_guard lock(pool().mutex);
  if (--pool().users == 0) pool().drop_all();
}

}  // namespace rlflow::kernels
