// Data movement: Transpose, Concat, Split, Expand, Tile, Pad, DepthToSpace.
#include <algorithm>
#include <numeric>

#include "ops_common.h"

namespace rlflow::detail {
namespace {

// ---- Transpose, Concat, Split -----------------------------------------------------------------------------------------------
void infer_transpose(Ctx& c) {
  const TensorType& x = in(c, 0);
  if (!c.attrs.find("perm") && ranked(x)) {
    IntVec reversed(x.dims.size());
    std::iota(reversed.rbegin(), reversed.rend(), Int{0});
    c.attrs.set("perm", reversed);
  }
  const IntVec* perm = c.attrs.find_ints("perm");
  if (!perm) return set_unranked(c, 0, x.dtype);
  IntVec sorted = *perm;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<Int>(i)) fail(c, "perm=" + ints_text(*perm) + " is not a permutation");
  if (!ranked(x)) return set_rank(c, 0, x.dtype, static_cast<int>(perm->size()));
  if (perm->size() != x.dims.size()) fail(c, "perm=" + ints_text(*perm) + " does not fit " + type_text(c.inputs[0].type));
  IntVec out;
  for (Int p : *perm) out.push_back(x.dims[static_cast<size_t>(p)]);
  set(c, 0, x.dtype, out);
  pass_data(c, x.rank);
}

void concat_data(Ctx& c) {
  IntVec out;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    auto n = element_count(in(c, i));
    if (!n || *n > 64 || in(c, i).rank != 1) return;
    if (const IntVec* v = c.inputs[i].data) out.insert(out.end(), v->begin(), v->end());
    else out.insert(out.end(), static_cast<size_t>(*n), kUnknown);
  }
  set_data(c, 0, std::move(out));
}

void infer_concat(Ctx& c) {
  Int axis = c.attrs.get_int("axis");
  int dtype = in(c, 0).dtype, rank = -1;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    int d = common_dtype(c, 0, i);
    dtype = dtype == kUndefined ? d : dtype;
    require_rank(c, i, 1);
    int r = in(c, i).rank;
    if (r >= 0 && rank >= 0 && r != rank) fail(c, "ranks differ: " + shapes(c) + " (" + std::to_string(rank) + " against " + std::to_string(r) + ")");
    rank = std::max(rank, r);
  }
  if (rank < 0) return set_unranked(c, 0, dtype);
  axis = canonical_axis(c, "axis", rank);
  IntVec out(static_cast<size_t>(rank), kUnknown);
  Int total = 0;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const TensorType& x = in(c, i);
    total = ranked(x) ? int_add(total, x.dims[static_cast<size_t>(axis)]) : kUnknown;
    for (size_t k = 0; ranked(x) && k < out.size(); ++k)
      if (static_cast<Int>(k) != axis) out[k] = unify(c, out[k], x.dims[k], "extents beside the axis");
  }
  out[static_cast<size_t>(axis)] = total;
  set(c, 0, dtype, out);
  if (rank == 1) concat_data(c);
}

// Sizes of `n` parts of an extent: equal ones, a smaller last one; nullopt where the extent does not say.
std::optional<IntVec> equal_parts(const Ctx& c, Int extent, Int n, bool uneven) {
  if (!is_plain(extent)) {
    Int part = int_div(extent, n);
    if (part == kUnknown || int_mul(part, n) != extent) return std::nullopt;
    return IntVec(static_cast<size_t>(n), part);
  }
  Int part = (extent + n - 1) / n, last = extent - part * (n - 1);
  if ((!uneven && extent % n != 0) || last < 0)
    fail(c, int_text(extent) + " elements do not split into " + std::to_string(n) + " parts (" + shapes(c) + ")");
  IntVec sizes(static_cast<size_t>(n), part);
  sizes.back() = last;
  return sizes;
}

