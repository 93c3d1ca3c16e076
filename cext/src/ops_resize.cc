// Resize (Upsample is written as Resize).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops_common.h"

namespace rlflow::detail {
namespace {

void require_one_of(const Ctx& c, const char* name, std::initializer_list<const char*> allowed) {
  std::string value = c.attrs.get_string(name), list;
  for (const char* a : allowed) {
    if (value == a) return;
    list += (list.empty() ? "" : ", ") + std::string(a);
  }
  fail(c, std::string(name) + " is \"" + value + "\", expected one of " + list);
}

// Floats of an attribute that may have been written as integers ("[1,1,2,2]").
std::optional<std::vector<double>> floats_of(Ctx& c, const char* name) {
  const AttrValue* v = c.attrs.find(name);
  if (!v) return std::nullopt;
  if (auto* list = std::get_if<std::vector<double>>(v)) return *list;
  const IntVec ints = c.attrs.get_ints(name);
  std::vector<double> out;
  for (Int i : ints) {
    if (!is_plain(i)) fail(c, std::string(name) + "=" + ints_text(ints) + " is not made of plain numbers");
    out.push_back(static_cast<double>(i));
  }
  c.attrs.set(name, out);
  return out;
}

std::optional<std::vector<double>> known_scales(Ctx& c, size_t i) {
  if (!present(c, i)) return std::nullopt;
  const ConstInfo* k = c.inputs[i].constant;
  return k && k->inline_values && !k->floats.empty() ? std::optional(k->floats) : std::nullopt;
}

Int scaled(const Ctx& c, Int d, double scale) {
  if (!(scale > 0)) fail(c, "a scale is " + attr_text(scale) + ", expected a positive number");
  if (scale == 1) return d;
  if (scale == std::trunc(scale) && scale < 1e9) return int_mul(d, static_cast<Int>(scale));
  // ONNX computes this in float.
  return is_plain(d) ? static_cast<Int>(std::floor(static_cast<float>(d) * static_cast<float>(scale))) : kUnknown;
}

// Extents under keep_aspect_ratio_policy: one common scale for all the named axes.
void keep_aspect(const Ctx& c, const IntVec& axes, const IntVec& sizes, bool larger, IntVec& out) {
  const TensorType& x = in(c, 0);
  float scale = 0;  // in which the runtime computes
  for (size_t i = 0; i < axes.size(); ++i) {
    Int d = x.dims[static_cast<size_t>(axes[i])];
    if (!is_plain(d) || !is_plain(sizes[i]) || d == 0) {
      for (Int a : axes) out[static_cast<size_t>(a)] = kUnknown;
      return;
    }
    float s = static_cast<float>(sizes[i]) / static_cast<float>(d);
    scale = i == 0 ? s : larger ? std::max(scale, s) : std::min(scale, s);
  }
  for (Int a : axes) {
    Int& d = out[static_cast<size_t>(a)];
    d = static_cast<Int>(std::round(scale * static_cast<float>(d)));
  }
}

// Axes that scales and sizes speak of; all of them by default.
IntVec resized_axes(Ctx& c, int rank) {
  if (const IntVec* given = c.attrs.find_ints("axes")) {
    IntVec axes = *given;
    for (Int& a : axes) a = axis_of(c, a, rank);
    c.attrs.set("axes", axes);
    return axes;
  }
  IntVec axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), Int{0});
  return axes;
}

void check_entries(const Ctx& c, const char* what, size_t found, size_t expected) {
  if (found != expected)
    fail(c, std::string(what) + " has " + std::to_string(found) + " entries, expected " + std::to_string(expected) + " (" + shapes(c) + ")");
}

// Scales of some axes become scales of all; the crop region and the aspect policy speak of the named axes only, so they stay.
void spell_out_scales(Ctx& c, const IntVec& axes, const std::vector<double>& scales, int rank) {
  if (!c.attrs.find("axes") || c.attrs.find("roi")) return;
  std::vector<double> full(static_cast<size_t>(rank), 1.0);
  for (size_t i = 0; i < axes.size(); ++i) full[static_cast<size_t>(axes[i])] = scales[i];
  c.attrs.set("scales", full);
  c.attrs.erase("axes");
}

