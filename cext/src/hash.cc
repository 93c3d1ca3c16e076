#include "rlflow/hash.h"

#include "rlflow/error.h"

namespace rlflow {

std::string to_hex(const Hash128& h) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out(32, '0');
  for (int i = 0; i < 16; ++i) {
    out[15 - i] = kDigits[(h.hi >> (4 * i)) & 15];
    out[31 - i] = kDigits[(h.lo >> (4 * i)) & 15];
  }
  return out;
}

namespace {
int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
}  // namespace

Hash128 from_hex(std::string_view text) {
  Hash128 h;
  bool good = text.size() == 32;
  for (size_t i = 0; good && i < 32; ++i) {
    int v = hex_value(text[i]);
    good = v >= 0;
    uint64_t& half = i < 16 ? h.hi : h.lo;
    half = half << 4 | static_cast<uint64_t>(v & 15);
  }
  if (!good) throw Error(ErrorKind::kUsage, "reading a digest: found '" + std::string(text) + "', expected 32 hexadecimal digits");
  return h;
}

Hash128 hash_bytes(std::string_view bytes) {
  Hasher h;
  h.add_bytes(bytes);
  return h.finish();
}

}  // namespace rlflow
