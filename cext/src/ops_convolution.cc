// Windows over space: convolutions and pools of any spatial rank.
#include <algorithm>

#include "ops_common.h"

namespace rlflow::detail {

namespace {

struct Window {
  IntVec kernel, strides, dilations, pads;  // pads: begins, then ends
  Int extent(size_t i) const { return int_add(int_mul(int_sub(kernel[i], 1), dilations[i]), 1); }
  Int padding(size_t i) const { return int_add(pads[i], pads[i + kernel.size()]); }
};

Int ceil_div(Int a, Int b) { return int_div(int_add(a, int_sub(b, 1)), b); }

void require_positive(const Ctx& c, const IntVec& v, const char* name) {
  for (Int x : v)
    if (is_plain(x) && x < 1) fail(c, std::string(name) + "=" + ints_text(v) + " must be positive (" + shapes(c) + ")");
}

// Extra padding of one axis under SAME_*: what ceil(in / stride) outputs need. Unknown where the extent decides and is symbolic.
Int same_total(Int extent, Int window, Int stride) {
  if (stride == 1) return is_plain(window) ? window - 1 : kUnknown;
  if (!is_plain(extent) || !is_plain(window) || !is_plain(stride)) return kUnknown;
  return std::max<Int>((ceil_div(extent, stride) - 1) * stride + window - extent, 0);
}

// Turns auto_pad into explicit pads where the extents allow it; returns false where auto_pad must stay.
bool resolve_auto_pad(Ctx& c, const IntVec& space, Window& w) {
  std::string mode = c.attrs.get_string("auto_pad", "NOTSET");
  bool upper = mode == "SAME_UPPER";
  if (mode == "NOTSET" || mode == "VALID") {
    if (mode == "VALID") c.attrs.erase("pads");
  } else if (upper || mode == "SAME_LOWER") {
    size_t n = space.size();
    IntVec pads(2 * n);
    for (size_t i = 0; i < n; ++i) {
      Int total = same_total(space[i], w.extent(i), w.strides[i]);
      if (total == kUnknown) {
        c.attrs.erase("pads");
        return false;
      }
      pads[i] = upper ? total / 2 : total - total / 2;
      pads[i + n] = total - pads[i];
    }
    c.attrs.set("pads", pads);
  } else {
    fail(c, "auto_pad is \"" + mode + "\", expected NOTSET, VALID, SAME_UPPER or SAME_LOWER");
  }
  c.attrs.erase("auto_pad");
  w.pads = spatial(c, "pads", 2 * space.size(), 0);
  return true;
}

IntVec window_outputs(Ctx& c, const IntVec& space, const Window& w, bool ceil_mode) {
  IntVec out(space.size());
  for (size_t i = 0; i < space.size(); ++i) {
    Int room = int_sub(int_add(space[i], w.padding(i)), w.extent(i));
    if (is_plain(room) && room < 0 && space[i] != 0)
      fail(c, "the window does not fit: it spans " + int_text(w.extent(i)) + " of " + int_text(int_add(space[i], w.padding(i))) +
                  " padded elements on spatial axis " + std::to_string(i) + " (" + shapes(c) + ")");
    out[i] = int_add(ceil_mode ? ceil_div(room, w.strides[i]) : int_div(room, w.strides[i]), 1);
    if (ceil_mode && w.strides[i] != 1) {
      // A last window that starts in the padding at the end does not count.
      Int start = int_mul(int_sub(out[i], 1), w.strides[i]), limit = int_add(space[i], w.pads[i]);
      Tri inside = int_lt(start, limit);
      out[i] = inside == Tri::kTrue ? out[i] : inside == Tri::kFalse ? int_sub(out[i], 1) : kUnknown;
    }
    if (is_plain(out[i])) out[i] = std::max<Int>(out[i], 0);
  }
  return out;
}

IntVec sliding(Ctx& c, const IntVec& space, Window& w, bool ceil_mode) {
  require_positive(c, w.strides, "strides");
  require_positive(c, w.dilations, "dilations");
  require_positive(c, w.kernel, "kernel_shape");
  if (resolve_auto_pad(c, space, w)) return window_outputs(c, space, w, ceil_mode);
  IntVec out(space.size());
  for (size_t i = 0; i < space.size(); ++i) out[i] = ceil_div(space[i], w.strides[i]);
  return out;
}

// Strides, dilations and kernel of an operator with weights; the kernel comes from the weight where the attribute is absent.
Window weighted_window(Ctx& c, size_t n, const TensorType& weight) {
  Window w;
  w.strides = spatial(c, "strides", n, 1);
  w.dilations = spatial(c, "dilations", n, 1);
  const IntVec* given = c.attrs.find_ints("kernel_shape");
  IntVec of_weight = ranked(weight) ? IntVec(weight.dims.begin() + 2, weight.dims.end()) : IntVec(n, kUnknown);
  w.kernel = given && !given->empty() ? spatial(c, "kernel_shape", n, 1) : of_weight;
  for (size_t i = 0; i < n; ++i) w.kernel[i] = unify(c, w.kernel[i], of_weight[i], "kernel_shape and the weight's extents");
  if (std::all_of(w.kernel.begin(), w.kernel.end(), is_plain)) c.attrs.set("kernel_shape", w.kernel);
  return w;
}

Int positive_group(const Ctx& c) {
  Int group = c.attrs.get_int("group");
  if (!is_plain(group) || group < 1) fail(c, "group is " + int_text(group) + ", expected a positive integer");
  return group;
}

// Input 0 and the weight agree on rank; -1 where neither is known.
int window_rank(Ctx& c, size_t x, size_t w) {
  require_rank(c, x, 3);
  require_rank(c, w, 3);
  int a = in(c, x).rank, b = in(c, w).rank;
  if (a >= 0 && b >= 0 && a != b) fail(c, "ranks differ: " + shapes(c) + " (" + std::to_string(a) + " against " + std::to_string(b) + ")");
  return a >= 0 ? a : b;
}

IntVec dims_or_unknown(const TensorType& t, int rank) { return ranked(t) ? t.dims : IntVec(static_cast<size_t>(rank), kUnknown); }

void check_bias(const Ctx& c, size_t i, Int channels) {
  if (!present(c, i)) return;
  require_rank(c, i, 1, 1);
  if (ranked(in(c, i))) unify(c, in(c, i).dims[0], channels, "bias length and output channels");
}

}  // namespace

// Shape of a convolution of inputs x and w with bias b, set on output 0.
void set_convolution(Ctx& c, size_t x, size_t w, size_t b, int dtype) {
  int rank = window_rank(c, x, w);
  Int group = positive_group(c);
  if (rank < 0) return set_unranked(c, 0, dtype);
  IntVec data = dims_or_unknown(in(c, x), rank), weight = dims_or_unknown(in(c, w), rank);
  Int channels = int_mul(weight[1], group);
  if (int_eq(data[1], channels) == Tri::kFalse)
    fail(c, "channels differ: " + type_text(c.inputs[x].type) + " x " + type_text(c.inputs[w].type) + " with group " + int_text(group) + " (" +
                int_text(data[1]) + " against " + int_text(channels) + ")");
  if (is_plain(weight[0]) && weight[0] % group != 0)
    fail(c, int_text(weight[0]) + " output channels do not divide into " + int_text(group) + " groups (" + shapes(c) + ")");
  check_bias(c, b, weight[0]);
  Window window = weighted_window(c, static_cast<size_t>(rank) - 2, in(c, w));
  IntVec out{data[0], weight[0]};
  IntVec space = sliding(c, IntVec(data.begin() + 2, data.end()), window, false);
  out.insert(out.end(), space.begin(), space.end());
  set(c, 0, dtype, out);
}

namespace {

void infer_conv(Ctx& c) {
  int dtype = common_dtype(c, 0, 1);
  if (present(c, 2)) common_dtype(c, 0, 2);
  set_convolution(c, 0, 1, 2, dtype);
}
void infer_conv_integer(Ctx& c) { set_convolution(c, 0, 1, 99, kI32); }

double plain_or_one(const TensorType& t, size_t i) { return i < t.dims.size() && is_plain(t.dims[i]) ? static_cast<double>(t.dims[i]) : 1; }
double per_output(const TensorType& weight) {
  double n = 1;
  for (size_t i = 1; i < weight.dims.size(); ++i) n *= plain_or_one(weight, i);
  return n;
}
double conv_flops(const AttrSet&, std::span<const TypeId> in, std::span<const TypeId> out) {
  return count(out[0]) * (2 * per_output(type_of(in[1])) + (in.size() > 2 ? 1 : 0));
}
double conv_integer_flops(const AttrSet&, std::span<const TypeId> in, std::span<const TypeId> out) {
  return count(out[0]) * 2 * per_output(type_of(in[1]));
}
double conv_transpose_flops(const AttrSet&, std::span<const TypeId> in, std::span<const TypeId> out) {
  return count(in[0]) * 2 * per_output(type_of(in[1])) + (in.size() > 2 ? count(out[0]) : 0);
}

// ---- ConvTranspose ----------------------------------------------------------------------------------------------------------
// Extent without padding.
Int full_extent(Int in, const Window& w, const IntVec& output_padding, size_t i) {
  return int_add(int_add(int_mul(w.strides[i], int_sub(in, 1)), output_padding[i]), w.extent(i));
}

// Pads that give the wanted extents; false where they cannot be said: a symbolic extent, or less than nothing to cut off. Then the
// runtime gives what there is, which is not what is wanted, so that the extent is not known.
bool transposed_pads(const IntVec& space, IntVec& wanted, const Window& w, const IntVec& output_padding, bool upper, IntVec& pads) {
  size_t n = space.size();
  pads.assign(2 * n, 0);
  bool said = true;
  for (size_t i = 0; i < n; ++i) {
    Int total = int_sub(full_extent(space[i], w, output_padding, i), wanted[i]);
    said = said && is_plain(total) && total >= 0;
    if (int_lt(total, 0) == Tri::kTrue) wanted[i] = kUnknown;
    if (!said) continue;
    pads[i] = upper ? total / 2 : total - total / 2;
    pads[i + n] = total - pads[i];
  }
  return said;
}

IntVec transposed_space(Ctx& c, const IntVec& space, Window& w) {
  size_t n = space.size();
  IntVec output_padding = spatial(c, "output_padding", n, 0), wanted(n);
  std::string mode = c.attrs.get_string("auto_pad", "NOTSET");
  const IntVec* given = c.attrs.find_ints("output_shape");
  bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (!same && mode != "NOTSET" && mode != "VALID") fail(c, "auto_pad is \"" + mode + "\", expected NOTSET, VALID, SAME_UPPER or SAME_LOWER");
  if (same || (given && !given->empty())) {
    if (given && !given->empty()) wanted = spatial(c, "output_shape", n, 0);
    else
      for (size_t i = 0; i < n; ++i) wanted[i] = int_mul(space[i], w.strides[i]);
    IntVec pads;
    c.attrs.erase("pads");
    if (!transposed_pads(space, wanted, w, output_padding, mode == "SAME_UPPER", pads)) return wanted;
    c.attrs.set("pads", pads);
  } else if (mode == "VALID") {
    c.attrs.erase("pads");
  }
  c.attrs.erase("output_shape");
  c.attrs.erase("auto_pad");
  w.pads = spatial(c, "pads", 2 * n, 0);
  for (size_t i = 0; i < n; ++i) {
    wanted[i] = int_sub(full_extent(space[i], w, output_padding, i), w.padding(i));
    if (is_plain(wanted[i]) && wanted[i] < 0)
      fail(c, "pads=" + ints_text(w.pads) + " cut off more than there is on spatial axis " + std::to_string(i) + " (" + shapes(c) + ")");
  }
  return wanted;
}

void infer_conv_transpose(Ctx& c) {
  int dtype = common_dtype(c, 0, 1);
  if (present(c, 2)) common_dtype(c, 0, 2);
  int rank = window_rank(c, 0, 1);
  Int group = positive_group(c);
  if (rank < 0) return set_unranked(c, 0, dtype);
  IntVec data = dims_or_unknown(in(c, 0), rank), weight = dims_or_unknown(in(c, 1), rank);
  unify(c, data[1], weight[0], "channels");
  if (is_plain(weight[0]) && weight[0] % group != 0)
    fail(c, int_text(weight[0]) + " input channels do not divide into " + int_text(group) + " groups (" + shapes(c) + ")");
  Int channels = int_mul(weight[1], group);
  check_bias(c, 2, channels);
  Window window = weighted_window(c, static_cast<size_t>(rank) - 2, in(c, 1));
  require_positive(c, window.strides, "strides");
  require_positive(c, window.dilations, "dilations");
  IntVec out{data[0], channels};
  IntVec space = transposed_space(c, IntVec(data.begin() + 2, data.end()), window);
  out.insert(out.end(), space.begin(), space.end());
  set(c, 0, dtype, out);
}

// ---- pools ------------------------------------------------------------------------------------------------------------------
void infer_pool(Ctx& c) {
  require_outputs(c, 2);
  require_rank(c, 0, 3);
  const TensorType& x = in(c, 0);
  const IntVec kernel = c.attrs.get_ints("kernel_shape");  // a copy: attributes are added below
  size_t n = kernel.size();
  if (ranked(x) && x.dims.size() != n + 2)
    fail(c, "kernel_shape=" + ints_text(kernel) + " has " + std::to_string(n) + " entries for " + type_text(c.inputs[0].type) + ", expected " +
                std::to_string(x.rank - 2));
  Window w;
  w.kernel = kernel;
  w.strides = spatial(c, "strides", n, 1);
  w.dilations = spatial(c, "dilations", n, 1);
  if (c.attrs.get_string("auto_pad", "NOTSET").starts_with("SAME") &&
      std::any_of(w.dilations.begin(), w.dilations.end(), [](Int d) { return d != 1; }))
    fail(c, "auto_pad of a dilated window means other pads to some runtimes (" + shapes(c) + ")");
  c.attrs.set("ceil_mode", Int{c.attrs.get_int("ceil_mode") != 0});
  IntVec dims = dims_or_unknown(x, static_cast<int>(n) + 2);
  IntVec out{dims[0], dims[1]};
  IntVec space = sliding(c, IntVec(dims.begin() + 2, dims.end()), w, c.attrs.get_int("ceil_mode") != 0);
  out.insert(out.end(), space.begin(), space.end());
  set(c, 0, x.dtype, out);
  set(c, 1, kI64, out);
}

void infer_global_pool(Ctx& c) {
  require_rank(c, 0, 2);
  const TensorType& x = in(c, 0);
  if (!ranked(x)) return set_unranked(c, 0, x.dtype);
  IntVec out(x.dims.size(), 1);
  std::copy_n(x.dims.begin(), 2, out.begin());
  set(c, 0, x.dtype, out);
}

double pool_flops(const AttrSet& attrs, std::span<const TypeId>, std::span<const TypeId> out) {
  double n = count(out[0]);
  if (const IntVec* kernel = attrs.find_ints("kernel_shape"))
    for (Int k : *kernel) n *= is_plain(k) ? static_cast<double>(k) : 1;
  return n;
}

// Output like the grid's space: X (N, C, ...), grid (N, ..., r).
void infer_grid_sample(Ctx& c) {
  const TensorType &x = in(c, 0), &grid = in(c, 1);
  int rank = window_rank(c, 0, 1);
  if (rank < 0) return set_unranked(c, 0, x.dtype);
  IntVec a = dims_or_unknown(x, rank), g = dims_or_unknown(grid, rank);
  IntVec out{unify(c, a[0], g[0], "batch dimensions"), a[1]};
  out.insert(out.end(), g.begin() + 1, g.end() - 1);
  set(c, 0, x.dtype, out);
}

}  // namespace

// clang-format off
void add_convolution_rows(Table& t) {
  constexpr auto anchor = FusionClass::kAnchor, reduction = FusionClass::kReduction;
  const std::vector<AttrDefault> group{{"group", Int{1}}};
  t.add({.name = "Conv", .since = 1, .min_inputs = 2, .max_inputs = 3, .outputs = 1, .flags = kPure, .fusion = anchor,
         .infer = infer_conv, .defaults = group, .extra = {"auto_pad", "dilations", "kernel_shape", "pads", "strides"},
         .flops = conv_flops});
  t.add({.name = "ConvInteger", .since = 10, .min_inputs = 2, .max_inputs = 4, .outputs = 1, .flags = kPure, .fusion = anchor,
         .infer = infer_conv_integer, .defaults = group, .extra = {"auto_pad", "dilations", "kernel_shape", "pads", "strides"},
         .flops = conv_integer_flops});
  t.add({.name = "ConvTranspose", .since = 1, .min_inputs = 2, .max_inputs = 3, .outputs = 1, .flags = kPure, .fusion = anchor,
         .infer = infer_conv_transpose, .defaults = group,
         .extra = {"auto_pad", "dilations", "kernel_shape", "output_padding", "output_shape", "pads", "strides"},
         .flops = conv_transpose_flops});
  const std::vector<const char*> window{"auto_pad", "dilations", "kernel_shape", "pads", "strides"};
  t.add({.name = "MaxPool", .since = 1, .min_inputs = 1, .max_inputs = 1, .outputs = 1, .flags = kPure | kVariadicOutputs, .fusion = reduction,
         .infer = infer_pool, .defaults = {{"ceil_mode", Int{0}}, {"storage_order", Int{0}}}, .extra = window, .flops = pool_flops});
  t.add({.name = "AveragePool", .since = 1, .min_inputs = 1, .max_inputs = 1, .outputs = 1, .flags = kPure, .fusion = reduction,
         .infer = infer_pool, .defaults = {{"ceil_mode", Int{0}}, {"count_include_pad", Int{0}}}, .extra = window, .flops = pool_flops});
  t.add({.name = "LpPool", .since = 2, .min_inputs = 1, .max_inputs = 1, .outputs = 1, .flags = kPure, .fusion = reduction,
         .infer = infer_pool, .defaults = {{"ceil_mode", Int{0}}, {"p", Int{2}}}, .extra = window, .flops = pool_flops});
  auto global = [&](const char* name, int since, std::vector<AttrDefault> defaults) {
    t.add({.name = name, .since = since, .min_inputs = 1, .max_inputs = 1, .outputs = 1, .flags = kPure, .fusion = reduction,
           .infer = infer_global_pool, .defaults = std::move(defaults), .flops_per_input = 1});
  };
  global("GlobalAveragePool", 1, {});
  global("GlobalMaxPool", 1, {});
  global("GlobalLpPool", 2, {{"p", Int{2}}});
  t.add({.name = "GridSample", .since = 20, .min_inputs = 2, .max_inputs = 2, .outputs = 1, .flags = kPure,
         .fusion = FusionClass::kMovement, .infer = infer_grid_sample,
         .defaults = {{"align_corners", Int{0}}, {"mode", std::string("linear")}, {"padding_mode", std::string("zeros")}},
         .flops_per_output = 16});
}
// clang-format on

}  // namespace rlflow::detail
