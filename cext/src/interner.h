// Append-only interning tables: entries never move, lookups take no lock, insertions take one mutex.
#pragma once
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "rlflow/hash.h"

namespace rlflow::detail {

// Chunked storage; chunk k holds 256 << k entries, so that 24 chunks cover every 32-bit index in use.
template <class T>
class StableTable {
 public:
  StableTable() = default;
  StableTable(const StableTable&) = delete;
  StableTable& operator=(const StableTable&) = delete;
  ~StableTable() {
    for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
  }
  const T& operator[](uint32_t i) const { return *slot(i); }
  uint32_t size() const { return size_.load(std::memory_order_acquire); }
  // Callers serialise appends.
  uint32_t append(T value) {
    uint32_t i = size_.load(std::memory_order_relaxed);
    auto [chunk, offset] = locate(i);
    T* base = chunks_[chunk].load(std::memory_order_relaxed);
    if (!base) {
      base = new T[size_t{kFirst} << chunk];
      chunks_[chunk].store(base, std::memory_order_release);
    }
    base[offset] = std::move(value);
    size_.store(i + 1, std::memory_order_release);
    return i;
  }

 private:
  static constexpr uint32_t kFirst = 256;
  static std::pair<unsigned, size_t> locate(uint32_t i) {
    uint64_t j = uint64_t{i} + kFirst;
    unsigned chunk = static_cast<unsigned>(std::bit_width(j)) - 9;
    return {chunk, static_cast<size_t>(j - (uint64_t{kFirst} << chunk))};
  }
  const T* slot(uint32_t i) const {
    auto [chunk, offset] = locate(i);
    return chunks_[chunk].load(std::memory_order_acquire) + offset;
  }
  std::array<std::atomic<T*>, 25> chunks_{};
  std::atomic<uint32_t> size_{0};
};

// digest -> index of the entry with that digest. The probe table is replaced when it is half full; replaced tables are kept,
// because a reader may still be probing one (all of them together are smaller than the newest).
template <class T>
class Interner {
 public:
  struct Entry {
    Hash128 digest;
    T value;
  };
  Interner() { current_.store(make_probe(1024), std::memory_order_release); }

  const Entry& operator[](uint32_t id) const { return entries_[id]; }
  uint32_t size() const { return entries_.size(); }

  std::optional<uint32_t> find(const Hash128& digest) const { return probe(*current_.load(std::memory_order_acquire), digest); }

  // `make` is called at most once, and only when the digest is new.
  template <class Make>
  uint32_t intern(const Hash128& digest, Make&& make) {
    if (auto id = find(digest)) return *id;
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto id = find(digest)) return *id;
    uint32_t id = entries_.append(Entry{digest, make()});
    Probe* probe = current_.load(std::memory_order_relaxed);
    if (uint64_t{entries_.size()} * 2 > probe->mask) {
      Probe* larger = make_probe((probe->mask + 1) * 4);
      for (uint32_t i = 0; i < id; ++i) place(*larger, entries_[i].digest, i);
      place(*larger, digest, id);
      current_.store(larger, std::memory_order_release);
    } else {
      place(*probe, digest, id);
    }
    return id;
  }

 private:
  struct Probe {
    size_t mask = 0;
    std::unique_ptr<std::atomic<uint32_t>[]> slots;  // id + 1; 0 is empty
  };
  Probe* make_probe(size_t size) {
    auto p = std::make_unique<Probe>();
    p->mask = size - 1;
    p->slots = std::make_unique<std::atomic<uint32_t>[]>(size);
    probes_.push_back(std::move(p));
    return probes_.back().get();
  }
  static size_t home(const Probe& p, const Hash128& digest) {
    const Hash128Hasher hash;
    return hash(digest) & p.mask;
  }
  static void place(Probe& p, const Hash128& digest, uint32_t id) {
    size_t i = home(p, digest);
    while (p.slots[i].load(std::memory_order_relaxed)) i = (i + 1) & p.mask;
    p.slots[i].store(id + 1, std::memory_order_release);
  }
  std::optional<uint32_t> probe(const Probe& p, const Hash128& digest) const {
    for (size_t i = home(p, digest);; i = (i + 1) & p.mask) {
      uint32_t found = p.slots[i].load(std::memory_order_acquire);
      if (!found) return std::nullopt;
      if (entries_[found - 1].digest == digest) return found - 1;
    }
  }
  StableTable<Entry> entries_;
  std::atomic<Probe*> current_{nullptr};
  std::vector<std::unique_ptr<Probe>> probes_;
  std::mutex mutex_;
};

}  // namespace rlflow::detail
