#include "rlflow/attrs.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "interner.h"
#include "rlflow/error.h"

namespace rlflow {

using detail::Interner;

// ---- constants --------------------------------------------------------------------------------------------------------------
namespace {

Interner<ConstInfo>& consts() {
  static auto& table = *new Interner<ConstInfo>;
  return table;
}

// Rounds a double to a 16-bit float with `exponent_bits` exponent bits, ties to even. Goes through the exact double, so there is
// one rounding only.
uint16_t to_half_like(double v, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0, infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  if (std::isnan(v)) return static_cast<uint16_t>(sign | infinity | 1 << (mantissa_bits - 1));
  v = std::fabs(v);
  if (std::isinf(v)) return sign | infinity;
  if (v == 0) return sign;
  int exponent = std::max(std::ilogb(v), 1 - bias);
  // In units of the last place at this exponent; nearbyint rounds ties to even. A carry runs into the exponent field by itself.
  uint32_t units = static_cast<uint32_t>(std::nearbyint(std::ldexp(v, mantissa_bits - exponent)));
  uint32_t bits = units >> mantissa_bits ? units + (static_cast<uint32_t>(exponent + bias - 1) << mantissa_bits) : units;
  if (exponent > bias || bits >= infinity) return sign | infinity;
  return static_cast<uint16_t>(sign | bits);
}

double from_half_like(uint16_t h, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
  const int exponent = (h & 0x7fff) >> mantissa_bits, mantissa = h & ((1 << mantissa_bits) - 1);
  double v = exponent == top ? (mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity())
             : exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                             : std::ldexp(mantissa | 1 << mantissa_bits, exponent - bias - mantissa_bits);
  return h & 0x8000 ? -v : v;
}

// The value that the element type can hold, so that the text of a constant does not depend on who interned it first.
double rounded(int dtype, double v) {
  switch (dtype) {
    case kF32: return static_cast<double>(static_cast<float>(v));
    case kF16: return from_half_like(to_half_like(v, 5), 5);
    case kBF16: return from_half_like(to_half_like(v, 8), 8);
    default: return v;
  }
}

template <class T>
void put(std::string& out, T v) {
  char raw[sizeof(T)];
  std::memcpy(raw, &v, sizeof v);
  out.append(raw, sizeof raw);
}

void put_float(std::string& out, int dtype, double v) {
  switch (dtype) {
    case kF32: return put(out, static_cast<float>(v));
    case kF16: return put(out, to_half_like(v, 5));
    case kBF16: return put(out, to_half_like(v, 8));
    default: return put(out, v);
  }
}

void put_int(std::string& out, int dtype, Int v) {
  int width = dtype == kBool || dtype == kI4 || dtype == kU4 ? 1 : static_cast<int>(dtype_bytes(dtype));
  for (int i = 0; i < width; ++i) out += static_cast<char>(static_cast<uint64_t>(v) >> (8 * i));
}

Hash128 inline_digest(const ConstInfo& c) {
  const TensorType& t = type_of(c.type);
  std::string bytes;
  for (double v : c.floats) put_float(bytes, t.dtype, v);
  for (Int v : c.ints) put_int(bytes, t.dtype, v);
  return tensor_digest(t.dtype, t.dims, bytes);
}

template <class T>
void gather_facts(const std::vector<T>& values, ConstInfo& c) {
  if (values.empty()) return;
  c.has_facts = true;
  c.uniform = true;
  c.finite = true;
  c.min = std::numeric_limits<double>::infinity();
  c.max = -c.min;
  for (const T& v : values) {
    c.uniform &= v == values[0];
    double d = static_cast<double>(v);
    c.finite &= std::isfinite(d);
    c.min = std::min(c.min, d);
    c.max = std::max(c.max, d);
  }
}

ConstId from_doubles(int dtype, TypeId type, std::span<const double> values) {
  ConstInfo c;
  c.type = type;
  c.inline_values = true;
  if (dtype_is_float(dtype)) {
    c.floats.assign(values.begin(), values.end());
    for (double& v : c.floats) v = rounded(dtype, v);
  } else if (dtype_is_int(dtype) || dtype == kBool) {
    for (double v : values) {
      if (!(std::fabs(v) < 9.2e18) || v != std::trunc(v))
        throw Error(ErrorKind::kUsage,
                    "making a constant of type " + std::string(dtype_name(dtype)) + ": found the value " + attr_text(v) + ", expected an integer");
      c.ints.push_back(dtype == kBool ? Int{v != 0} : static_cast<Int>(v));
    }
  } else {
    throw Error(ErrorKind::kUsage, "making a constant: no inline values for element type " + std::string(dtype_name(dtype)));
  }
  return intern_const(c);
}

}  // namespace

Hash128 tensor_digest(int dtype, std::span<const Int> dims, std::string_view bytes) {
  Hasher h(4);
  h.add(static_cast<uint64_t>(dtype));
  h.add(dims.size());
  for (Int d : dims) h.add(static_cast<uint64_t>(d));
  h.add_bytes(bytes);
  return h.finish();
}

ConstId intern_const(const ConstInfo& c) {
  if (c.digest != Hash128{} && c.has_facts) return consts().intern(c.digest, [&] { return c; });
  ConstInfo full = c;
  if (full.digest == Hash128{}) {
    if (!full.inline_values) throw Error(ErrorKind::kUsage, "interning a constant: it has neither a digest nor inline values");
    full.digest = inline_digest(full);
  }
  if (full.inline_values && !full.has_facts) {
    gather_facts(full.floats, full);
    gather_facts(full.ints, full);
  }
  Hash128 digest = full.digest;
  return consts().intern(digest, [&] { return std::move(full); });
}

const ConstInfo& const_of(ConstId id) { return consts()[id].value; }

ConstId scalar_const(int dtype, double value) { return from_doubles(dtype, make_type(dtype, {}), {&value, 1}); }

ConstId ints_const(const IntVec& values) {
  ConstInfo c;
  Int n = static_cast<Int>(values.size());
  c.type = make_type(kI64, {&n, 1});
  c.inline_values = true;
  c.ints = values;
  return intern_const(c);
}

ConstId inline_const(int dtype, std::span<const Int> dims, std::span<const double> values) {
  TypeId type = make_type(dtype, dims);
  auto count = element_count(type_of(type));
  if (!count || *count != static_cast<int64_t>(values.size()))
    throw Error(ErrorKind::kUsage, "making a constant of type " + type_text(type) + ": found " + std::to_string(values.size()) + " values");
  return from_doubles(dtype, type, values);
}

// ---- attributes -------------------------------------------------------------------------------------------------------------
namespace {

auto position(const AttrSet& a, std::string_view name) {
  return std::lower_bound(a.items.begin(), a.items.end(), name, [](const auto& item, std::string_view n) { return item.first < n; });
}

const char* kind_name(const AttrValue& v) {
  static constexpr const char* kNames[] = {"an integer",       "a float",           "a string",  "a list of integers",
                                           "a list of floats", "a list of strings", "a constant"};
  return kNames[v.index()];
}

[[noreturn]] void wrong(std::string_view name, const AttrValue* found, const char* expected) {
  throw Error(ErrorKind::kType, "attribute '" + std::string(name) + "' " +
                                    (found ? "is " + std::string(kind_name(*found)) + " (" + attr_text(*found) + ")" : "is absent") + ", expected " +
                                    expected);
}

struct ValueHash {
  Hasher& h;
  void operator()(Int v) const { h.add(int_digest(v)); }
  void operator()(double v) const { h.add_double(v); }
  void operator()(const std::string& v) const { h.add_bytes(v); }
  void operator()(ConstRef v) const { h.add(const_of(v.id).digest); }
  template <class T>
  void operator()(const std::vector<T>& v) const {
    h.add(v.size());
    for (const T& x : v) (*this)(x);
  }
};

Hash128 hash_attrs(const AttrSet& a) {
  Hasher h(5);
  h.add(a.items.size());
  for (const auto& [name, value] : a.items) {
    h.add_bytes(name);
    h.add(value.index());
    std::visit(ValueHash{h}, value);
  }
  return h.finish();
}

Interner<AttrSet>& attr_sets() {
  static auto& table = []() -> Interner<AttrSet>& {
    auto* t = new Interner<AttrSet>;
    t->intern(hash_attrs({}), [] { return AttrSet{}; });
    return *t;
  }();
  return table;
}

std::string float_text(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  char buffer[32];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, v);
  std::string out(buffer, end);
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
}

std::string string_text(const std::string& s) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : s) {
    auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 0x20 || u == 0x7f) {
      out += "\\x";
      out += kDigits[u >> 4];
      out += kDigits[u & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

struct ValueText {
  std::string operator()(Int v) const { return int_text(v); }
  std::string operator()(double v) const { return float_text(v); }
  std::string operator()(const std::string& v) const { return string_text(v); }
  std::string operator()(ConstRef v) const {
    const ConstInfo& c = const_of(v.id);
    std::string out = type_text(c.type);
    if (!c.inline_values) return out + " @" + to_hex(c.digest);
    bool scalar = type_of(c.type).rank == 0;
    std::string list;
    for (double x : c.floats) list += (list.empty() ? "" : ",") + float_text(x);
    for (Int x : c.ints) list += (list.empty() ? "" : ",") + std::to_string(x);
    return out + " " + (scalar ? list : "[" + list + "]");
  }
  template <class T>
  std::string operator()(const std::vector<T>& v) const {
    std::string out = "[";
    for (size_t i = 0; i < v.size(); ++i) out += (i ? "," : "") + (*this)(v[i]);
    return out + "]";
  }
};

}  // namespace

bool counts_from_the_end(std::string_view name, const AttrValue& value) {
  if (name != "axis" && name != "axes") return false;
  auto negative = [](Int axis) { return is_plain(axis) && axis < 0; };
  if (const Int* axis = std::get_if<Int>(&value)) return negative(*axis);
  const IntVec* axes = std::get_if<IntVec>(&value);
  return axes && std::any_of(axes->begin(), axes->end(), negative);
}

const AttrValue* AttrSet::find(std::string_view name) const {
  auto it = position(*this, name);
  return it != items.end() && it->first == name ? &it->second : nullptr;
}
void AttrSet::set(std::string_view name, AttrValue value) {
  auto at = items.begin() + (position(*this, name) - items.cbegin());
  if (at != items.end() && at->first == name) at->second = std::move(value);
  else items.emplace(at, std::string(name), std::move(value));
}
void AttrSet::erase(std::string_view name) {
  auto at = items.begin() + (position(*this, name) - items.cbegin());
  if (at != items.end() && at->first == name) items.erase(at);
}

Int AttrSet::get_int(std::string_view name) const {
  const AttrValue* v = find(name);
  if (v)
    if (auto* i = std::get_if<Int>(v)) return *i;
  wrong(name, v, "an integer");
}
double AttrSet::get_float(std::string_view name) const {
  const AttrValue* v = find(name);
  if (v) {
    if (auto* d = std::get_if<double>(v)) return *d;
    if (auto* i = std::get_if<Int>(v); i && is_plain(*i)) return static_cast<double>(*i);
  }
  wrong(name, v, "a float");
}
const std::string& AttrSet::get_string(std::string_view name) const {
  const AttrValue* v = find(name);
  if (v)
    if (auto* s = std::get_if<std::string>(v)) return *s;
  wrong(name, v, "a string");
}
const IntVec& AttrSet::get_ints(std::string_view name) const {
  const IntVec* v = find_ints(name);
  if (!v) wrong(name, nullptr, "a list of integers");
  return *v;
}
Int AttrSet::get_int(std::string_view name, Int fallback) const { return find(name) ? get_int(name) : fallback; }
double AttrSet::get_float(std::string_view name, double fallback) const { return find(name) ? get_float(name) : fallback; }
std::string AttrSet::get_string(std::string_view name, std::string_view fallback) const {
  return find(name) ? get_string(name) : std::string(fallback);
}
const IntVec* AttrSet::find_ints(std::string_view name) const {
  const AttrValue* v = find(name);
  if (!v) return nullptr;
  if (auto* list = std::get_if<IntVec>(v)) return list;
  wrong(name, v, "a list of integers");
}

AttrId intern_attrs(const AttrSet& a) {
  if (a.items.empty()) return 0;
  return attr_sets().intern(hash_attrs(a), [&] { return a; });
}
const AttrSet& attrs_of(AttrId id) { return attr_sets()[id].value; }
const Hash128& attrs_digest(AttrId id) { return attr_sets()[id].digest; }

std::string attr_text(const AttrValue& v) { return std::visit(ValueText{}, v); }

std::string attrs_text(AttrId id) {
  const AttrSet& a = attrs_of(id);
  if (a.items.empty()) return "";
  std::string out = "{";
  for (const auto& [name, value] : a.items) out += (out.size() > 1 ? ", " : "") + name + "=" + attr_text(value);
  return out + "}";
}

}  // namespace rlflow
