// Views, which rename a tensor and move nothing: Reshape, Flatten, Squeeze, Unsqueeze.
#include <algorithm>
#include <numeric>

#include "ops_common.h"

namespace rlflow::detail {
namespace {

// ---- Reshape ----------------------------------------------------------------------------------------------------------------
// Input dim that output dim i copies under a 0; unknown where the input's rank is.
Int copied_dim(const Ctx& c, size_t i) {
  const TensorType& x = in(c, 0);
  if (!ranked(x)) return kUnknown;
  if (i >= x.dims.size()) fail(c, "entry " + std::to_string(i) + " of the shape is 0 (copy), but the input is " + type_text(c.inputs[0].type));
  return x.dims[i];
}

// Elements of the input that the other output dims do not account for. Dims copied by position cancel, known or not.
Int remaining_dim(const Ctx& c, const IntVec& out, const std::vector<bool>& copied, size_t hole) {
  const TensorType& x = in(c, 0);
  if (!ranked(x)) return kUnknown;
  Int have = 1, used = 1;
  for (size_t i = 0; i < x.dims.size(); ++i)
    if (i >= out.size() || !copied[i]) have = int_mul(have, x.dims[i]);
  for (size_t i = 0; i < out.size(); ++i)
    if (i != hole && !copied[i]) used = int_mul(used, out[i]);
  Int left = int_div(have, used);
  if (left != kUnknown && int_eq(int_mul(left, used), have) == Tri::kFalse)
    fail(c, int_text(have) + " elements do not divide by " + int_text(used) + ": " + type_text(c.inputs[0].type) + " to " + ints_text(out));
  return left != kUnknown && int_mul(left, used) == have ? left : kUnknown;
}

void check_count(const Ctx& c, const IntVec& out) {
  const TensorType& x = in(c, 0);
  if (!ranked(x)) return;
  Int have = product(x.dims), want = product(out);
  if (int_eq(have, want) == Tri::kFalse)
    fail(c, "element counts differ: " + type_text(c.inputs[0].type) + " to " + ints_text(out) + " (" + int_text(have) + " against " + int_text(want) +
                ")");
}

// Output dims of a target that may hold 0 (copy), one -1 (the rest) and unknown entries.
IntVec resolve_shape(const Ctx& c, const IntVec& target, bool allow_zero) {
  IntVec out = target;
  std::vector<bool> copied(target.size());
  size_t hole = target.size();
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == 0 && !allow_zero) {
      out[i] = copied_dim(c, i);
      copied[i] = true;
    } else if (target[i] == -1) {
      if (hole != target.size()) fail(c, "the shape " + ints_text(target) + " has more than one -1");
      hole = i;
    } else if (is_plain(target[i]) && target[i] < 0) {
      fail(c, "the shape " + ints_text(target) + " has a negative entry");
    }
  }
  if (hole != target.size()) out[hole] = remaining_dim(c, out, copied, hole);
  check_count(c, out);
  return out;
}

// ONNX can write a symbolic dim as a copy of the input's dim at the same place, and one more dim as "the rest".
void require_expressible(const Ctx& c, const IntVec& out) {
  const TensorType& x = in(c, 0);
  int others = 0;
  bool has_zero = false, has_symbol = false;
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == kUnknown) fail(c, "the shape does not resolve: " + type_text(c.inputs[0].type) + " to " + ints_text(c.attrs.get_ints("shape")));
    has_zero |= out[i] == 0;
    if (is_plain(out[i])) continue;
    has_symbol = true;
    bool same_place = ranked(x) && i < x.dims.size() && x.dims[i] == out[i];
    others += !same_place;
  }
  if (others > 1 || (has_zero && has_symbol))
    fail(c, "ONNX has no constant for the shape " + ints_text(out) + " of " + type_text(c.inputs[0].type) +
                ": more than one entry is neither plain nor the input's own");
}

void infer_reshape(Ctx& c) {
  const TensorType& x = in(c, 0);
  bool allow_zero = c.attrs.get_int("allowzero", Int{0}) != 0;
  if (c.inputs.size() == 1) {
    IntVec out = resolve_shape(c, c.attrs.get_ints("shape"), allow_zero);
    require_expressible(c, out);
    c.attrs.set("shape", out);
    if (std::find(out.begin(), out.end(), Int{0}) != out.end()) c.attrs.set("allowzero", Int{1});  // the zero is an extent now, not a copy
    else c.attrs.erase("allowzero");
    set(c, 0, x.dtype, out);
    return pass_data(c, static_cast<int>(out.size()));
  }
  if (allow_zero) c.attrs.set("allowzero", Int{1});
  else c.attrs.erase("allowzero");
  auto target = known_ints(c, 1);
  if (!target) {
    auto rank = list_length(c, 1);
    return rank ? set_rank(c, 0, x.dtype, static_cast<int>(*rank)) : set_unranked(c, 0, x.dtype);
  }
  IntVec out = resolve_shape(c, *target, allow_zero);
  set(c, 0, x.dtype, out);
  pass_data(c, static_cast<int>(out.size()));
}

