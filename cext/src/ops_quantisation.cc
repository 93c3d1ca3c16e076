// Quantisation, and the operators that compute on quantised tensors.
#include "ops_common.h"

namespace rlflow::detail {

void set_matmul(Ctx& c, size_t a, size_t b, int dtype);                     // ops_linear.cc
void set_convolution(Ctx& c, size_t x, size_t w, size_t b, int dtype);      // ops_convolution.cc

namespace {

// Scale and zero point agree; the axis counts only for a scale with one entry a slice (or a block).
void check_scale(Ctx& c) {
  const TensorType &x = in(c, 0), &scale = in(c, 1), &zero = in(c, 2);
  if (present(c, 2) && ranked(scale) && ranked(zero) && scale.rank == zero.rank)
    for (size_t i = 0; i < scale.dims.size(); ++i) unify(c, scale.dims[i], zero.dims[i], "extents of scale and zero point");
  if (!ranked(x) || !ranked(scale) || scale.rank == 0) return;
  auto n = element_count(scale);
  if (scale.rank == 1 && n && *n == 1 && x.rank <= 1) return;
  Int axis = canonical_axis(c, "axis", x.rank);
  if (scale.rank == 1 && !(n && *n == 1)) unify(c, scale.dims[0], x.dims[static_cast<size_t>(axis)], "length of the scale and the axis");
}

void infer_quantize(Ctx& c) {
  check_scale(c);
  Int wanted = c.attrs.get_int("output_dtype");
  int zero = in(c, 2).dtype, dtype = wanted != 0 ? static_cast<int>(wanted) : present(c, 2) ? zero : int{kU8};
  if (wanted != 0 && present(c, 2) && zero != kUndefined && zero != dtype)
    fail(c, "output_dtype is " + std::string(dtype_name(dtype)) + ", but the zero point is " + type_text(c.inputs[2].type));
  set_like(c, 0, dtype, in(c, 0));
}

void infer_dequantize(Ctx& c) {
  common_dtype(c, 0, 2);
  check_scale(c);
  Int wanted = c.attrs.get_int("output_dtype");
  set_like(c, 0, wanted != 0 ? static_cast<int>(wanted) : in(c, 1).dtype, in(c, 0));
}

void infer_dynamic_quantize(Ctx& c) {
  set_like(c, 0, kU8, in(c, 0));
  set(c, 1, kF32, {});
  set(c, 2, kU8, {});
}

// Inputs: x, its scale and zero point, w, its scale and zero point, the output's scale and zero point (and a bias).
void infer_qlinear_conv(Ctx& c) { set_convolution(c, 0, 3, 8, in(c, 7).dtype); }
void infer_qlinear_matmul(Ctx& c) { set_matmul(c, 0, 3, in(c, 7).dtype); }

double extent(TypeId type, size_t axis) {
  const TensorType& t = type_of(type);
  return axis < t.dims.size() && is_plain(t.dims[axis]) ? static_cast<double>(t.dims[axis]) : 1;
}
double qlinear_conv_flops(const AttrSet&, std::span<const TypeId> in, std::span<const TypeId> out) {
  double n = 2 * count(out[0]);
  for (size_t i = 1; i < type_of(in[3]).dims.size(); ++i) n *= extent(in[3], i);
  return n;
}
double qlinear_matmul_flops(const AttrSet&, std::span<const TypeId> in, std::span<const TypeId> out) {
  size_t rank = type_of(in[0]).dims.size();
  return 2 * count(out[0]) * (rank ? extent(in[0], rank - 1) : 1);
}

}  // namespace

// clang-format off
void add_quantisation_rows(Table& t) {
  constexpr auto point = FusionClass::kElementwise, anchor = FusionClass::kAnchor;
  const AttrDefault axis{"axis", Int{1}}, block{"block_size", Int{0}}, output{"output_dtype", Int{0}};
  t.add({.name = "QuantizeLinear", .since = 10, .min_inputs = 2, .max_inputs = 3, .outputs = 1, .flags = kPure, .fusion = point,
         .infer = infer_quantize, .defaults = {axis, block, output, {"precision", Int{0}}, {"saturate", Int{1}}},
         .flops_per_output = 4});
  t.add({.name = "DequantizeLinear", .since = 10, .min_inputs = 2, .max_inputs = 3, .outputs = 1, .flags = kPure, .fusion = point,
         .infer = infer_dequantize, .defaults = {axis, block, output}, .flops_per_output = 2});
  t.add({.name = "DynamicQuantizeLinear", .since = 11, .min_inputs = 1, .max_inputs = 1, .outputs = 3, .flags = kPure,
         .fusion = FusionClass::kReduction, .infer = infer_dynamic_quantize, .flops_per_input = 6});
  t.add({.name = "QLinearConv", .since = 10, .min_inputs = 8, .max_inputs = 9, .outputs = 1, .flags = kPure, .fusion = anchor,
         .infer = infer_qlinear_conv, .defaults = {{"group", Int{1}}},
         .extra = {"auto_pad", "dilations", "kernel_shape", "pads", "strides"}, .flops = qlinear_conv_flops});
  t.add({.name = "QLinearMatMul", .since = 10, .min_inputs = 8, .max_inputs = 8, .outputs = 1, .flags = kPure, .fusion = anchor,
         .infer = infer_qlinear_matmul, .flops = qlinear_matmul_flops});
}
// clang-format on

}  // namespace rlflow::detail
