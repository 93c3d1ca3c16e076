// Reductions, arg-reductions, running sums and top-k.
#include <algorithm>
#include <numeric>

#include "ops_common.h"

namespace rlflow::detail {
namespace {

void set_reduced(Ctx& c, int dtype, const TensorType& x, const IntVec& axes, bool keep) {
  IntVec out;
  for (int i = 0; i < x.rank; ++i) {
    bool reduced = std::find(axes.begin(), axes.end(), Int{i}) != axes.end();
    if (!reduced) out.push_back(x.dims[static_cast<size_t>(i)]);
    else if (keep) out.push_back(1);
  }
  set(c, 0, dtype, out);
}

IntVec all_axes(int rank) {
  IntVec axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), Int{0});
  return axes;
}

// Axes in a tensor. Empty or absent means all of them unless noop_with_empty_axes says none.
void infer_reduce_dynamic(Ctx& c, const TensorType& x, bool keep) {
  auto axes = known_ints(c, 1);
  bool plain = axes && std::all_of(axes->begin(), axes->end(), is_plain);
  if (!ranked(x)) return set_unranked(c, 0, x.dtype);
  if (plain) {
    for (Int& a : *axes) a = axis_of(c, a, x.rank);
    if (axes->empty() && !c.attrs.get_int("noop_with_empty_axes", Int{0})) *axes = all_axes(x.rank);
    return set_reduced(c, x.dtype, x, *axes, keep);
  }
  if (keep) return set_rank(c, 0, x.dtype, x.rank);
  auto n = element_count(in(c, 1));
  if (n && *n > 0 && *n <= x.rank) return set_rank(c, 0, x.dtype, x.rank - static_cast<int>(*n));
  set_unranked(c, 0, x.dtype);
}

// Canonical form: axes say what is reduced, none where they are empty.
void infer_reduce(Ctx& c) {
  const TensorType& x = in(c, 0);
  bool keep = c.attrs.get_int("keepdims") != 0;
  c.attrs.set("keepdims", Int{keep});
  if (c.inputs.size() > 1) return infer_reduce_dynamic(c, x, keep);
  bool none_means_none = c.attrs.get_int("noop_with_empty_axes", Int{0}) != 0;
  if (!c.attrs.find("axes")) {
    if (none_means_none) c.attrs.set("axes", IntVec{});
    else if (ranked(x)) c.attrs.set("axes", all_axes(x.rank));
  }
  c.attrs.erase("noop_with_empty_axes");
  if (!ranked(x)) return c.attrs.find("axes") || keep ? set_unranked(c, 0, x.dtype) : set(c, 0, x.dtype, {});
  set_reduced(c, x.dtype, x, canonical_axes(c, "axes", x.rank), keep);
}

// Sums and products of known integers (numbers of elements are computed this way).
template <Int (*F)(Int, Int)>
void infer_reduce_ints(Ctx& c) {
  infer_reduce(c);
  const IntVec* v = c.inputs[0].data;
  if (!v || v->empty() || in(c, 0).rank != 1 || c.inputs.size() > 1 || c.attrs.get_ints("axes").empty()) return;
  if (in(c, 0).dtype != kI64 && in(c, 0).dtype != kI32) return;
  Int total = (*v)[0];
  for (size_t i = 1; i < v->size(); ++i) total = F(total, (*v)[i]);
  if (in(c, 0).dtype == kI32 && is_plain(total) && (total > INT32_MAX || total < INT32_MIN)) return;
  set_data(c, 0, {total});
}

void infer_arg(Ctx& c) {
  const TensorType& x = in(c, 0);
  bool keep = c.attrs.get_int("keepdims") != 0;
  c.attrs.set("keepdims", Int{keep});
  if (!ranked(x)) return set_unranked(c, 0, kI64);
  if (x.rank == 0) return set(c, 0, kI64, {});
  set_reduced(c, kI64, x, {canonical_axis(c, "axis", x.rank)}, keep);
}

void infer_cumsum(Ctx& c) {
  const TensorType& x = in(c, 0);
  if (auto axis = known_ints(c, 1); axis && axis->size() == 1 && is_plain((*axis)[0]) && x.rank > 0) axis_of(c, (*axis)[0], x.rank);
  for (const char* name : {"exclusive", "reverse"}) c.attrs.set(name, Int{c.attrs.get_int(name) != 0});
  infer_like_first(c);
}

void infer_top_k(Ctx& c) {
  const TensorType& x = in(c, 0);
  require_rank(c, 0, 1);
  for (const char* name : {"largest", "sorted"}) c.attrs.set(name, Int{c.attrs.get_int(name) != 0});
  if (!ranked(x)) {
    set_unranked(c, 0, x.dtype);
    return set_unranked(c, 1, kI64);
  }
  size_t axis = static_cast<size_t>(canonical_axis(c, "axis", x.rank));
  IntVec out = x.dims;
  auto k = known_ints(c, 1);
  out[axis] = k && k->size() == 1 ? (*k)[0] : kUnknown;
  if (is_plain(out[axis]) && (out[axis] < 0 || (is_plain(x.dims[axis]) && out[axis] > x.dims[axis])))
    fail(c, "k is " + int_text(out[axis]) + " on an axis of " + int_text(x.dims[axis]) + " (" + shapes(c) + ")");
  set(c, 0, x.dtype, out);
  set(c, 1, kI64, out);
}

}  // namespace

// clang-format off
void add_reduction_rows(Table& t) {
  constexpr auto reduction = FusionClass::kReduction;
  auto reduce = [&](const char* name, double flops, InferFn rule = infer_reduce) {
    t.add({.name = name, .since = 1, .min_inputs = 1, .max_inputs = 2, .outputs = 1, .flags = kPure | kReduce, .fusion = reduction,
           .infer = rule, .defaults = {{"keepdims", Int{1}}}, .extra = {"axes", "noop_with_empty_axes"}, .flops_per_input = flops});
  };
  reduce("ReduceSum", 1, infer_reduce_ints<int_add>);
  reduce("ReduceMean", 1);
  reduce("ReduceMax", 1);
  reduce("ReduceMin", 1);
  reduce("ReduceProd", 1, infer_reduce_ints<int_mul>);
  reduce("ReduceL1", 2);
  reduce("ReduceL2", 2);
  reduce("ReduceLogSum", 1);
  reduce("ReduceLogSumExp", 9);
  reduce("ReduceSumSquare", 2);
  for (const char* name : {"ArgMax", "ArgMin"})
    t.add({.name = name, .since = 1, .min_inputs = 1, .max_inputs = 1, .outputs = 1, .flags = kPure, .fusion = reduction,
           .infer = infer_arg, .defaults = {{"axis", Int{0}}, {"keepdims", Int{1}}, {"select_last_index", Int{0}}},
           .flops_per_input = 1});
  t.add({.name = "CumSum", .since = 11, .min_inputs = 2, .max_inputs = 2, .outputs = 1, .flags = kPure, .fusion = reduction,
         .infer = infer_cumsum, .defaults = {{"exclusive", Int{0}}, {"reverse", Int{0}}}, .flops_per_input = 1});
  t.add({.name = "TopK", .since = 10, .min_inputs = 2, .max_inputs = 2, .outputs = 2, .flags = kPure, .fusion = reduction,
         .infer = infer_top_k, .defaults = {{"axis", Int{-1}}, {"largest", Int{1}}, {"sorted", Int{1}}}, .flops_per_input = 8});
}
// clang-format on

}  // namespace rlflow::detail
