// Dimensions, element types and tensor types. All are interned for the life of the process; ids are cheap to compare.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rlflow/hash.h"

namespace rlflow {

// An integer that may be symbolic: a dimension, or an element of a shape tensor. Values above -2^62 are plain integers;
// values below are indices of interned polynomials over named symbols ("N", "N*64", "N+1"); one value means "not known".
using Int = int64_t;
using IntVec = std::vector<Int>;
inline constexpr Int kUnknown = INT64_MIN;
inline constexpr bool is_plain(Int v) noexcept { return v > -(Int{1} << 62); }
inline constexpr bool is_symbolic(Int v) noexcept { return !is_plain(v) && v != kUnknown; }

enum class Tri : int8_t { kFalse = 0, kTrue = 1, kMaybe = 2 };
Tri tri_and(Tri a, Tri b) noexcept;
Tri tri_or(Tri a, Tri b) noexcept;
Tri tri_not(Tri a) noexcept;

Int int_symbol(std::string_view name);      // the polynomial that is one symbol; symbols stand for dims >= 1... or 0 (unknown sign)
Int int_add(Int a, Int b);                  // every function: kUnknown if an operand is unknown
Int int_sub(Int a, Int b);
Int int_mul(Int a, Int b);
Int int_div(Int a, Int b);                  // floor division; symbolic where every coefficient divides (the constant is floored), else kUnknown
Int int_mod(Int a, Int b);
Tri int_eq(Int a, Int b);                   // kMaybe where a symbol decides
Tri int_lt(Int a, Int b);                   // symbols are >= 0
std::string int_text(Int v);                // "64", "N*64+1", "?"
Int int_parse(std::string_view text);       // the reverse; throws Error(kUsage)
// Replaces symbols by values (by name); names not listed stay.
Int int_substitute(Int v, std::span<const std::pair<std::string, Int>> values);
void int_symbols(Int v, std::vector<std::string>& names);   // names that occur in v, appended
Hash128 int_digest(Int v);                  // by content

// Element types carry ONNX's TensorProto numbers.
// clang-format off
enum DType : uint8_t {
  kUndefined = 0, kF32 = 1, kU8 = 2, kI8 = 3, kU16 = 4, kI16 = 5, kI32 = 6, kI64 = 7, kString = 8, kBool = 9, kF16 = 10,
  kF64 = 11, kU32 = 12, kU64 = 13, kC64 = 14, kC128 = 15, kBF16 = 16, kF8E4M3FN = 17, kF8E4M3FNUZ = 18, kF8E5M2 = 19,
  kF8E5M2FNUZ = 20, kU4 = 21, kI4 = 22, kF4E2M1 = 23,
};
// clang-format on
std::string_view dtype_name(int dtype);     // "f32", "i64", "bool", ...; "dt<N>" for numbers not listed
int dtype_parse(std::string_view text);     // throws Error(kUsage)
double dtype_bytes(int dtype);              // 0.5 for 4-bit types, 0 for strings and undefined
bool dtype_is_float(int dtype);             // f16, bf16, f32, f64, f8*
bool dtype_is_int(int dtype);

struct TensorType {
  int dtype = kUndefined;                   // kUndefined: not a tensor (sequence, map, optional) or not known
  int rank = -1;                            // -1: not known
  IntVec dims;                              // rank entries; kUnknown allowed
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

using TypeId = uint32_t;                    // 0 = nothing known
TypeId intern_type(const TensorType& t);
TypeId make_type(int dtype, std::span<const Int> dims);
TypeId make_type_unranked(int dtype);
const TensorType& type_of(TypeId id);       // reference stays valid for ever
const Hash128& type_digest(TypeId id);
std::string type_text(TypeId id);           // "f32[2,N]", "f32[*]" unranked, "any"
TypeId type_parse(std::string_view text);
// Number of elements as a plain integer, or nullopt if a dim is not a plain one.
std::optional<int64_t> element_count(const TensorType& t);

}  // namespace rlflow
