#include "rlflow/types.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "interner.h"
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

// ---- symbolic integers ------------------------------------------------------------------------------------------------------
namespace {

using Symbol = uint32_t;
struct Factor {
  Symbol symbol;
  uint32_t power;
  friend bool operator==(const Factor&, const Factor&) = default;
};
using Monomial = std::vector<Factor>;  // sorted by symbol name; empty for the constant term
struct Term {
  Monomial monomial;
  int64_t coefficient = 0;             // never 0 in a polynomial
};
using Poly = std::vector<Term>;        // sorted by before(); at least one term is not constant when interned

Interner<std::string>& symbols() {
  static auto& table = *new Interner<std::string>;
  return table;
}
Interner<Poly>& polys() {
  static auto& table = *new Interner<Poly>;
  return table;
}
const std::string& symbol_name(Symbol s) { return symbols()[s].value; }

uint64_t degree(const Monomial& m) {
  uint64_t d = 0;
  for (const Factor& f : m) d += f.power;
  return d;
}

// Monomial order: higher degree first, then lexicographic by name. It is compatible with multiplication, as long division needs.
int compare(const Monomial& a, const Monomial& b) {
  uint64_t da = degree(a), db = degree(b);
  if (da != db) return da > db ? -1 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i].symbol != b[i].symbol) return symbol_name(a[i].symbol) < symbol_name(b[i].symbol) ? -1 : 1;
    if (a[i].power != b[i].power) return a[i].power > b[i].power ? -1 : 1;
  }
  return 0;
}

Monomial multiply(const Monomial& a, const Monomial& b) {
  Monomial out;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (j == b.size() || (i < a.size() && a[i].symbol != b[j].symbol && symbol_name(a[i].symbol) < symbol_name(b[j].symbol))) {
      out.push_back(a[i++]);
    } else if (i == a.size() || a[i].symbol != b[j].symbol) {
      out.push_back(b[j++]);
    } else {
      out.push_back({a[i].symbol, a[i].power + b[j].power});
      ++i, ++j;
    }
  }
  return out;
}

std::optional<Monomial> divide(const Monomial& a, const Monomial& b) {
  Monomial out;
  size_t j = 0;
  for (const Factor& f : a) {
    if (j < b.size() && b[j].symbol == f.symbol) {
      if (b[j].power > f.power) return std::nullopt;
      if (b[j].power < f.power) out.push_back({f.symbol, f.power - b[j].power});
      ++j;
    } else {
      out.push_back(f);
    }
  }
  if (j < b.size()) return std::nullopt;
  return out;
}

constexpr Int kPlainMin = -(Int{1} << 62) + 1;

Poly poly_of(Int v) {
  if (!is_plain(v)) return polys()[static_cast<uint32_t>(-(Int{1} << 62) - v)].value;
  if (v == 0) return {};
  return {Term{{}, v}};
}

bool known_symbolic(Int v) { return is_symbolic(v) && static_cast<uint64_t>(-(Int{1} << 62) - v) < polys().size(); }

Hash128 poly_digest(const Poly& p) {
  Hasher h(2);
  h.add(p.size());
  for (const Term& t : p) {
    h.add(static_cast<uint64_t>(t.coefficient));
    h.add(t.monomial.size());
    for (const Factor& f : t.monomial) {
      h.add_bytes(symbol_name(f.symbol));
      h.add(f.power);
    }
  }
  return h.finish();
}

Int intern_poly(Poly p) {
  if (p.empty()) return 0;
  if (p.size() == 1 && p[0].monomial.empty()) return p[0].coefficient < kPlainMin ? kUnknown : p[0].coefficient;
  uint32_t id = polys().intern(poly_digest(p), [&] { return std::move(p); });
  return -(Int{1} << 62) - static_cast<Int>(id);
}

// Products of sums grow beyond all bounds; nothing is known of one that has more terms than this.
constexpr size_t kMostTerms = 2048;

