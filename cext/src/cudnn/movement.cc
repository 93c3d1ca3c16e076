// Operators that move elements: everything is a copy through strides, a tiled transposition, or a copy through tables of indices.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "plan.h"

namespace rlflow::gpu {

void merge_axes(Dims& extent, std::vector<Dims>& strides);   // pointwise.cc

namespace {

// A type of the same width whose values pass through a register unchanged.
int carrier(size_t bytes) { return bytes == 8 ? kF64 : bytes == 4 ? kF32 : bytes == 2 ? kU16 : kU8; }

}  // namespace

Step Planner::copy_step(Ref from, int64_t from_offset, const Dims& from_strides, Ref to, int64_t to_offset, const Dims& to_strides,
                        const Dims& extent) {
  Dims size = extent;
  std::vector<Dims> strides{from_strides, to_strides};
  merge_axes(size, strides);
  if (size.size() > kernels::kMaxDims) throw Failure("a copy needs more than 6 axes");
  kernels::Pointwise f{};
  int type = carrier(item_bytes(plan_.tensors[plan_.root(to)].dtype));
  f.wide = type == kF64;
  f.count = count_of(size);
  f.dims = static_cast<long long>(size.size());
  std::copy(size.begin(), size.end(), f.extent);
  f.ins = f.outs = 1;
  f.in[0].dtype = f.out[0].dtype = type;
  f.in[0].offset = from_offset;
  f.out[0].offset = to_offset;
  std::copy(strides[0].begin(), strides[0].end(), f.in[0].stride);
  std::copy(strides[1].begin(), strides[1].end(), f.out[0].stride);
  return launch_pointwise(f, {from}, {to});
}

void Planner::plan_transpose(NodeId n) {
  ValueId x = g_.inputs(n)[0], y = g_.node(n).out_begin;
  const IntVec& perm = g_.attrs(n).get_ints("perm");
  Dims plain = strides_of(dims(x)), from;
  for (Int axis : perm) from.push_back(plain[static_cast<size_t>(axis)]);
  Dims extent = dims(y);
  std::vector<Dims> strides{from, strides_of(extent)};
  merge_axes(extent, strides);
  begin("transpose " + dims_text(dims(x)) + dims_text({perm.begin(), perm.end()}) + std::to_string(dtype(x)));
  size_t r = extent.size();
  // [columns, rows] or [batch, columns, rows] out of [batch, rows, columns].
  bool swap = (r == 2 || (r == 3 && strides[0][0] == extent[1] * extent[2])) && strides[0][r - 1] == extent[r - 2] && strides[0][r - 2] == 1;
  if (swap) {
    offer("transposition in tiles", {turn(of(x), y, dtype(x), r == 3 ? extent[0] : 1, extent[r - 1], extent[r - 2])});
  }
  offer("transposition", {copy_step(of(x), 0, from, y, 0, strides_of(dims(y)), dims(y))});
}

// The parts of a tensor along an axis, put together or cut apart by one kernel; nothing where it takes fewer.
std::optional<Step> Planner::join_step(Ref whole, const std::vector<std::pair<Ref, int64_t>>& parts, int64_t outer, bool apart) {
  if (parts.size() > static_cast<size_t>(apart ? kernels::kMaxOuts : kernels::kMaxIns)) return std::nullopt;
  kernels::Joining f{};
  f.bytes = 16;
  for (const auto& [part, bytes] : parts)
    while (bytes % f.bytes != 0) f.bytes /= 2;
  f.apart = apart;
  f.outer = outer;
  f.parts = static_cast<long long>(parts.size());
  std::vector<Ref> refs;
  for (size_t k = 0; k < parts.size(); ++k) {
    f.pitch += parts[k].second / f.bytes;
    f.end[k] = f.pitch;
    refs.push_back(parts[k].first);
  }
  const int64_t blocks = blocks_for(f.outer * f.pitch);
  return apart ? launch(f, {whole}, refs, blocks) : launch(f, refs, {whole}, blocks);
}

void Planner::plan_concat(NodeId n) {
  ValueId y = g_.node(n).out_begin;
  size_t axis = static_cast<size_t>(g_.attrs(n).get_int("axis"));
  const Dims to = strides_of(dims(y));
  const int64_t unit = to[axis] * static_cast<int64_t>(item_bytes(dtype(y)));
  begin("");
  std::vector<std::pair<Ref, int64_t>> parts;
  for (ValueId x : g_.inputs(n))
    if (count_of(dims(x)) > 0) parts.emplace_back(of(x), dims(x)[axis] * unit);
  const std::string what = "concatenation of " + std::to_string(g_.inputs(n).size());
  const int64_t outer = count_of({dims(y).begin(), dims(y).begin() + static_cast<std::ptrdiff_t>(axis)});
  if (parts.empty()) return offer(what, {});
  if (std::optional<Step> step = join_step(y, parts, outer, false)) return offer(what, {*step});
  std::vector<Step> steps;
  int64_t at = 0;
  for (ValueId x : g_.inputs(n)) {
    if (count_of(dims(x)) > 0) steps.push_back(copy_step(of(x), 0, strides_of(dims(x)), y, at * to[axis], to, dims(x)));
    at += dims(x)[axis];
  }
  offer(what, std::move(steps));
}

void Planner::plan_split(NodeId n) {
  ValueId x = g_.inputs(n)[0];
  size_t axis = static_cast<size_t>(g_.attrs(n).get_int("axis"));
  const Dims from = strides_of(dims(x));
  const int64_t unit = from[axis] * static_cast<int64_t>(item_bytes(dtype(x)));
  begin("");
  std::vector<Step> steps;
  std::vector<std::pair<Ref, int64_t>> parts;
  bool whole = true;
  const std::string what = "split into " + std::to_string(g_.node(n).out_count);
  for (uint32_t o = 0; o < g_.node(n).out_count; ++o) {
    ValueId y = g_.node(n).out_begin + o;
    whole = whole && used_at_all(y) && count_of(dims(y)) > 0;
    parts.emplace_back(y, dims(y)[axis] * unit);
  }
  const int64_t outer = count_of({dims(x).begin(), dims(x).begin() + static_cast<std::ptrdiff_t>(axis)});
  if (whole)
    if (std::optional<Step> step = join_step(of(x), parts, outer, true)) return offer(what, {*step});
  int64_t at = 0;
  for (uint32_t o = 0; o < g_.node(n).out_count; ++o) {
    ValueId y = g_.node(n).out_begin + o;
    if (used_at_all(y) && count_of(dims(y)) > 0) steps.push_back(copy_step(of(x), at * from[axis], from, y, 0, strides_of(dims(y)), dims(y)));
    at += dims(y)[axis];
  }
  offer(what, std::move(steps));
}

void Planner::plan_slice(NodeId n) {
  ValueId x = g_.inputs(n)[0], y = g_.node(n).out_begin;
  const AttrSet& attrs = g_.attrs(n);
  if (!attrs.find_ints("starts") || !attrs.find_ints("axes")) refuse(n, "where it cuts is computed while the graph runs");
  const IntVec &starts = attrs.get_ints("starts"), &axes = attrs.get_ints("axes");
  const IntVec* steps = attrs.find_ints("steps");
  Dims from = strides_of(dims(x));
  int64_t offset = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    size_t axis = static_cast<size_t>(axes[i]);
    int64_t extent = dims(x)[axis], step = steps ? (*steps)[i] : 1;
    int64_t start = starts[i] < 0 ? starts[i] + extent : starts[i];
    start = std::clamp<int64_t>(start, 0, step < 0 ? extent - 1 : extent);
    offset += start * from[axis];
    from[axis] *= step;
  }
  single("slice", [&] { return copy_step(of(x), offset, from, y, 0, strides_of(dims(y)), dims(y)); });
}