void infer_flatten(Ctx& c) {
  const TensorType& x = in(c, 0);
  if (!ranked(x)) return set_rank(c, 0, x.dtype, 2);
  Int axis = c.attrs.get_int("axis");
  if (!is_plain(axis) || axis < -x.rank || axis > x.rank) fail(c, "axis " + int_text(axis) + " is out of range for " + type_text(c.inputs[0].type));
  if (axis < 0) axis += x.rank;
  c.attrs.set("axis", axis);
  std::span<const Int> dims(x.dims);
  set(c, 0, x.dtype, {product(dims.first(static_cast<size_t>(axis))), product(dims.subspan(static_cast<size_t>(axis)))});
}

// ---- Squeeze, Unsqueeze -----------------------------------------------------------------------------------------------------
void set_squeezed(Ctx& c, const IntVec& axes) {
  const TensorType& x = in(c, 0);
  IntVec out;
  for (int i = 0; i < x.rank; ++i) {
    Int d = x.dims[static_cast<size_t>(i)];
    if (std::find(axes.begin(), axes.end(), Int{i}) == axes.end()) out.push_back(d);
    else if (int_eq(d, 1) == Tri::kFalse)
      fail(c, "axis " + std::to_string(i) + " of " + type_text(c.inputs[0].type) + " is " + int_text(d) + ", expected 1");
  }
  set(c, 0, x.dtype, out);
  pass_data(c, static_cast<int>(out.size()));
}

std::optional<IntVec> axes_from_input(Ctx& c, size_t i, int rank) {
  auto axes = known_ints(c, i);
  if (!axes || !std::all_of(axes->begin(), axes->end(), is_plain)) return std::nullopt;
  for (Int& a : *axes) a = axis_of(c, a, rank);
  return axes;
}

void infer_squeeze(Ctx& c) {
  const TensorType& x = in(c, 0);
  if (c.inputs.size() > 1) {
    auto axes = ranked(x) ? axes_from_input(c, 1, x.rank) : std::nullopt;
    if (axes) return set_squeezed(c, *axes);
    auto n = element_count(in(c, 1));
    return ranked(x) && n && *n <= x.rank ? set_rank(c, 0, x.dtype, x.rank - static_cast<int>(*n)) : set_unranked(c, 0, x.dtype);
  }
  if (!ranked(x)) return set_unranked(c, 0, x.dtype);
  if (!c.attrs.find("axes")) {
    IntVec ones;
    for (int i = 0; i < x.rank; ++i) {
      Tri one = int_eq(x.dims[static_cast<size_t>(i)], 1);
      if (one == Tri::kMaybe) return set_unranked(c, 0, x.dtype);
      if (one == Tri::kTrue) ones.push_back(i);
    }
    c.attrs.set("axes", ones);
  }
  set_squeezed(c, canonical_axes(c, "axes", x.rank));
}

void set_unsqueezed(Ctx& c, const IntVec& sorted_axes) {
  const TensorType& x = in(c, 0);
  IntVec out = x.dims;
  for (Int a : sorted_axes) out.insert(out.begin() + a, 1);
  set(c, 0, x.dtype, out);
  pass_data(c, static_cast<int>(out.size()));
}

void infer_unsqueeze(Ctx& c) {
  const TensorType& x = in(c, 0);
  if (c.inputs.size() == 1) {
    int added = static_cast<int>(c.attrs.get_ints("axes").size());
    return ranked(x) ? set_unsqueezed(c, canonical_axes(c, "axes", x.rank + added)) : set_unranked(c, 0, x.dtype);
  }
  auto n = list_length(c, 1);
  if (auto known = known_ints(c, 1)) n = known->size();
  if (!ranked(x) || !n) return set_unranked(c, 0, x.dtype);
  int rank = x.rank + static_cast<int>(*n);
  auto axes = axes_from_input(c, 1, rank);
  if (!axes) return set_rank(c, 0, x.dtype, rank);
  std::sort(axes->begin(), axes->end());
  if (std::adjacent_find(axes->begin(), axes->end()) != axes->end()) fail(c, "an axis is named twice in axes=" + ints_text(*axes));
  set_unsqueezed(c, *axes);
}

}  // namespace

// clang-format off
void add_view_rows(Table& t) {
  auto view = [&](const char* name, int most, InferFn rule, std::vector<AttrDefault> defaults, std::vector<const char*> extra) {
    t.add({.name = name, .since = 1, .min_inputs = 1, .max_inputs = most, .outputs = 1, .flags = kPure | kView,
           .fusion = FusionClass::kView, .infer = rule, .defaults = std::move(defaults), .extra = std::move(extra)});
  };
  view("Reshape", 2, infer_reshape, {}, {"allowzero", "shape"});
  view("Flatten", 1, infer_flatten, {{"axis", Int{1}}}, {});
  view("Squeeze", 2, infer_squeeze, {}, {"axes"});
  view("Unsqueeze", 2, infer_unsqueeze, {}, {"axes"});
}
// clang-format on

}  // namespace rlflow::detail
