// Pointwise operators: unary, broadcasting binary and variadic, Where, Cast, Clip.
#include <algorithm>

#include "ops_common.h"

namespace rlflow::detail {
namespace {

// ---- known values -----------------------------------------------------------------------------------------------------------
constexpr Int of(Tri t) { return t == Tri::kMaybe ? kUnknown : Int{t == Tri::kTrue}; }
constexpr Tri to_tri(Int v) { return !is_plain(v) ? Tri::kMaybe : v != 0 ? Tri::kTrue : Tri::kFalse; }

bool carries_data(int dtype) { return dtype == kI64 || dtype == kI32 || dtype == kBool; }

// A value that the element type cannot hold is not known (the runtime would wrap it).
Int fit(int dtype, Int v) { return dtype == kI32 && is_plain(v) && (v > INT32_MAX || v < INT32_MIN) ? kUnknown : v; }

using BinaryFn = Int (*)(Int, Int);

const IntVec* data(const Ctx& c, size_t i) { return present(c, i) && carries_data(in(c, i).dtype) ? c.inputs[i].data : nullptr; }

// Element i of a list that may be broadcast from one element.
Int element(const IntVec& v, size_t i) { return v.size() == 1 ? v[0] : v[i]; }

bool broadcast_size(std::initializer_list<const IntVec*> lists, size_t& size) {
  size = 1;
  for (const IntVec* v : lists) {
    if (!v) return false;
    if (v->size() == 1) continue;
    if (size != 1 && size != v->size()) return false;
    size = v->size();
  }
  return true;
}

void set_binary_data(Ctx& c, int dtype, BinaryFn f) {
  size_t n = 0;
  if (c.inputs.size() != 2 || !f || !broadcast_size({data(c, 0), data(c, 1)}, n)) return;
  IntVec out(n);
  for (size_t i = 0; i < n; ++i) out[i] = fit(dtype, f(element(*data(c, 0), i), element(*data(c, 1), i)));
  set_data(c, 0, std::move(out));
}

void set_unary_data(Ctx& c, int dtype, Int (*f)(Int)) {
  const IntVec* v = data(c, 0);
  if (!v) return;
  IntVec out(v->size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = fit(dtype, f((*v)[i]));
  set_data(c, 0, std::move(out));
}

// ONNX divides integers towards zero; int_div floors. They agree when nothing is left over or no sign differs.
Int truncated_div(Int a, Int b) {
  if (is_plain(a) && is_plain(b)) return b == 0 ? kUnknown : a / b;
  Int q = int_div(a, b);
  if (q == kUnknown || int_mul(q, b) == a) return q;
  return int_lt(a, 0) == Tri::kFalse && int_lt(b, 0) == Tri::kFalse ? q : kUnknown;
}
Int smaller(Int a, Int b) {
  if (a == b) return a;
  if (int_lt(b, a) == Tri::kFalse) return a;
  return int_lt(a, b) == Tri::kFalse ? b : kUnknown;
}
Int larger(Int a, Int b) {
  if (a == b) return a;
  if (int_lt(a, b) == Tri::kFalse) return a;
  return int_lt(b, a) == Tri::kFalse ? b : kUnknown;
}
Int negated(Int a) { return int_sub(0, a); }
Int absolute(Int a) { return larger(a, negated(a)); }
Int unchanged(Int a) { return a; }
Int is_nonzero(Int a) { return of(tri_not(int_eq(a, 0))); }
Int logical_not(Int a) { return of(tri_not(to_tri(a))); }
Int logical_and(Int a, Int b) { return of(tri_and(to_tri(a), to_tri(b))); }
Int logical_or(Int a, Int b) { return of(tri_or(to_tri(a), to_tri(b))); }
Int equal(Int a, Int b) { return of(int_eq(a, b)); }
Int less(Int a, Int b) { return of(int_lt(a, b)); }
Int greater(Int a, Int b) { return of(int_lt(b, a)); }
Int less_equal(Int a, Int b) { return of(tri_not(int_lt(b, a))); }
Int greater_equal(Int a, Int b) { return of(tri_not(int_lt(a, b))); }

// ---- shape rules ------------------------------------------------------------------------------------------------------------
bool is_bool(int dtype) { return dtype == kBool; }

template <Int (*F)(Int)>
void infer_unary_ints(Ctx& c) {
  infer_like_first(c);
  set_unary_data(c, in(c, 0).dtype, F);
}
void infer_not(Ctx& c) {
  require_dtype(c, 0, is_bool, "bool");
  set_like(c, 0, kBool, in(c, 0));
  set_unary_data(c, kBool, logical_not);
}
void infer_test(Ctx& c) { set_like(c, 0, kBool, in(c, 0)); }

void set_broadcast(Ctx& c, int dtype) {
  TensorType t = broadcast(c, in(c, 0), in(c, 1));
  set_like(c, 0, dtype, t);
}

template <BinaryFn F>
void infer_arithmetic(Ctx& c) {
  int dtype = common_dtype(c, 0, 1);
  set_broadcast(c, dtype);
  set_binary_data(c, dtype, F);
}
template <BinaryFn F>
void infer_comparison(Ctx& c) {
  common_dtype(c, 0, 1);
  set_broadcast(c, kBool);
  set_binary_data(c, kBool, F);
}
template <BinaryFn F>
void infer_logical(Ctx& c) {
  require_dtype(c, 0, is_bool, "bool");
  require_dtype(c, 1, is_bool, "bool");
  set_broadcast(c, kBool);
  set_binary_data(c, kBool, F);
}
void infer_arithmetic_only(Ctx& c) { set_broadcast(c, common_dtype(c, 0, 1)); }
void infer_pow(Ctx& c) { set_broadcast(c, in(c, 0).dtype); }  // the exponent may have a type of its own
void infer_shift(Ctx& c) {
  std::string direction = c.attrs.get_string("direction");
  if (direction != "LEFT" && direction != "RIGHT") fail(c, "direction is \"" + direction + "\", expected \"LEFT\" or \"RIGHT\"");
  set_broadcast(c, common_dtype(c, 0, 1));
}
void infer_mod(Ctx& c) {
  int dtype = common_dtype(c, 0, 1);
  set_broadcast(c, dtype);
  if (c.attrs.get_int("fmod") == 0) set_binary_data(c, dtype, int_mod);  // fmod takes the dividend's sign instead
}

void infer_prelu(Ctx& c) {
  common_dtype(c, 0, 1);
  infer_like_first(c);
  const TensorType &x = in(c, 0), &slope = in(c, 1);
  if (!ranked(x) || !ranked(slope)) return;
  for (int i = 1; i <= slope.rank; ++i) {
    Int s = slope.dims[static_cast<size_t>(slope.rank - i)];
    Int d = i <= x.rank ? x.dims[static_cast<size_t>(x.rank - i)] : 1;
    if (is_plain(s) && is_plain(d) && s != 1 && s != d)
      fail(c, "the slope does not broadcast to the input: " + shapes(c) + " (" + int_text(s) + " against " + int_text(d) + ")");
  }
}

void infer_variadic(Ctx& c, BinaryFn f) {
  TensorType t = in(c, 0);
  int dtype = t.dtype;
  bool all_ranked = ranked(t);
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    int d = common_dtype(c, 0, i);
    dtype = dtype == kUndefined ? d : dtype;
    all_ranked = all_ranked && ranked(in(c, i));
    if (all_ranked) t = broadcast(c, t, in(c, i));
  }
  if (all_ranked) set(c, 0, dtype, t.dims);
  else set_unranked(c, 0, dtype);
  if (c.inputs.size() == 1 && data(c, 0)) set_data(c, 0, *data(c, 0));
  set_binary_data(c, dtype, f);
}
void infer_min(Ctx& c) { infer_variadic(c, smaller); }
void infer_max(Ctx& c) { infer_variadic(c, larger); }
void infer_sum(Ctx& c) { infer_variadic(c, int_add); }
void infer_mean(Ctx& c) { infer_variadic(c, nullptr); }

void infer_where(Ctx& c) {
  require_dtype(c, 0, is_bool, "bool");
  int dtype = common_dtype(c, 1, 2);
  TensorType t = broadcast(c, broadcast(c, in(c, 1), in(c, 2)), in(c, 0));
  set_like(c, 0, dtype, t);
  size_t n = 0;
  if (!carries_data(dtype) || !broadcast_size({data(c, 0), data(c, 1), data(c, 2)}, n)) return;
  IntVec out(n);
  for (size_t i = 0; i < n; ++i) {
    Int yes = element(*data(c, 1), i), no = element(*data(c, 2), i);
    Tri condition = to_tri(element(*data(c, 0), i));
    out[i] = condition == Tri::kTrue ? yes : condition == Tri::kFalse ? no : yes == no ? yes : kUnknown;
  }
  set_data(c, 0, std::move(out));
}

void infer_cast(Ctx& c) {
  Int to = c.attrs.get_int("to");
  if (!is_plain(to) || to <= 0) fail(c, "attribute 'to' is " + int_text(to) + ", expected the number of an element type");
  int dtype = static_cast<int>(to);
  set_like(c, 0, dtype, in(c, 0));
  if (dtype == kBool) set_unary_data(c, dtype, is_nonzero);
  else if (carries_data(dtype)) set_unary_data(c, dtype, unchanged);
}

void infer_clip(Ctx& c) {
  for (size_t i : {size_t{1}, size_t{2}}) {
    if (!present(c, i)) continue;
    common_dtype(c, 0, i);
    auto n = element_count(in(c, i));
    if (n && *n != 1) fail(c, "a bound is not a scalar: " + shapes(c));
  }
  infer_like_first(c);
}

void infer_gelu(Ctx& c) {
  std::string how = c.attrs.get_string("approximate");
  if (how != "none" && how != "tanh") fail(c, "approximate is \"" + how + "\", expected \"none\" or \"tanh\"");
  infer_like_first(c);
}

constexpr uint32_t kPoint = kPure | kUnary;
constexpr uint32_t kZero = kPoint | kZeroPreserving;
constexpr uint32_t kUp = kPoint | kMonotone;
constexpr uint32_t kZeroUp = kZero | kMonotone;
constexpr double kCheap = 1, kTranscendental = 8;

// clang-format off
void add_unary_rows(Table& t) {
  auto unary = [&](const char* name, int since, uint32_t flags, double flops, std::vector<AttrDefault> defaults = {},
                   InferFn rule = infer_like_first) {
    t.add({.name = name, .since = since, .min_inputs = 1, .max_inputs = 1, .outputs = 1, .flags = flags,
           .fusion = FusionClass::kElementwise, .infer = rule, .defaults = std::move(defaults), .flops_per_output = flops});
  };
  unary("Abs", 1, kZero, kCheap, {}, infer_unary_ints<absolute>);
  unary("Acos", 7, kPoint, kTranscendental);
  unary("Acosh", 9, kPoint, kTranscendental);
  unary("Asin", 7, kZeroUp, kTranscendental);
  unary("Asinh", 9, kZeroUp, kTranscendental);
  unary("Atan", 7, kZeroUp, kTranscendental);
  unary("Atanh", 9, kZeroUp, kTranscendental);
  unary("BitwiseNot", 18, kPoint, kCheap);
  unary("Ceil", 1, kZeroUp, kCheap);
  unary("Celu", 12, kZero, kTranscendental, {{"alpha", 1.0}});
  unary("Cos", 7, kPoint, kTranscendental);
  unary("Cosh", 9, kPoint, kTranscendental);
  unary("Elu", 1, kZero, kTranscendental, {{"alpha", 1.0}});
  unary("Erf", 9, kZeroUp, kTranscendental);
  unary("Exp", 1, kUp, kTranscendental);
  unary("Floor", 1, kZeroUp, kCheap);
  unary("Gelu", 20, kZero, kTranscendental, {{"approximate", std::string("none")}}, infer_gelu);
  unary("HardSigmoid", 1, kPoint, 4, {{"alpha", 0.2}, {"beta", 0.5}});
  unary("HardSwish", 14, kZero, 5);
  unary("IsInf", 10, kPoint, kCheap, {{"detect_negative", Int{1}}, {"detect_positive", Int{1}}}, infer_test);
  unary("IsNaN", 9, kPoint, kCheap, {}, infer_test);
  unary("LeakyRelu", 1, kZero, 2, {{"alpha", 0.01}});
  unary("Log", 1, kUp, kTranscendental);
  unary("Mish", 18, kZero, 2 * kTranscendental);
  unary("Neg", 1, kZero, kCheap, {}, infer_unary_ints<negated>);
  unary("Not", 1, kPoint, kCheap, {}, infer_not);
  unary("Reciprocal", 1, kPoint, 4);
  unary("Relu", 1, kZeroUp, kCheap);
  unary("Round", 11, kZeroUp, kCheap);
  unary("Selu", 1, kZero, kTranscendental, {{"alpha", 1.67326319217681884765625}, {"gamma", 1.05070102214813232421875}});
  unary("Shrink", 9, kPoint, 3, {{"bias", 0.0}, {"lambd", 0.5}});
  unary("Sigmoid", 1, kUp, kTranscendental);
  unary("Sign", 9, kZeroUp, kCheap);
  unary("Sin", 7, kZero, kTranscendental);
  unary("Sinh", 9, kZeroUp, kTranscendental);
  unary("Softplus", 1, kUp, kTranscendental);
  unary("Softsign", 1, kZeroUp, 5);
  unary("Sqrt", 1, kZeroUp, 4);
  unary("Swish", 24, kZero, kTranscendental, {{"alpha", 1.0}});
  unary("Tan", 7, kZero, kTranscendental);
  unary("Tanh", 1, kZeroUp, kTranscendental);
  unary("ThresholdedRelu", 10, kZero, kCheap, {{"alpha", 1.0}});
  t.add({.name = "Cast", .since = 1, .min_inputs = 1, .max_inputs = 1, .outputs = 1, .flags = kZero, .fusion = FusionClass::kElementwise,
         .infer = infer_cast, .defaults = {{"round_mode", std::string("up")}, {"saturate", Int{1}}}, .extra = {"to"},
         .flops_per_output = kCheap});
  t.add({.name = "Clip", .since = 1, .min_inputs = 1, .max_inputs = 3, .outputs = 1, .flags = kUp, .fusion = FusionClass::kElementwise,
         .infer = infer_clip, .flops_per_output = 2});
  t.add({.name = "Identity", .since = 1, .min_inputs = 1, .max_inputs = 1, .outputs = 1, .flags = kZeroUp, .fusion = FusionClass::kView,
         .infer = infer_unary_ints<unchanged>});
}
// clang-format on

// clang-format off
void add_binary_rows(Table& t) {
  constexpr uint32_t plain = kPure | kBinary, swaps = plain | kCommutative;
  auto binary = [&](const char* name, int since, uint32_t flags, InferFn rule, double flops = kCheap,
                    std::vector<AttrDefault> defaults = {}, std::vector<const char*> extra = {}) {
    t.add({.name = name, .since = since, .min_inputs = 2, .max_inputs = 2, .outputs = 1, .flags = flags,
           .fusion = FusionClass::kElementwise, .infer = rule, .defaults = std::move(defaults), .extra = std::move(extra),
           .flops_per_output = flops});
  };
  binary("Add", 7, swaps, infer_arithmetic<int_add>);
  binary("Sub", 7, plain, infer_arithmetic<int_sub>);
  binary("Mul", 7, swaps, infer_arithmetic<int_mul>);
  binary("Div", 7, plain, infer_arithmetic<truncated_div>, 4);
  binary("Pow", 7, plain, infer_pow, 2 * kTranscendental);
  binary("PRelu", 7, plain, infer_prelu, 2);
  binary("Mod", 10, plain, infer_mod, 4, {{"fmod", Int{0}}});
  binary("And", 7, swaps, infer_logical<logical_and>);
  binary("Or", 7, swaps, infer_logical<logical_or>);
  binary("Xor", 7, swaps, infer_logical<nullptr>);
  binary("Equal", 7, swaps, infer_comparison<equal>);
  binary("Greater", 7, plain, infer_comparison<greater>);
  binary("GreaterOrEqual", 12, plain, infer_comparison<greater_equal>);
  binary("Less", 7, plain, infer_comparison<less>);
  binary("LessOrEqual", 12, plain, infer_comparison<less_equal>);
  binary("BitShift", 11, plain, infer_shift, kCheap, {}, {"direction"});
  binary("BitwiseAnd", 18, swaps, infer_arithmetic_only);
  binary("BitwiseOr", 18, swaps, infer_arithmetic_only);
  binary("BitwiseXor", 18, swaps, infer_arithmetic_only);
}
// clang-format on

double variadic_flops(const AttrSet&, std::span<const TypeId> inputs, std::span<const TypeId> outputs) {
  return outputs.empty() ? 0 : count(outputs[0]) * static_cast<double>(std::max<size_t>(inputs.size(), 2) - 1);
}

// clang-format off
void add_variadic_rows(Table& t) {
  auto variadic = [&](const char* name, int since, InferFn rule) {
    t.add({.name = name, .since = since, .min_inputs = 1, .max_inputs = -1, .outputs = 1, .flags = kPure | kCommutative,
           .fusion = FusionClass::kElementwise, .infer = rule, .flops = variadic_flops});
  };
  variadic("Max", 8, infer_max);  // broadcasting came with opset 8
  variadic("Min", 8, infer_min);
  variadic("Sum", 8, infer_sum);
  variadic("Mean", 8, infer_mean);
  t.add({.name = "Where", .since = 9, .min_inputs = 3, .max_inputs = 3, .outputs = 1, .flags = kPure,
         .fusion = FusionClass::kElementwise, .infer = infer_where, .flops_per_output = kCheap});
}
// clang-format on

}  // namespace

// clang-format off
void add_elementwise_rows(Table& t) {
  add_unary_rows(t);
  add_binary_rows(t);
  add_variadic_rows(t);
}
// clang-format on

}  // namespace rlflow::detail