// a + scale * b; false on overflow.
bool add_scaled(const Poly& a, const Poly& b, int64_t scale, const Monomial& shift, Poly& out) {
  out.clear();
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    Term t;
    if (j < b.size()) {
      t.monomial = shift.empty() ? b[j].monomial : multiply(b[j].monomial, shift);
      if (__builtin_mul_overflow(b[j].coefficient, scale, &t.coefficient)) return false;
    }
    int order = i == a.size() ? 1 : j == b.size() ? -1 : compare(a[i].monomial, t.monomial);
    if (order < 0) {
      out.push_back(a[i++]);
      continue;
    }
    ++j;
    if (order == 0 && __builtin_add_overflow(t.coefficient, a[i++].coefficient, &t.coefficient)) return false;
    if (t.coefficient != 0) out.push_back(std::move(t));
    if (out.size() > kMostTerms) return false;
  }
  return true;
}

int64_t floor_div(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - ((a % b != 0) && ((a % b < 0) != (b < 0)));
}

Int plain_or_unknown(int64_t v, bool overflow) { return overflow || v < kPlainMin ? kUnknown : v; }

Int divide_by_plain(const Poly& a, Int b) {
  Poly out;
  for (const Term& t : a) {
    if (t.monomial.empty()) {  // floor((b*q + c) / b) = q + floor(c / b)
      if (int64_t c = floor_div(t.coefficient, b)) out.push_back({{}, c});
    } else if (t.coefficient % b != 0) {
      return kUnknown;
    } else {
      out.push_back({t.monomial, t.coefficient / b});
    }
  }
  return intern_poly(std::move(out));
}

Int divide_exactly(Poly rest, const Poly& by) {
  Poly quotient, next;
  while (!rest.empty()) {
    auto m = divide(rest[0].monomial, by[0].monomial);
    if (!m || by[0].coefficient == 0 || rest[0].coefficient % by[0].coefficient != 0) return kUnknown;
    int64_t c = rest[0].coefficient / by[0].coefficient;
    if (c == INT64_MIN || !add_scaled(rest, by, -c, *m, next)) return kUnknown;
    quotient.push_back({std::move(*m), c});
    rest.swap(next);
    if (quotient.size() > 64) return kUnknown;
  }
  return intern_poly(std::move(quotient));
}

bool unknown(Int v) { return v == kUnknown || (is_symbolic(v) && !known_symbolic(v)); }

bool name_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool name_digit(char c) { return (c >= '0' && c <= '9') || c == '.'; }
bool plain_name(std::string_view s) {
  if (s.empty() || !name_letter(s[0])) return false;
  return std::all_of(s.begin(), s.end(), [&](char c) { return name_letter(c) || name_digit(c); });
}

std::string quoted_name(const std::string& name) {
  if (plain_name(name)) return name;
  std::string out = "'";
  for (char c : name) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

}  // namespace

Int int_symbol(std::string_view name) {
  if (name.empty()) throw Error(ErrorKind::kUsage, "making a symbolic dimension: the name is empty");
  Symbol s = symbols().intern(hash_bytes(name), [&] { return std::string(name); });
  return intern_poly({Term{{Factor{s, 1}}, 1}});
}

Int int_add(Int a, Int b) {
  if (is_plain(a) && is_plain(b)) {
    int64_t r;
    bool over = __builtin_add_overflow(a, b, &r);
    return plain_or_unknown(r, over);
  }
  if (unknown(a) || unknown(b)) return kUnknown;
  Poly out;
  return add_scaled(poly_of(a), poly_of(b), 1, {}, out) ? intern_poly(std::move(out)) : kUnknown;
}

Int int_sub(Int a, Int b) {
  if (is_plain(a) && is_plain(b)) {
    int64_t r;
    bool over = __builtin_sub_overflow(a, b, &r);
    return plain_or_unknown(r, over);
  }
  if (unknown(a) || unknown(b)) return kUnknown;
  if (a == b) return 0;
  Poly out;
  return add_scaled(poly_of(a), poly_of(b), -1, {}, out) ? intern_poly(std::move(out)) : kUnknown;
}