// Sizes of the parts, made explicit as an attribute where they are plain.
std::optional<IntVec> split_sizes(Ctx& c, Int extent) {
  if (c.inputs.size() > 1) return known_ints(c, 1);
  if (const IntVec* sizes = c.attrs.find_ints("split"); sizes && !sizes->empty()) {
    c.attrs.erase("num_outputs");
    return c.attrs.get_ints("split");
  }
  c.attrs.erase("split");
  Int n = static_cast<Int>(c.outputs.size());
  bool uneven = c.attrs.find("num_outputs") != nullptr;
  if (uneven && c.attrs.get_int("num_outputs") != n)
    fail(c, "num_outputs is " + int_text(c.attrs.get_int("num_outputs")) + ", but the node has " + std::to_string(n) + " outputs");
  auto sizes = equal_parts(c, extent, n, uneven);
  if (!sizes || !is_plain(extent)) {
    c.attrs.set("num_outputs", n);
    return sizes;
  }
  c.attrs.erase("num_outputs");
  c.attrs.set("split", *sizes);
  return sizes;
}

void split_data(Ctx& c, const IntVec& sizes) {
  const IntVec* v = c.inputs[0].data;
  if (!v || in(c, 0).rank != 1) return;
  size_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!is_plain(sizes[i]) || at + static_cast<size_t>(sizes[i]) > v->size()) return;
    auto begin = v->begin() + static_cast<std::ptrdiff_t>(at);
    set_data(c, i, IntVec(begin, begin + sizes[i]));
    at += static_cast<size_t>(sizes[i]);
  }
}

void infer_split(Ctx& c) {
  const TensorType& x = in(c, 0);
  require_rank(c, 0, 1);
  Int axis = ranked(x) ? canonical_axis(c, "axis", x.rank) : 0;
  Int extent = ranked(x) ? x.dims[static_cast<size_t>(axis)] : kUnknown;
  auto sizes = split_sizes(c, extent);
  if (sizes && sizes->size() != c.outputs.size())
    fail(c, "split=" + ints_text(*sizes) + " makes " + std::to_string(sizes->size()) + " parts, but the node has " +
                std::to_string(c.outputs.size()) + " outputs");
  if (sizes) {
    Int sum = 0;
    for (Int s : *sizes) {
      if (is_plain(s) && s < 0) fail(c, "split=" + ints_text(*sizes) + " has a negative size");
      sum = int_add(sum, s);
    }
    if (int_eq(sum, extent) == Tri::kFalse)
      fail(c,
           "split=" + ints_text(*sizes) + " does not add up to the axis: " + shapes(c) + " (" + int_text(sum) + " against " + int_text(extent) + ")");
  }
  for (size_t i = 0; i < c.outputs.size(); ++i) {
    if (!ranked(x)) {
      set_unranked(c, i, x.dtype);
      continue;
    }
    IntVec out = x.dims;
    out[static_cast<size_t>(axis)] = sizes ? (*sizes)[i] : kUnknown;
    set(c, i, x.dtype, out);
  }
  if (sizes) split_data(c, *sizes);
}

// ---- Expand, Tile, Pad ------------------------------------------------------------------------------------------------------
void require_extents(const Ctx& c, const IntVec& target, bool known) {
  for (Int d : target)
    if ((known && d == kUnknown) || (is_plain(d) && d < 0)) fail(c, "the shape " + ints_text(target) + " has an entry that is no extent");
}

// Canonical: the output's dims, with 1 where the input's own dim stays and is not a plain number (so that it can be written).
void expand_by_attribute(Ctx& c) {
  const TensorType& x = in(c, 0);
  const IntVec target = c.attrs.get_ints("shape");
  require_extents(c, target, true);
  if (!ranked(x)) return set_unranked(c, 0, x.dtype);
  IntVec out = broadcast_dims(c, x.dims, target), canonical = out;
  size_t own = out.size() - x.dims.size(), given = out.size() - target.size();
  for (size_t i = 0; i < out.size(); ++i) {
    if (is_plain(out[i])) continue;
    Int from = i < own ? Int{1} : x.dims[i - own], to = i < given ? Int{1} : target[i - given];
    if (to != 1 && to != from)
      fail(c, "ONNX has no constant for the shape " + ints_text(target) + " of " + type_text(c.inputs[0].type) + ": entry " + int_text(to) +
                  " is neither plain nor the input's own");
    canonical[i] = 1;
  }
  c.attrs.set("shape", canonical);
  set(c, 0, x.dtype, out);
}

