// Reading and writing by index: gathers, scatters, selections.
#include <algorithm>

#include "ops_common.h"

namespace rlflow::detail {
namespace {

bool is_index(int dtype) { return dtype == kI32 || dtype == kI64; }

void require_same_rank(const Ctx& c, size_t i, size_t j) {
  int a = in(c, i).rank, b = in(c, j).rank;
  if (a >= 0 && b >= 0 && a != b) fail(c, "ranks differ: " + shapes(c) + " (" + std::to_string(a) + " against " + std::to_string(b) + ")");
}

void gather_data(Ctx& c) {
  const IntVec* values = c.inputs[0].data;
  auto indices = known_ints(c, 1);
  if (!values || !indices || in(c, 0).rank != 1 || c.attrs.get_int("axis") != 0) return;
  IntVec out;
  Int n = static_cast<Int>(values->size());
  for (Int i : *indices) {
    if (is_plain(i) && (i < -n || i >= n))
      fail(c, "index " + int_text(i) + " is out of range for " + std::to_string(n) + " elements (" + shapes(c) + ")");
    out.push_back(is_plain(i) ? (*values)[static_cast<size_t>(i < 0 ? i + n : i)] : kUnknown);
  }
  set_data(c, 0, std::move(out));
}

void infer_gather(Ctx& c) {
  require_dtype(c, 1, is_index, "i32 or i64");
  require_rank(c, 0, 1);
  const TensorType &x = in(c, 0), &indices = in(c, 1);
  Int axis = ranked(x) ? canonical_axis(c, "axis", x.rank) : 0;
  if (!ranked(x) || !ranked(indices)) return set_unranked(c, 0, x.dtype);
  IntVec out(x.dims.begin(), x.dims.begin() + axis);
  out.insert(out.end(), indices.dims.begin(), indices.dims.end());
  out.insert(out.end(), x.dims.begin() + axis + 1, x.dims.end());
  set(c, 0, x.dtype, out);
  gather_data(c);
}

void infer_gather_elements(Ctx& c) {
  require_dtype(c, 1, is_index, "i32 or i64");
  require_same_rank(c, 0, 1);
  if (in(c, 0).rank > 0) canonical_axis(c, "axis", in(c, 0).rank);
  set_like(c, 0, in(c, 0).dtype, in(c, 1));
}

void infer_gather_nd(Ctx& c) {
  require_rank(c, 0, 1);
  require_rank(c, 1, 1);
  const TensorType &x = in(c, 0), &indices = in(c, 1);
  Int batch = c.attrs.get_int("batch_dims");
  if (!ranked(x) || !ranked(indices) || !is_plain(indices.dims.back())) return set_unranked(c, 0, x.dtype);
  Int depth = batch + indices.dims.back();
  if (batch < 0 || batch >= indices.rank || depth > x.rank)
    fail(c, "indices address " + int_text(depth) + " axes of rank " + std::to_string(x.rank) + " (" + shapes(c) + ")");
  IntVec out(indices.dims.begin(), indices.dims.end() - 1);
  for (Int i = 0; i < batch; ++i)
    out[static_cast<size_t>(i)] = unify(c, out[static_cast<size_t>(i)], x.dims[static_cast<size_t>(i)], "batch dimensions");
  out.insert(out.end(), x.dims.begin() + depth, x.dims.end());
  set(c, 0, x.dtype, out);
}

void check_reduction(const Ctx& c) {
  std::string how = c.attrs.get_string("reduction");
  for (const char* known : {"none", "add", "mul", "max", "min"})
    if (how == known) return;
  fail(c, "reduction is \"" + how + "\", expected none, add, mul, max or min");
}

void infer_scatter_elements(Ctx& c) {
  check_reduction(c);
  require_same_rank(c, 0, 1);
  require_same_rank(c, 1, 2);
  common_dtype(c, 0, 2);
  const TensorType &x = in(c, 0), &indices = in(c, 1), &updates = in(c, 2);
  if (x.rank > 0) canonical_axis(c, "axis", x.rank);
  if (ranked(indices) && ranked(updates))
    for (size_t i = 0; i < indices.dims.size(); ++i) unify(c, indices.dims[i], updates.dims[i], "extents of indices and updates");
  infer_like_first(c);
}

void infer_scatter_nd(Ctx& c) {
  check_reduction(c);
  common_dtype(c, 0, 2);
  require_rank(c, 0, 1);
  require_rank(c, 1, 1);
  const TensorType &x = in(c, 0), &indices = in(c, 1), &updates = in(c, 2);
  infer_like_first(c);
  if (!ranked(x) || !ranked(indices) || !is_plain(indices.dims.back())) return;
  Int depth = indices.dims.back();
  if (depth > x.rank) fail(c, "indices address " + int_text(depth) + " axes of rank " + std::to_string(x.rank) + " (" + shapes(c) + ")");
  if (!ranked(updates)) return;
  IntVec wanted(indices.dims.begin(), indices.dims.end() - 1);
  wanted.insert(wanted.end(), x.dims.begin() + depth, x.dims.end());
  if (updates.dims.size() != wanted.size())
    fail(c, "updates are " + type_text(c.inputs[2].type) + ", expected rank " + std::to_string(wanted.size()) + " (" + shapes(c) + ")");
  for (size_t i = 0; i < wanted.size(); ++i) unify(c, updates.dims[i], wanted[i], "extents of updates and indexed data");
}

void infer_one_hot(Ctx& c) {
  const TensorType &indices = in(c, 0), &values = in(c, 2);
  if (auto n = element_count(values); n && ranked(values) && *n != 2) fail(c, "values must be [off, on]: " + shapes(c));
  if (!ranked(indices)) return set_unranked(c, 0, values.dtype);
  Int axis = canonical_axis(c, "axis", indices.rank + 1);
  auto depth = known_ints(c, 1);
  IntVec out = indices.dims;
  Int extent = depth && depth->size() == 1 ? (*depth)[0] : kUnknown;
  if (is_plain(extent) && extent < 1) fail(c, "the depth is " + int_text(extent) + ", expected a positive number");
  out.insert(out.begin() + axis, extent);
  set(c, 0, values.dtype, out);
}

void infer_nonzero(Ctx& c) {
  const TensorType& x = in(c, 0);
  // A scalar counts as one element of rank 1 in some runtimes and of rank 0 in the specification.
  set(c, 0, kI64, {x.rank > 0 ? Int{x.rank} : kUnknown, kUnknown});
}

void infer_compress(Ctx& c) {
  const TensorType& x = in(c, 0);
  require_rank(c, 1, 1, 1);
  if (!c.attrs.find("axis")) return set(c, 0, x.dtype, {kUnknown});
  if (!ranked(x)) return set_unranked(c, 0, x.dtype);
  IntVec out = x.dims;
  out[static_cast<size_t>(canonical_axis(c, "axis", x.rank))] = kUnknown;
  set(c, 0, x.dtype, out);
}

void infer_trilu(Ctx& c) {
  require_rank(c, 0, 2);
  c.attrs.set("upper", Int{c.attrs.get_int("upper") != 0});
  infer_like_first(c);
}

void infer_reverse_sequence(Ctx& c) {
  require_rank(c, 0, 2);
  infer_like_first(c);
}

}  // namespace

// clang-format off
void add_indexing_rows(Table& t) {
  constexpr auto movement = FusionClass::kMovement;
  auto row = [&](const char* name, int since, int least, int most, InferFn rule, std::vector<AttrDefault> defaults = {},
                 std::vector<const char*> extra = {}, double flops = 0) {
    t.add({.name = name, .since = since, .min_inputs = least, .max_inputs = most, .outputs = 1, .flags = kPure, .fusion = movement,
           .infer = rule, .defaults = std::move(defaults), .extra = std::move(extra), .flops_per_output = flops});
  };
  const AttrDefault first{"axis", Int{0}}, reduction{"reduction", std::string("none")};
  row("Gather", 1, 2, 2, infer_gather, {first});
  row("GatherElements", 11, 2, 2, infer_gather_elements, {first});
  row("GatherND", 11, 2, 2, infer_gather_nd, {{"batch_dims", Int{0}}});
  row("ScatterElements", 11, 3, 3, infer_scatter_elements, {first, reduction});
  row("ScatterND", 11, 3, 3, infer_scatter_nd, {reduction});
  row("OneHot", 9, 3, 3, infer_one_hot, {{"axis", Int{-1}}});
  row("NonZero", 9, 1, 1, infer_nonzero, {}, {}, 1);
  row("Compress", 9, 2, 2, infer_compress, {}, {"axis"});
  row("Trilu", 14, 1, 2, infer_trilu, {{"upper", Int{1}}}, {}, 1);
  row("ReverseSequence", 10, 2, 2, infer_reverse_sequence, {{"batch_axis", Int{1}}, {"time_axis", Int{0}}});
}
// clang-format on

}  // namespace rlflow::detail
