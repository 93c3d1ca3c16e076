// Attribute values and constants, interned for the life of the process. Equal ids <=> equal content.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "rlflow/types.h"

namespace rlflow {

// A constant tensor. Small ones (at most kInlineLimit elements) carry their values; large ones carry facts. The payload of a
// large constant lives outside the core, in a store keyed by `digest`.
inline constexpr int64_t kInlineLimit = 1024;
struct ConstInfo {
  TypeId type = 0;
  Hash128 digest;                           // of dtype, shape and bytes
  bool inline_values = false;
  std::vector<double> floats;               // inline float or bool/complex-free values, row-major
  IntVec ints;                              // inline integer and bool values, row-major
  bool has_facts = false;                   // the next four hold
  double min = 0, max = 0;
  bool uniform = false;                     // every element equal
  bool finite = true;                       // no NaN or infinity
};
using ConstId = uint32_t;
// Digest of a tensor: of dtype, shape and the little-endian row-major bytes (one element a byte for bool and 4-bit types). The
// three makers below agree with it for every dtype but f8* and f4*, whose inline values are digested as doubles.
Hash128 tensor_digest(int dtype, std::span<const Int> dims, std::string_view bytes);
ConstId intern_const(const ConstInfo& c);   // by digest (computed when zero and values are inline); the first one's facts stay
const ConstInfo& const_of(ConstId id);
ConstId scalar_const(int dtype, double value);              // rank-0 inline constant of a float or integer dtype
ConstId ints_const(const IntVec& values);                   // 1-D int64 inline constant
ConstId inline_const(int dtype, std::span<const Int> dims, std::span<const double> values);

struct ConstRef {
  ConstId id;
  friend bool operator==(ConstRef, ConstRef) = default;
};
using AttrValue = std::variant<Int, double, std::string, IntVec, std::vector<double>, std::vector<std::string>, ConstRef>;

// Whether an attribute is an axis that counts from the end, as it stays where the rank is not known. Conditions of rules take axes for
// numbers, and by these -1 and the last axis's own would be two.
bool counts_from_the_end(std::string_view name, const AttrValue& value);

// Sorted by name; canonical: defaults filled in, axes non-negative where the rank is known (ops.h does it).
struct AttrSet {
  std::vector<std::pair<std::string, AttrValue>> items;
  const AttrValue* find(std::string_view name) const;
  void set(std::string_view name, AttrValue value);         // inserts or replaces
  void erase(std::string_view name);
  // Typed readers; throw Error(kType) naming the attribute when it is absent or of another kind.
  Int get_int(std::string_view name) const;
  double get_float(std::string_view name) const;            // accepts an integer
  const std::string& get_string(std::string_view name) const;
  const IntVec& get_ints(std::string_view name) const;
  Int get_int(std::string_view name, Int fallback) const;
  double get_float(std::string_view name, double fallback) const;
  std::string get_string(std::string_view name, std::string_view fallback) const;
  const IntVec* find_ints(std::string_view name) const;     // nullptr when absent
  friend bool operator==(const AttrSet&, const AttrSet&) = default;
};
using AttrId = uint32_t;                    // 0 = no attributes
AttrId intern_attrs(const AttrSet& a);
const AttrSet& attrs_of(AttrId id);
const Hash128& attrs_digest(AttrId id);
std::string attr_text(const AttrValue& v);  // 1, 0.5, "s", [1,2], [0.5], ["a"], const values
std::string attrs_text(AttrId id);          // "{axis=1, split=[2,2]}", "" when empty

}  // namespace rlflow