void infer_expand(Ctx& c) {
  const TensorType& x = in(c, 0);
  if (c.inputs.size() == 1) {
    expand_by_attribute(c);
  } else if (auto target = known_ints(c, 1); target && ranked(x)) {
    require_extents(c, *target, false);
    set(c, 0, x.dtype, broadcast_dims(c, x.dims, *target));
  } else if (auto n = list_length(c, 1); n && ranked(x)) {
    IntVec out = broadcast_dims(c, x.dims, IntVec(*n, kUnknown));
    return set(c, 0, x.dtype, out);
  } else {
    return set_unranked(c, 0, x.dtype);
  }
  const TensorType& out = type_of(c.outputs[0].type);
  auto n = element_count(out);
  if (c.inputs[0].data && out.rank >= 0 && out.rank <= 1 && n && *n <= 64) {
    const IntVec& v = *c.inputs[0].data;
    if (v.size() == 1) set_data(c, 0, IntVec(static_cast<size_t>(*n), v[0]));
    else if (v.size() == static_cast<size_t>(*n)) set_data(c, 0, v);
  }
}

void infer_tile(Ctx& c) {
  const TensorType& x = in(c, 0);
  bool dynamic = c.inputs.size() > 1;
  auto repeats = dynamic ? known_ints(c, 1) : std::optional<IntVec>(c.attrs.get_ints("repeats"));
  if (!ranked(x)) return repeats ? set_rank(c, 0, x.dtype, static_cast<int>(repeats->size())) : set_unranked(c, 0, x.dtype);
  if (!repeats) return set_rank(c, 0, x.dtype, x.rank);
  if (repeats->size() != x.dims.size()) fail(c, "repeats=" + ints_text(*repeats) + " does not fit " + type_text(c.inputs[0].type));
  IntVec out = x.dims;
  for (size_t i = 0; i < out.size(); ++i) {
    if (is_plain((*repeats)[i]) && (*repeats)[i] < 0) fail(c, "repeats=" + ints_text(*repeats) + " has a negative entry");
    out[i] = (*repeats)[i] == 0 ? 0 : int_mul(out[i], (*repeats)[i]);
  }
  set(c, 0, x.dtype, out);
}

// Begins and ends of every axis, from pads that name only some axes.
IntVec full_pads(const Ctx& c, const IntVec& pads, const IntVec& axes, int rank) {
  if (pads.size() != 2 * axes.size())
    fail(c, "pads=" + ints_text(pads) + " has " + std::to_string(pads.size()) + " entries, expected " + std::to_string(2 * axes.size()) + " (" +
                shapes(c) + ")");
  IntVec full(2 * static_cast<size_t>(rank), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    size_t a = static_cast<size_t>(axis_of(c, axes[i], rank));
    full[a] = pads[i];
    full[a + static_cast<size_t>(rank)] = pads[i + axes.size()];
  }
  return full;
}

void infer_pad(Ctx& c) {
  const TensorType& x = in(c, 0);
  std::string mode = c.attrs.get_string("mode");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    fail(c, "mode is \"" + mode + "\", expected constant, reflect, edge or wrap");
  bool dynamic = c.inputs.size() > 1;
  if (dynamic) c.attrs.erase("value");
  else c.attrs.set("value", mode == "constant" ? c.attrs.get_float("value", 0.0) : 0.0);
  auto pads = dynamic ? known_ints(c, 1) : std::optional<IntVec>(c.attrs.get_ints("pads"));
  std::optional<IntVec> axes;
  if (dynamic && present(c, 3)) axes = known_ints(c, 3);
  else if (const IntVec* given = c.attrs.find_ints("axes")) axes = *given;
  else if (ranked(x)) {
    axes.emplace(x.dims.size());
    std::iota(axes->begin(), axes->end(), Int{0});
  }
  if (!ranked(x)) return set_unranked(c, 0, x.dtype);
  if (!pads || !axes) return set_rank(c, 0, x.dtype, x.rank);
  IntVec full = full_pads(c, *pads, *axes, x.rank), out = x.dims;
  if (!dynamic) {
    c.attrs.erase("axes");
    c.attrs.set("pads", full);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = int_add(out[i], int_add(full[i], full[i + out.size()]));
    if (is_plain(out[i]) && out[i] < 0)
      fail(c, "pads=" + ints_text(full) + " cut off more than there is on axis " + std::to_string(i) + " (" + shapes(c) + ")");
  }
  set(c, 0, x.dtype, out);
}

