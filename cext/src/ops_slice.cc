// Slice: canonical bounds, extents and known values.
#include <algorithm>
#include <map>

#include "ops_common.h"

namespace rlflow::detail {
namespace {

struct Range {
  Int start, end, step;
};
struct Bounds {
  Int start, end, length;  // bounds after clipping; kUnknown where a symbol decides
};
constexpr Int kEnd = INT64_MAX;  // canonical "to the end" of an axis whose extent is no plain number

// The dim is an upper bound (or the value a lower one) only where it is certain for every value of the symbols.
Int at_most(Int v, Int limit) {
  if (v == limit) return v;
  if (int_lt(limit, v) == Tri::kFalse) return v;
  return int_lt(v, limit) == Tri::kFalse ? limit : kUnknown;
}
Int at_least_zero(Int v) {
  if (int_lt(v, 0) == Tri::kFalse) return v;
  return int_lt(0, v) == Tri::kFalse ? 0 : kUnknown;
}

// ONNX (opset 10): negative bounds count from the end, then clip to [0, d] or, backwards, [0, d-1] and [-1, d-1].
Int clip(Int v, Int d, bool forward, bool is_end) {
  if (is_plain(v) && !is_plain(d)) {
    if (v > INT32_MAX) return forward ? d : kUnknown;
    if (v < INT32_MIN && forward) return 0;
  }
  Tri negative = int_lt(v, 0);
  if (negative == Tri::kMaybe) return kUnknown;
  if (negative == Tri::kTrue) v = int_add(v, d);
  if (forward) return at_least_zero(at_most(v, d));
  if (!is_plain(v) || !is_plain(d)) return kUnknown;
  return std::clamp<Int>(v, is_end ? -1 : 0, std::max<Int>(d - 1, is_end ? -1 : 0));
}

Bounds clip_range(const Range& r, Int d) {
  bool forward = r.step > 0;
  if (d == 0) return {0, 0, 0};
  Bounds b{clip(r.start, d, forward, false), clip(r.end, d, forward, true), kUnknown};
  Int span = forward ? int_sub(b.end, b.start) : int_sub(b.start, b.end), step = forward ? r.step : -r.step;
  if (int_lt(span, 0) != Tri::kFalse) {
    if (int_lt(0, span) == Tri::kFalse) b.length = 0;
    return b;
  }
  b.length = step == 1 ? span : int_div(int_add(span, step - 1), step);
  return b;
}

// Bounds as they are written: clipped where the extent is plain; for an unknown extent only "everything up to the end" is.
Range canonical_range(const Range& r, const Bounds& b, Int d) {
  if (is_plain(d)) {
    if (b.length == 0) return {0, 0, 1};
    if (r.step > 0) return {b.start, b.end, r.step};
    return {b.start, b.end < 0 ? -d - 1 : b.end, r.step};  // -1 would mean the last element
  }
  Range out = r;
  if (r.step > 0 && (r.end > INT32_MAX || (d != kUnknown && b.end == d))) out.end = kEnd;
  if (r.step > 0 && r.start < INT32_MIN) out.start = 0;
  return out;
}

bool whole_axis(const Range& r, Int d) { return r.start == 0 && r.step == 1 && (r.end == kEnd || (is_plain(d) && r.end == d)); }

// ONNX clips an end above the extent to the last element, which backwards leaves nothing; ONNX Runtime takes the largest integer for
// "to the beginning".
void refuse_backwards_to_the_largest(const Ctx& c, const Range& r) {
  if (r.step < 0 && is_plain(r.end) && r.end >= INT32_MAX)
    fail(c, "the end " + int_text(r.end) + " with the step " + int_text(r.step) + " means the beginning to some runtimes (" + shapes(c) + ")");
}

void check_lengths(const Ctx& c, size_t starts, size_t ends, size_t axes, size_t steps) {
  if (starts == ends && starts == axes && starts == steps) return;
  fail(c, "starts, ends, axes and steps have " + std::to_string(starts) + ", " + std::to_string(ends) + ", " + std::to_string(axes) + " and " +
              std::to_string(steps) + " entries (" + shapes(c) + ")");
}

IntVec iota_axes(size_t n) {
  IntVec axes(n);
  for (size_t i = 0; i < n; ++i) axes[i] = static_cast<Int>(i);
  return axes;
}

void slice_data(Ctx& c, const Range& r, const Bounds& b) {
  const IntVec* v = c.inputs[0].data;
  if (!v || in(c, 0).rank != 1 || !is_plain(b.start) || !is_plain(b.length)) return;
  IntVec out;
  for (Int i = 0; i < b.length; ++i) out.push_back((*v)[static_cast<size_t>(b.start + i * r.step)]);
  set_data(c, 0, std::move(out));
}

Int nonzero_step(const Ctx& c, Int step) {
  if (!is_plain(step)) fail(c, "a step is not known");
  if (step == 0) fail(c, "a step is 0");
  return std::clamp<Int>(step, -INT32_MAX, INT32_MAX);
}

void infer_static_slice(Ctx& c) {
  const TensorType& x = in(c, 0);
  const IntVec starts = c.attrs.get_ints("starts"), ends = c.attrs.get_ints("ends");
  const IntVec* axes_given = c.attrs.find_ints("axes");
  IntVec axes = axes_given ? *axes_given : iota_axes(starts.size());
  const IntVec* steps_given = c.attrs.find_ints("steps");
  IntVec steps = steps_given && !steps_given->empty() ? *steps_given : IntVec(starts.size(), 1);
  check_lengths(c, starts.size(), ends.size(), axes.size(), steps.size());
  for (const IntVec* bounds : {&starts, &ends})
    if (!std::all_of(bounds->begin(), bounds->end(), is_plain))
      fail(c, "ONNX has no constant for the bounds " + ints_text(*bounds) + " (" + shapes(c) + ")");
  for (Int& s : steps) s = nonzero_step(c, s);
  c.attrs.set("axes", axes);
  c.attrs.set("steps", steps);
  if (!ranked(x)) return set_unranked(c, 0, x.dtype);
  std::map<Int, Range> ranges;
  for (size_t i = 0; i < axes.size(); ++i)
    if (!ranges.emplace(axis_of(c, axes[i], x.rank), Range{starts[i], ends[i], steps[i]}).second)
      fail(c, "an axis is named twice in axes=" + ints_text(axes) + " (" + shapes(c) + ")");
  IntVec out = x.dims, s, e, a, p;
  std::optional<Bounds> first;
  auto keep = [&](Int axis, const Range& r) { a.push_back(axis), s.push_back(r.start), e.push_back(r.end), p.push_back(r.step); };
  for (const auto& [axis, range] : ranges) {
    Int d = x.dims[static_cast<size_t>(axis)];
    refuse_backwards_to_the_largest(c, range);
    Bounds b = clip_range(range, d);
    if (!first) first = b;
    Range r = canonical_range(range, b, d);
    if (whole_axis(r, d)) continue;  // selects everything
    out[static_cast<size_t>(axis)] = b.length;
    keep(axis, r);
  }
  if (a.empty() && x.rank > 0) keep(0, {0, is_plain(x.dims[0]) ? x.dims[0] : kEnd, 1});
  if (first) slice_data(c, ranges.begin()->second, *first);
  c.attrs.set("starts", s);
  c.attrs.set("ends", e);
  c.attrs.set("axes", a);
  c.attrs.set("steps", p);
  set(c, 0, x.dtype, out);
}

void infer_dynamic_slice(Ctx& c) {
  const TensorType& x = in(c, 0);
  if (!ranked(x)) return set_unranked(c, 0, x.dtype);
  auto starts = known_ints(c, 1), ends = known_ints(c, 2);
  size_t n = 0;
  for (size_t i : {size_t{1}, size_t{2}, size_t{3}, size_t{4}}) {
    auto known = present(c, i) ? known_ints(c, i) : std::nullopt;
    if (known) n = known->size();
    else if (auto k = list_length(c, i)) n = *k;
  }
  auto axes = present(c, 3) ? known_ints(c, 3) : std::optional<IntVec>(iota_axes(n));
  auto steps = present(c, 4) ? known_ints(c, 4) : std::optional<IntVec>(IntVec(n, 1));
  if (!axes || !std::all_of(axes->begin(), axes->end(), is_plain)) return set_rank(c, 0, x.dtype, x.rank);
  if (starts && ends && steps) check_lengths(c, starts->size(), ends->size(), axes->size(), steps->size());
  IntVec out = x.dims;
  for (size_t i = 0; i < axes->size(); ++i) {
    size_t axis = static_cast<size_t>(axis_of(c, (*axes)[i], x.rank));
    Int d = x.dims[axis];
    out[axis] = kUnknown;
    bool known = starts && ends && steps && (*starts)[i] != kUnknown && (*ends)[i] != kUnknown && is_plain((*steps)[i]);
    if (!known) continue;
    Range r{(*starts)[i], (*ends)[i], nonzero_step(c, (*steps)[i])};
    refuse_backwards_to_the_largest(c, r);
    Bounds b = clip_range(r, d);
    out[axis] = b.length;
    if (axes->size() == 1) slice_data(c, r, b);
  }
  set(c, 0, x.dtype, out);
}

void infer_slice(Ctx& c) { c.inputs.size() == 1 ? infer_static_slice(c) : infer_dynamic_slice(c); }

}  // namespace

// clang-format off
void add_slice_row(Table& t) {
  t.add({.name = "Slice", .since = 1, .min_inputs = 1, .max_inputs = 5, .outputs = 1, .flags = kPure, .fusion = FusionClass::kMovement,
         .infer = infer_slice, .extra = {"axes", "ends", "starts", "steps"}});
}
// clang-format on

}  // namespace rlflow::detail