void Planner::plan_expand(NodeId n) {
  ValueId x = g_.inputs(n)[0], y = g_.node(n).out_begin;
  Dims from(dims(y).size(), 0), own = strides_of(dims(x));
  for (size_t i = 0; i < own.size(); ++i)
    if (dims(x)[i] != 1) from[from.size() - own.size() + i] = own[i];
  single("expansion", [&] { return copy_step(of(x), 0, from, y, 0, strides_of(dims(y)), dims(y)); });
}

// out[i0, i1, ...] = in[index[0][i0], index[1][i1], ...]; an index of -1 gives the fill.
Step Planner::remap_step(Ref from, Ref to, const std::vector<std::vector<int64_t>>& index, double fill) {
  const Dims own = plan_.tensors[plan_.root(from)].dims;
  if (index.size() > kernels::kMaxDims) throw Failure("a tensor of more than 6 axes cannot be padded, tiled or resized");
  kernels::Remapping f{};
  f.dtype = plan_.tensors[to].dtype;
  std::memcpy(&f.fill, &fill, sizeof fill);
  f.dims = static_cast<long long>(index.size());
  f.count = 1;
  std::string table;
  Dims strides = strides_of(own);
  for (size_t d = 0; d < index.size(); ++d) {
    f.extent[d] = static_cast<long long>(index[d].size());
    f.start[d] = static_cast<long long>(table.size() / 4);
    f.count *= f.extent[d];
    for (int64_t i : index[d]) {
      int32_t at = i < 0 ? -1 : static_cast<int32_t>(i * strides[d]);
      table.append(reinterpret_cast<const char*>(&at), 4);
    }
  }
  int64_t entries = static_cast<int64_t>(table.size() / 4);
  return launch(f, {from, constant(kI32, {entries}, std::move(table))}, {to}, blocks_for(f.count));
}