// Sizes of some axes become sizes of all, where the other extents are plain.
void spell_out_sizes(Ctx& c, const IntVec& axes, const IntVec& out) {
  if (!c.attrs.find("axes") || c.attrs.find("roi") || !std::all_of(out.begin(), out.end(), is_plain)) return;
  if (axes.size() == out.size() && std::is_sorted(axes.begin(), axes.end())) return c.attrs.erase("axes");
  c.attrs.set("sizes", out);
  c.attrs.erase("axes");
}

void infer_resize(Ctx& c) {
  require_one_of(c, "mode", {"nearest", "linear", "cubic"});
  require_one_of(c, "keep_aspect_ratio_policy", {"stretch", "not_larger", "not_smaller"});
  const TensorType& x = in(c, 0);
  bool dynamic = c.inputs.size() > 1;
  auto scales = dynamic ? known_scales(c, 2) : floats_of(c, "scales");
  auto sizes = dynamic ? known_ints(c, 3) : c.attrs.find_ints("sizes") ? std::optional(c.attrs.get_ints("sizes")) : std::optional<IntVec>();
  if (scales && scales->empty()) scales.reset(), c.attrs.erase("scales");
  if (!dynamic && !scales && !sizes) fail(c, "it has neither scales nor sizes");
  if (!dynamic && scales && sizes) fail(c, "it has both scales and sizes");
  if (!ranked(x)) return set_unranked(c, 0, x.dtype);
  if (!scales && !sizes) return set_rank(c, 0, x.dtype, x.rank);
  IntVec axes = resized_axes(c, x.rank), out = x.dims;
  std::string policy = c.attrs.get_string("keep_aspect_ratio_policy");
  if (sizes) {
    check_entries(c, "sizes", sizes->size(), axes.size());
    for (size_t i = 0; i < axes.size(); ++i) out[static_cast<size_t>(axes[i])] = (*sizes)[i];
    if (policy != "stretch") {
      for (Int a : axes) out[static_cast<size_t>(a)] = x.dims[static_cast<size_t>(a)];
      keep_aspect(c, axes, *sizes, policy == "not_smaller", out);
    } else if (!dynamic) {
      spell_out_sizes(c, axes, out);
    }
  } else {
    check_entries(c, "scales", scales->size(), axes.size());
    for (size_t i = 0; i < axes.size(); ++i) {
      Int& d = out[static_cast<size_t>(axes[i])];
      d = scaled(c, d, (*scales)[i]);
    }
    if (!dynamic) spell_out_scales(c, axes, *scales, x.rank);
  }
  set(c, 0, x.dtype, out);
}

double resize_flops(const AttrSet& attrs, std::span<const TypeId>, std::span<const TypeId> out) {
  std::string mode = attrs.get_string("mode", "nearest");
  return count(out[0]) * (mode == "nearest" ? 0 : mode == "linear" ? 8 : 40);
}

}  // namespace

// clang-format off
void add_resize_row(Table& t) {
  auto text = [](const char* s) { return AttrValue(std::string(s)); };
  t.add({.name = "Resize", .since = 10, .min_inputs = 1, .max_inputs = 4, .outputs = 1, .flags = kPure,
         .fusion = FusionClass::kMovement, .infer = infer_resize,
         .defaults = {{"antialias", Int{0}},
                      {"coordinate_transformation_mode", text("half_pixel")},
                      {"cubic_coeff_a", -0.75},
                      {"exclude_outside", Int{0}},
                      {"extrapolation_value", 0.0},
                      {"keep_aspect_ratio_policy", text("stretch")},
                      {"mode", text("nearest")},
                      {"nearest_mode", text("round_prefer_floor")}},
         .extra = {"axes", "roi", "scales", "sizes"}, .flops = resize_flops});
}
// clang-format on

}  // namespace rlflow::detail
