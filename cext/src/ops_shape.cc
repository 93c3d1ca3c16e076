// Shapes as values and tensors made from them.
#include <algorithm>
#include <cmath>

#include "ops_common.h"

namespace rlflow::detail {
namespace {

constexpr Int kMaxMade = 64;  // elements worth carrying

void infer_shape(Ctx& c) {
  const TensorType& x = in(c, 0);
  if (!ranked(x)) return set(c, 0, kI64, {kUnknown});
  Int rank = x.rank;
  auto bound = [&](const char* name, Int fallback) {
    Int v = c.attrs.get_int(name, fallback);
    if (!is_plain(v)) fail(c, std::string(name) + " is " + int_text(v) + ", expected an integer");
    return std::clamp<Int>(v < 0 ? v + rank : v, 0, rank);
  };
  Int start = bound("start", Int{0}), end = std::max(bound("end", rank), start);
  c.attrs.set("start", start);
  if (end == rank) c.attrs.erase("end");
  else c.attrs.set("end", end);
  set(c, 0, kI64, {end - start});
  set_data(c, 0, IntVec(x.dims.begin() + start, x.dims.begin() + end));
}

void infer_size(Ctx& c) {
  set(c, 0, kI64, {});
  if (ranked(in(c, 0))) set_data(c, 0, {product(in(c, 0).dims)});
}

void infer_constant_of_shape(Ctx& c) {
  Int wanted = c.attrs.get_int("dtype");
  if (!is_plain(wanted) || wanted <= 0) fail(c, "dtype is " + int_text(wanted) + ", expected the number of an element type");
  int dtype = static_cast<int>(wanted);
  double value = c.attrs.get_float("value");
  bool integer = dtype_is_int(dtype) || dtype == kBool;
  if (integer && value != std::trunc(value))
    fail(c, "the value is " + attr_text(value) + ", expected an integer for element type " + std::string(dtype_name(dtype)));
  require_rank(c, 0, 1, 1);
  auto dims = known_ints(c, 0);
  if (!dims) {
    auto rank = list_length(c, 0);
    return rank ? set_rank(c, 0, dtype, static_cast<int>(*rank)) : set_unranked(c, 0, dtype);
  }
  for (Int d : *dims)
    if (is_plain(d) && d < 0) fail(c, "the shape " + ints_text(*dims) + " has a negative entry");
  set(c, 0, dtype, *dims);
  Int n = dims->size() <= 1 ? product(*dims) : kUnknown;
  if ((dtype == kI64 || dtype == kI32 || dtype == kBool) && is_plain(n) && n <= kMaxMade && std::fabs(value) < 9e18)
    set_data(c, 0, IntVec(static_cast<size_t>(n), static_cast<Int>(value)));
}

std::optional<double> scalar_value(const Ctx& c, size_t i) {
  const ConstInfo* k = c.inputs[i].constant;
  if (k && k->inline_values && k->floats.size() == 1) return k->floats[0];
  return std::nullopt;
}

Int float_range(const Ctx& c) {
  auto start = scalar_value(c, 0), limit = scalar_value(c, 1), delta = scalar_value(c, 2);
  if (!start || !limit || !delta || *delta == 0) return kUnknown;
  double n = std::ceil((*limit - *start) / *delta);
  return n < 1e15 ? static_cast<Int>(std::max(n, 0.0)) : kUnknown;
}

// max(0, ceil((limit - start) / delta)) where the symbols leave no doubt.
Int int_range(const Ctx& c, Int start, Int limit, Int delta) {
  if (delta == 0) fail(c, "delta is 0");
  if (!is_plain(delta)) return kUnknown;
  Int span = delta > 0 ? int_sub(limit, start) : int_sub(start, limit), step = delta > 0 ? delta : int_sub(0, delta);
  Tri negative = int_lt(span, 0);
  if (negative == Tri::kTrue) return 0;
  if (negative == Tri::kMaybe) return kUnknown;
  return int_div(int_add(span, step - 1), step);
}

void infer_range(Ctx& c) {
  int dtype = common_dtype(c, 0, 1);
  if (dtype == kUndefined || in(c, 2).dtype != kUndefined) dtype = common_dtype(c, 0, 2) == kUndefined ? dtype : common_dtype(c, 0, 2);
  for (size_t i = 0; i < 3; ++i)
    if (auto n = element_count(in(c, i)); n && *n != 1) fail(c, "input " + std::to_string(i) + " is not a scalar: " + shapes(c));
  auto start = known_ints(c, 0), limit = known_ints(c, 1), delta = known_ints(c, 2);
  bool known = start && limit && delta && start->size() == 1 && limit->size() == 1 && delta->size() == 1;
  if (!known) return set(c, 0, dtype, {float_range(c)});
  Int n = int_range(c, (*start)[0], (*limit)[0], (*delta)[0]);
  set(c, 0, dtype, {n});
  if (!is_plain(n) || n > kMaxMade || (dtype != kI64 && dtype != kI32)) return;
  IntVec values;
  for (Int i = 0; i < n; ++i) values.push_back(int_add((*start)[0], int_mul(i, (*delta)[0])));
  set_data(c, 0, std::move(values));
}

void infer_eye_like(Ctx& c) {
  require_rank(c, 0, 2, 2);
  Int dtype = c.attrs.get_int("dtype", in(c, 0).dtype);
  const TensorType& x = in(c, 0);
  if (ranked(x)) set(c, 0, static_cast<int>(dtype), x.dims);
  else set_rank(c, 0, static_cast<int>(dtype), 2);
}

}  // namespace

// clang-format off
void add_shape_rows(Table& t) {
  auto row = [&](const char* name, int since, int arity, InferFn rule, std::vector<AttrDefault> defaults = {},
                 std::vector<const char*> extra = {}) {
    t.add({.name = name, .since = since, .min_inputs = arity, .max_inputs = arity, .outputs = 1, .flags = kPure,
           .fusion = FusionClass::kMovement, .infer = rule, .defaults = std::move(defaults), .extra = std::move(extra)});
  };
  row("Shape", 1, 1, infer_shape, {{"start", Int{0}}}, {"end"});
  row("Size", 1, 1, infer_size);
  row("ConstantOfShape", 9, 1, infer_constant_of_shape, {{"dtype", Int{kF32}}, {"value", 0.0}});
  row("Range", 11, 3, infer_range);
  row("EyeLike", 9, 1, infer_eye_like, {{"k", Int{0}}}, {"dtype"});
}
// clang-format on

}  // namespace rlflow::detail