namespace {
// Where element `i` of a padded axis comes from.
int64_t padded(int64_t i, int64_t extent, const std::string& mode) {
  if (i >= 0 && i < extent) return i;
  if (mode == "edge") return std::clamp<int64_t>(i, 0, extent - 1);
  if (mode == "wrap") return ((i % extent) + extent) % extent;
  if (mode == "reflect" && extent > 1) {
    int64_t period = 2 * (extent - 1), at = ((i % period) + period) % period;
    return at < extent ? at : period - at;
  }
  return mode == "reflect" ? 0 : -1;
}
}  // namespace

void Planner::plan_pad(NodeId n) {
  ValueId x = g_.inputs(n)[0], y = g_.node(n).out_begin;
  const AttrSet& attrs = g_.attrs(n);
  if (!attrs.find_ints("pads") || g_.inputs(n).size() > 1) refuse(n, "its amounts are computed while the graph runs");
  const IntVec& pads = attrs.get_ints("pads");
  const IntVec* axes = attrs.find_ints("axes");
  std::vector<std::vector<int64_t>> index;
  for (size_t d = 0; d < dims(x).size(); ++d) {
    int64_t before = 0;
    if (!axes) {
      before = pads[d];
    } else {
      for (size_t k = 0; k < axes->size(); ++k)
        if ((*axes)[k] == static_cast<Int>(d)) before = pads[k];
    }
    std::vector<int64_t> one;
    one.reserve(static_cast<size_t>(dims(y)[d]));
    for (int64_t i = 0; i < dims(y)[d]; ++i) one.push_back(padded(i - before, dims(x)[d], attrs.get_string("mode", "constant")));
    index.push_back(one);
  }
  single("padding", [&] { return remap_step(of(x), y, index, attrs.get_float("value", 0.0)); });
}

void Planner::plan_tile(NodeId n) {
  ValueId x = g_.inputs(n)[0], y = g_.node(n).out_begin;
  std::vector<std::vector<int64_t>> index;
  for (size_t d = 0; d < dims(x).size(); ++d) {
    std::vector<int64_t> one;
    one.reserve(static_cast<size_t>(dims(y)[d]));
    for (int64_t i = 0; i < dims(y)[d]; ++i) one.push_back(i % dims(x)[d]);
    index.push_back(one);
  }
  single("tiling", [&] { return remap_step(of(x), y, index, 0); });
}

