// 128-bit structural hashing. Digests depend on content only: never on addresses, table indices or the process.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace rlflow {

struct Hash128 {
  uint64_t hi = 0, lo = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

struct Hash128Hasher {
  size_t operator()(const Hash128& h) const noexcept { return static_cast<size_t>(h.lo ^ (h.hi * 0x9e3779b97f4a7c15ULL)); }
};

// One lane of the mixer: a 64x64 -> 128 multiply folded by xor (a bijection is not needed, avalanche is).
inline uint64_t fold_multiply(uint64_t a, uint64_t b) noexcept {
  __uint128_t p = static_cast<__uint128_t>(a) * b;
  return static_cast<uint64_t>(p) ^ static_cast<uint64_t>(p >> 64);
}

class Hasher {
 public:
  explicit Hasher(uint64_t seed = 0) : a_(0x243f6a8885a308d3ULL ^ seed), b_(0x13198a2e03707344ULL + seed) {}
  void add(uint64_t v) noexcept {
    a_ = fold_multiply(a_ ^ v, 0x9e3779b97f4a7c15ULL) + 0x452821e638d01377ULL;
    b_ = fold_multiply(b_ + v, 0xd1342543de82ef95ULL) ^ (a_ >> 29);
  }
  void add(Hash128 h) noexcept {
    add(h.hi);
    add(h.lo);
  }
  void add_double(double v) noexcept {
    uint64_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    add(bits);
  }
  void add_bytes(std::string_view s) noexcept {
    add(s.size());
    while (s.size() >= 8) {
      uint64_t w;
      std::memcpy(&w, s.data(), 8);
      add(w);
      s.remove_prefix(8);
    }
    uint64_t w = 0;
    if (!s.empty()) std::memcpy(&w, s.data(), s.size());
    add(w);
  }
  Hash128 finish() const noexcept {
    uint64_t h = fold_multiply(a_ ^ 0xa4093822299f31d0ULL, b_ | 1);
    uint64_t l = fold_multiply(b_ ^ 0x082efa98ec4e6c89ULL, a_ | 1);
    return {h ^ (l << 1), l ^ (h >> 1)};
  }

 private:
  uint64_t a_, b_;
};

std::string to_hex(const Hash128& h);        // 32 lower-case digits
Hash128 from_hex(std::string_view text);     // throws Error(kUsage) on anything but 32 hex digits
Hash128 hash_bytes(std::string_view bytes);

}  // namespace rlflow
