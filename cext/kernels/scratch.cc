#include "scratch.h"

#include <algorithm>
#include <new>

namespace rlflow::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};

void free_piece(Scratch::Piece piece) { ::operator delete(piece.data, kAlignment); }

struct Pool {
  std::mutex mutex;
  std::vector<Scratch::Piece> pieces;
  std::size_t users = 0;

  void drop_all() {
    for (const Scratch::Piece& piece : pieces) free_piece(piece);
    pieces.clear();
  }
};

Pool& pool() {
  static Pool* const one = new Pool;  // never destroyed: a session may outlive the library's static objects
  return *one;
}

}  // namespace

Scratch::Scratch(std::size_t floats) {
  {
    const std::lock_guard lock(pool().mutex);
    auto& pieces = pool().pieces;
    if (!pieces.empty()) {  // the last one given back is the warmest
      piece_ = pieces.back();
      pieces.pop_back();
    }
  }
  if (piece_.floats >= floats) return;
  free_piece(std::exchange(piece_, {}));
  piece_ = {static_cast<float*>(::operator new(floats * sizeof(float), kAlignment)), floats};
}

Scratch::~Scratch() {
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