void Planner::plan_resize(NodeId n) {
  ValueId x = g_.inputs(n)[0], y = g_.node(n).out_begin;
  const AttrSet& attrs = g_.attrs(n);
  std::string mode = attrs.get_string("mode", "nearest"), where = attrs.get_string("coordinate_transformation_mode", "half_pixel"),
              nearest = attrs.get_string("nearest_mode", "round_prefer_floor");
  if (mode != "nearest") refuse(n, "mode " + mode + " has no kernel, expected nearest");
  if (where != "asymmetric" && where != "half_pixel" && where != "pytorch_half_pixel" && where != "align_corners")
    refuse(n, "coordinate_transformation_mode " + where + " has no kernel");
  const AttrValue* given = attrs.find("scales");
  std::vector<std::vector<int64_t>> index;
  for (size_t d = 0; d < dims(x).size(); ++d) {
    double in = static_cast<double>(dims(x)[d]), out = static_cast<double>(dims(y)[d]), scale = out / in;
    if (given && std::holds_alternative<std::vector<double>>(*given) && std::get<std::vector<double>>(*given).size() == dims(x).size())
      scale = std::get<std::vector<double>>(*given)[d];
    std::vector<int64_t> one;
    for (int64_t i = 0; i < dims(y)[d]; ++i) {
      double at = static_cast<double>(i);
      double from = where == "asymmetric"                       ? at / scale
                    : where == "align_corners"                  ? (out > 1 ? at * (in - 1) / (out - 1) : 0)
                    : where == "pytorch_half_pixel" && out <= 1 ? 0
                                                                : (at + 0.5) / scale - 0.5;
      double rounded = nearest == "floor"               ? std::floor(from)
                       : nearest == "ceil"              ? std::ceil(from)
                       : nearest == "round_prefer_ceil" ? std::floor(from + 0.5)
                                                        : std::ceil(from - 0.5);
      one.push_back(std::clamp<int64_t>(static_cast<int64_t>(rounded), 0, dims(x)[d] - 1));
    }
    index.push_back(one);
  }
  single("resizing", [&] { return remap_step(of(x), y, index, 0); });
}

void Planner::plan_blocks(NodeId n) {
  ValueId x = g_.inputs(n)[0], y = g_.node(n).out_begin;
  int64_t b = g_.attrs(n).get_int("blocksize");
  bool columns_first = g_.attrs(n).get_string("mode", "DCR") == "DCR";
  const Dims& a = dims(x);
  if (g_.op(n).name == "DepthToSpace") {  // [N, C, H, b, W, b] out of [N, b, b, C, H, W], or of [N, C, b, b, H, W]
    int64_t c = a[1] / (b * b), h = a[2], w = a[3], plane = h * w;
    int64_t s_channel = columns_first ? plane : b * b * plane, s_row = columns_first ? b * c * plane : b * plane,
            s_column = columns_first ? c * plane : plane;
    Dims extent{a[0], c, h, b, w, b};
    single("depth to space", [&] { return copy_step(of(x), 0, {a[1] * plane, s_channel, w, s_row, 1, s_column}, y, 0, strides_of(extent), extent); });
    return;
  }
  // [N, b, b, C, H, W] out of [N, C, H, b, W, b]
  int64_t c = a[1], h = a[2] / b, w = a[3] / b, width = a[3], plane = a[2] * a[3];
  Dims extent{a[0], b, b, c, h, w}, from{c * plane, width, 1, plane, b * width, b};
  if (!columns_first) extent = {a[0], c, b, b, h, w}, from = {c * plane, plane, width, 1, b * width, b};
  single("space to depth", [&] { return copy_step(of(x), 0, from, y, 0, strides_of(extent), extent); });
}

void Planner::plan_gather(NodeId n) {
  ValueId x = g_.inputs(n)[0], i = g_.inputs(n)[1], y = g_.node(n).out_begin;
  size_t axis = static_cast<size_t>(g_.attrs(n).get_int("axis"));
  const Dims& a = dims(x);
  kernels::Gathering f{};
  f.bytes = static_cast<long long>(item_bytes(dtype(x)));
  f.index_dtype = dtype(i);
  f.outer = count_of({a.begin(), a.begin() + static_cast<std::ptrdiff_t>(axis)});
  f.extent = a[axis];
  f.inner = count_of({a.begin() + static_cast<std::ptrdiff_t>(axis) + 1, a.end()});
  f.indices = count_of(dims(i));
  single("gather", [&] { return launch(f, {of(x), of(i)}, {y}, blocks_for(f.outer * f.indices * f.inner)); });
}

}  // namespace rlflow::gpu
