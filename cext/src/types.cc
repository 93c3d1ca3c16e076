#include "rlflow/types.h"

#include <algorithm>
#include <array>

#include "interner.h"
#include "polynomial.h"
#include "rlflow/error.h"

namespace rlflow {

using detail::Interner;

Tri tri_and(Tri a, Tri b) noexcept {
  if (a == Tri::kFalse || b == Tri::kFalse) return Tri::kFalse;
  return a == Tri::kTrue && b == Tri::kTrue ? Tri::kTrue : Tri::kMaybe;
}
Tri tri_or(Tri a, Tri b) noexcept {
  if (a == Tri::kTrue || b == Tri::kTrue) return Tri::kTrue;
  return a == Tri::kFalse && b == Tri::kFalse ? Tri::kFalse : Tri::kMaybe;
}
Tri tri_not(Tri a) noexcept { return a == Tri::kMaybe ? a : a == Tri::kTrue ? Tri::kFalse : Tri::kTrue; }

// ---- element types ----------------------------------------------------------------------------------------------------------
namespace {
struct DTypeRow {
  std::string_view name;
  double bytes;
  bool is_float, is_int;
};
constexpr std::array<DTypeRow, 24> kDTypes{{
    {"any", 0, false, false},       {"f32", 4, true, false},      {"u8", 1, false, true},         {"i8", 1, false, true},
    {"u16", 2, false, true},        {"i16", 2, false, true},      {"i32", 4, false, true},        {"i64", 8, false, true},
    {"string", 0, false, false},    {"bool", 1, false, false},    {"f16", 2, true, false},        {"f64", 8, true, false},
    {"u32", 4, false, true},        {"u64", 8, false, true},      {"c64", 8, false, false},       {"c128", 16, false, false},
    {"bf16", 2, true, false},       {"f8e4m3fn", 1, true, false}, {"f8e4m3fnuz", 1, true, false}, {"f8e5m2", 1, true, false},
    {"f8e5m2fnuz", 1, true, false}, {"u4", 0.5, false, true},     {"i4", 0.5, false, true},       {"f4e2m1", 0.5, true, false},
}};
const DTypeRow* dtype_row(int dtype) {
  return dtype >= 0 && dtype < static_cast<int>(kDTypes.size()) ? &kDTypes[static_cast<size_t>(dtype)] : nullptr;
}
const std::string& other_dtype_name(int dtype) {
  static auto& names = *new Interner<std::string>;
  Hasher h;
  h.add(static_cast<uint64_t>(dtype));
  return names[names.intern(h.finish(), [&] { return "dt" + std::to_string(dtype); })].value;
}
}  // namespace

std::string_view dtype_name(int dtype) {
  const DTypeRow* row = dtype_row(dtype);
  return row ? row->name : std::string_view(other_dtype_name(dtype));
}
int dtype_parse(std::string_view text) {
  for (size_t i = 0; i < kDTypes.size(); ++i)
    if (kDTypes[i].name == text) return static_cast<int>(i);
  if (text.size() > 2 && text.size() < 8 && text.starts_with("dt") &&
      std::all_of(text.begin() + 2, text.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::stoi(std::string(text.substr(2)));
  throw Error(ErrorKind::kUsage, "reading an element type: found '" + shown(text) + "', expected a name such as f32, f16, i64, bool or string");
}
double dtype_bytes(int dtype) {
  const DTypeRow* row = dtype_row(dtype);
  return row ? row->bytes : 0;
}
bool dtype_is_float(int dtype) {
  const DTypeRow* row = dtype_row(dtype);
  return row && row->is_float;
}
bool dtype_is_int(int dtype) {
  const DTypeRow* row = dtype_row(dtype);
  return row && row->is_int;
}

// ---- tensor types -----------------------------------------------------------------------------------------------------------
namespace {
Hash128 hash_type(int dtype, int rank, std::span<const Int> dims) {
  Hasher h(3);
  h.add(static_cast<uint64_t>(dtype) << 32 | static_cast<uint32_t>(rank));
  for (Int d : dims) {
    if (known_symbolic(d)) {
      h.add(uint64_t{1} << 63 | 1);  // no plain dim has this bit pattern
      h.add(int_digest(d));
    } else {
      h.add(static_cast<uint64_t>(d));
    }
  }
  return h.finish();
}
Interner<TensorType>& types() {
  static auto& table = []() -> Interner<TensorType>& {
    auto* t = new Interner<TensorType>;
    t->intern(hash_type(kUndefined, -1, {}), [] { return TensorType{}; });
    return *t;
  }();
  return table;
}
TypeId intern_parts(int dtype, int rank, std::span<const Int> dims) {
  return types().intern(hash_type(dtype, rank, dims), [&] { return TensorType{dtype, rank, IntVec(dims.begin(), dims.end())}; });
}
}  // namespace

TypeId intern_type(const TensorType& t) { return t.rank < 0 ? intern_parts(t.dtype, -1, {}) : make_type(t.dtype, t.dims); }
TypeId make_type(int dtype, std::span<const Int> dims) { return intern_parts(dtype, static_cast<int>(dims.size()), dims); }
TypeId make_type_unranked(int dtype) { return intern_parts(dtype, -1, {}); }
const TensorType& type_of(TypeId id) { return types()[id].value; }
const Hash128& type_digest(TypeId id) { return types()[id].digest; }

std::string type_text(TypeId id) {
  const TensorType& t = type_of(id);
  std::string out(dtype_name(t.dtype));
  if (t.rank < 0) return t.dtype == kUndefined ? out : out + "[*]";
  out += '[';
  for (size_t i = 0; i < t.dims.size(); ++i) out += (i ? "," : "") + int_text(t.dims[i]);
  return out + ']';
}

TypeId type_parse(std::string_view text) {
  auto trim = [](std::string_view s) {
    while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
    while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
    return s;
  };
  text = trim(text);
  size_t open = text.find('[');
  int dtype = dtype_parse(trim(text.substr(0, open)));
  if (open == std::string_view::npos) {
    if (dtype == kUndefined) return 0;
    throw Error(ErrorKind::kUsage, "reading the type '" + shown(text) + "': expected '[' and dimensions, or '[*]'");
  }
  if (text.back() != ']') throw Error(ErrorKind::kUsage, "reading the type '" + shown(text) + "': expected ']' at the end");
  std::string_view inside = trim(text.substr(open + 1, text.size() - open - 2));
  if (inside == "*") return make_type_unranked(dtype);
  return make_type(dtype, inside.empty() ? IntVec{} : ints_parse(inside));
}

std::optional<int64_t> element_count(const TensorType& t) {
  if (t.rank < 0) return std::nullopt;
  int64_t n = 1;
  bool overflow = false, empty = false;
  for (Int d : t.dims) {
    if (!is_plain(d)) return std::nullopt;
    empty |= d == 0;
    overflow |= __builtin_mul_overflow(n, d, &n);
  }
  if (empty) return 0;
  return overflow ? std::nullopt : std::optional<int64_t>(n);
}

}  // namespace rlflow