Int int_mul(Int a, Int b) {
  if (is_plain(a) && is_plain(b)) {
    int64_t r;
    bool over = __builtin_mul_overflow(a, b, &r);
    return plain_or_unknown(r, over);
  }
  if (unknown(a) || unknown(b)) return kUnknown;
  if (a == 1) return b;
  if (b == 1) return a;
  Poly left = poly_of(a), sum, next;
  for (const Term& t : poly_of(b)) {
    if (!add_scaled(sum, left, t.coefficient, t.monomial, next)) return kUnknown;
    sum.swap(next);
  }
  return intern_poly(std::move(sum));
}

Int int_div(Int a, Int b) {
  if (unknown(a) || unknown(b) || b == 0) return kUnknown;
  if (is_plain(a) && is_plain(b)) return plain_or_unknown(floor_div(a, b), false);
  if (a == b) return 1;
  return is_plain(b) ? divide_by_plain(poly_of(a), b) : divide_exactly(poly_of(a), poly_of(b));
}

Int int_mod(Int a, Int b) {
  Int q = int_div(a, b);
  return q == kUnknown ? kUnknown : int_sub(a, int_mul(q, b));
}

namespace {
// The sign that a polynomial over symbols >= 0 must have: `all` terms of one sign, and whether a constant term bounds it from 0.
struct Sign {
  bool non_negative = true, non_positive = true;
  int64_t constant = 0, gcd = 0;
};
Sign sign_of(const Poly& p) {
  Sign s;
  for (const Term& t : p) {
    (t.coefficient > 0 ? s.non_positive : s.non_negative) = false;
    if (t.monomial.empty()) s.constant = t.coefficient;
    else s.gcd = std::gcd(s.gcd, t.coefficient);
  }
  return s;
}
}  // namespace

Tri int_eq(Int a, Int b) {
  if (is_plain(a) && is_plain(b)) return a == b ? Tri::kTrue : Tri::kFalse;
  if (unknown(a) || unknown(b)) return Tri::kMaybe;
  Int d = int_sub(a, b);
  if (is_plain(d)) return d == 0 ? Tri::kTrue : Tri::kFalse;
  if (d == kUnknown) return Tri::kMaybe;
  Sign s = sign_of(poly_of(d));
  if (s.constant != 0 && (s.non_negative || s.non_positive || s.constant % s.gcd != 0)) return Tri::kFalse;
  return Tri::kMaybe;
}

Tri int_lt(Int a, Int b) {
  if (is_plain(a) && is_plain(b)) return a < b ? Tri::kTrue : Tri::kFalse;
  if (unknown(a) || unknown(b)) return Tri::kMaybe;
  Int d = int_sub(b, a);
  if (is_plain(d)) return d > 0 ? Tri::kTrue : Tri::kFalse;
  if (d == kUnknown) return Tri::kMaybe;
  Sign s = sign_of(poly_of(d));
  if (s.non_positive) return Tri::kFalse;
  return s.non_negative && s.constant > 0 ? Tri::kTrue : Tri::kMaybe;
}

std::string int_text(Int v) {
  if (is_plain(v)) return std::to_string(v);
  if (unknown(v)) return "?";
  std::string out;
  for (const Term& t : poly_of(v)) {
    bool minus = t.coefficient < 0;
    out += minus ? "-" : out.empty() ? "" : "+";
    uint64_t magnitude = minus ? -static_cast<uint64_t>(t.coefficient) : static_cast<uint64_t>(t.coefficient);
    std::string product;
    for (const Factor& f : t.monomial)
      for (uint32_t i = 0; i < f.power; ++i) product += (product.empty() ? "" : "*") + quoted_name(symbol_name(f.symbol));
    if (product.empty()) product = std::to_string(magnitude);
    else if (magnitude != 1) product += "*" + std::to_string(magnitude);
    out += product;
  }
  return out;
}