// ---- DepthToSpace, SpaceToDepth ---------------------------------------------------------------------------------------------
Int exact_quotient(const Ctx& c, Int a, Int b, const char* what) {
  if (is_plain(a) && is_plain(b) && a % b != 0)
    fail(c, std::string(what) + " " + int_text(a) + " does not divide by " + int_text(b) + " (" + shapes(c) + ")");
  Int q = int_div(a, b);
  return q != kUnknown && int_mul(q, b) == a ? q : kUnknown;
}

Int block_size(const Ctx& c) {
  Int b = c.attrs.get_int("blocksize");
  if (!is_plain(b) || b < 1 || b > (1 << 20)) fail(c, "blocksize is " + int_text(b) + ", expected a positive integer");
  return b;
}

// Depth first, then column and row, or column and row first.
void require_block_order(const Ctx& c) {
  std::string mode = c.attrs.get_string("mode");
  if (mode != "DCR" && mode != "CRD") fail(c, "mode is \"" + mode + "\", expected DCR or CRD");
}

void infer_depth_to_space(Ctx& c) {
  require_rank(c, 0, 4, 4);
  Int b = block_size(c);
  require_block_order(c);
  const TensorType& x = in(c, 0);
  if (!ranked(x)) return set_rank(c, 0, x.dtype, 4);
  set(c, 0, x.dtype, {x.dims[0], exact_quotient(c, x.dims[1], b * b, "depth"), int_mul(x.dims[2], b), int_mul(x.dims[3], b)});
}

void infer_space_to_depth(Ctx& c) {
  require_rank(c, 0, 4, 4);
  Int b = block_size(c);
  require_block_order(c);
  const TensorType& x = in(c, 0);
  if (!ranked(x)) return set_rank(c, 0, x.dtype, 4);
  set(c, 0, x.dtype, {x.dims[0], int_mul(x.dims[1], b * b), exact_quotient(c, x.dims[2], b, "height"), exact_quotient(c, x.dims[3], b, "width")});
}

}  // namespace

void add_view_rows(Table& t);   // ops_views.cc
void add_slice_row(Table& t);   // ops_slice.cc
void add_resize_row(Table& t);  // ops_resize.cc

// clang-format off
void add_movement_rows(Table& t) {
  constexpr auto movement = FusionClass::kMovement;
  auto move = [&](const char* name, int since, int most, InferFn rule, std::vector<AttrDefault> defaults = {},
                  std::vector<const char*> extra = {}) {
    t.add({.name = name, .since = since, .min_inputs = 1, .max_inputs = most, .outputs = 1, .flags = kPure, .fusion = movement,
           .infer = rule, .defaults = std::move(defaults), .extra = std::move(extra)});
  };
  add_view_rows(t);
  move("Transpose", 1, 1, infer_transpose, {}, {"perm"});
  move("Concat", 4, -1, infer_concat, {}, {"axis"});
  t.add({.name = "Split", .since = 2, .min_inputs = 1, .max_inputs = 2, .outputs = 1, .flags = kPure | kVariadicOutputs,
         .fusion = movement, .infer = infer_split, .defaults = {{"axis", Int{0}}}, .extra = {"num_outputs", "split"}});
  add_slice_row(t);
  move("Expand", 8, 2, infer_expand, {}, {"shape"});
  move("Tile", 6, 2, infer_tile, {}, {"repeats"});
  move("Pad", 2, 4, infer_pad, {{"mode", std::string("constant")}}, {"axes", "pads", "value"});
  add_resize_row(t);
  move("DepthToSpace", 1, 1, infer_depth_to_space, {{"mode", std::string("DCR")}}, {"blocksize"});
  move("SpaceToDepth", 1, 1, infer_space_to_depth, {{"mode", std::string("DCR")}}, {"blocksize"});
}
// clang-format on

}  // namespace rlflow::detail