namespace {
// Recursive descent over  sum := product (('+'|'-') product)* ;  product := factor (('*'|'/'|'//') factor)* ;
// factor := '-' factor | '(' sum ')' | digits | name | 'quoted name' | '?'.
class IntParser {
 public:
  explicit IntParser(std::string_view text) : text_(text) {
    if (text_.size() > kLongest) fail(std::to_string(kLongest) + " characters at most");
  }
  Int sum() {
    Int v = product();
    for (;;) {
      if (take('+')) v = int_add(v, product());
      else if (take('-')) v = int_sub(v, product());
      else return v;
    }
  }
  void expect_end() {
    skip();
    if (at_ < text_.size()) fail("an operator or the end");
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void fail(const std::string& expected) const {
    throw Error(ErrorKind::kUsage,
                "reading the integer expression '" + shown(text_) + "': at column " + std::to_string(at_ + 1) + ", expected " + expected);
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  Int product() {
    Int v = factor();
    for (;;) {
      if (take('*')) {
        v = int_mul(v, factor());
      } else if (take('/')) {
        take('/');
        v = int_div(v, factor());
      } else {
        return v;
      }
    }
  }
  Int factor() {
    Level level(depth_);
    if (level.too_deep()) fail("less nesting");
    if (take('-')) return int_sub(0, factor());
    if (take('?')) return kUnknown;
    if (take('(')) {
      Int v = sum();
      if (!take(')')) fail("')'");
      return v;
    }
    if (take('\'')) return quoted();
    if (at_ >= text_.size()) fail("a number, a name or '('");
    if (text_[at_] >= '0' && text_[at_] <= '9') return digits();
    size_t start = at_;
    while (at_ < text_.size() && (name_letter(text_[at_]) || (at_ > start && name_digit(text_[at_])))) ++at_;
    if (at_ == start) fail("a number, a name or '('");
    return int_symbol(text_.substr(start, at_ - start));
  }
  Int quoted() {
    std::string name;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\'') {
        if (at_ + 1 >= text_.size() || text_[at_ + 1] != '\'') break;
        ++at_;
      }
      name += text_[at_];
    }
    if (at_ >= text_.size() || name.empty()) fail("a closing quote after a name");
    ++at_;
    return int_symbol(name);
  }
  Int digits() {
    int64_t v = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(v, int64_t{10}, &v) || __builtin_add_overflow(v, int64_t{text_[at_] - '0'}, &v)) fail("a number below 2^63");
    return v;
  }
  static constexpr size_t kLongest = 25'000;  // a quoted name of 10,000 characters, all of them quotes, and more
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};
}  // namespace

Int int_parse(std::string_view text) {
  IntParser p(text);
  Int v = p.sum();
  p.expect_end();
  return v;
}

Int int_substitute(Int v, std::span<const std::pair<std::string, Int>> values) {
  if (!known_symbolic(v)) return v;
  Int sum = 0;
  for (const Term& t : poly_of(v)) {
    Int product = plain_or_unknown(t.coefficient, false);
    for (const Factor& f : t.monomial) {
      const std::string& name = symbol_name(f.symbol);
      auto hit = std::find_if(values.begin(), values.end(), [&](const auto& p) { return p.first == name; });
      Int base = hit == values.end() ? int_symbol(name) : hit->second;
      for (uint32_t i = 0; i < f.power; ++i) product = int_mul(product, base);
    }
    sum = int_add(sum, product);
  }
  return sum;
}

void int_symbols(Int v, std::vector<std::string>& names) {
  if (!known_symbolic(v)) return;
  for (const Term& t : poly_of(v))
    for (const Factor& f : t.monomial)
      if (std::find(names.begin(), names.end(), symbol_name(f.symbol)) == names.end()) names.push_back(symbol_name(f.symbol));
}

Hash128 int_digest(Int v) {
  if (known_symbolic(v)) return polys()[static_cast<uint32_t>(-(Int{1} << 62) - v)].digest;
  Hasher h(1);
  h.add(static_cast<uint64_t>(v));
  return h.finish();
}

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
  IntVec dims;
  if (inside.empty()) return make_type(dtype, dims);
  IntParser p(inside);
  do dims.push_back(p.sum());
  while (p.take(','));
  p.expect_end();
  return make_type(dtype, dims);
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
