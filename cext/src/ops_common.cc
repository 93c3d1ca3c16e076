#include "ops_common.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace rlflow::detail {

namespace {
constexpr size_t kMaxData = 64;
constexpr Int kFar = (Int{1} << 62) - 1;
}  // namespace

void Table::add(Row row) {
  OpInfo info;
  info.id = static_cast<OpId>(rows.size());
  info.name = row.name;
  info.since = row.since;
  info.min_inputs = row.min_inputs;
  info.max_inputs = row.max_inputs;
  info.outputs = row.outputs;
  info.flags = row.flags | (row.max_inputs < 0 ? uint32_t{kVariadic} : 0);
  info.fusion = row.fusion;
  info.infer = row.infer;
  for (const AttrDefault& d : row.defaults) info.attributes.push_back(d.name);
  for (const char* name : row.extra) info.attributes.emplace_back(name);
  std::sort(info.attributes.begin(), info.attributes.end());
  info.defaults = std::move(row.defaults);
  for (AttrDefault& d : info.defaults)
    if (auto* v = std::get_if<double>(&d.value)) *v = attribute_float(*v);
  info.flops_per_input = row.flops_per_input;
  info.flops_per_output = row.flops_per_output;
  info.flops = row.flops;
  rows.push_back(std::move(info));
}

std::optional<IntVec> known_ints(const Ctx& c, size_t i) {
  if (!present(c, i)) return std::nullopt;
  if (c.inputs[i].data) return *c.inputs[i].data;
  const ConstInfo* k = c.inputs[i].constant;
  if (!k || !k->inline_values || !dtype_is_int(type_of(k->type).dtype) || type_of(k->type).rank > 1) return std::nullopt;
  IntVec out = k->ints;
  for (Int& v : out) v = std::clamp(v, -kFar, INT64_MAX);
  return out;
}

std::optional<size_t> list_length(const Ctx& c, size_t i) {
  constexpr int64_t kMostAxes = 1024;
  auto n = element_count(in(c, i));
  if (!n) return std::nullopt;
  if (*n > kMostAxes)
    fail(c, "input " + std::to_string(i) + " lists " + std::to_string(*n) + " axes or extents, more than " + std::to_string(kMostAxes));
  return static_cast<size_t>(*n);
}

void set_data(Ctx& c, size_t i, IntVec values) {
  if (i >= c.outputs.size() || values.size() > kMaxData) return;
  if (!values.empty() && std::all_of(values.begin(), values.end(), [](Int v) { return v == kUnknown; })) return;
  c.outputs[i].has_data = true;
  c.outputs[i].data = std::move(values);
}

void pass_data(Ctx& c, int rank) {
  if (c.inputs[0].data && rank <= 1) set_data(c, 0, *c.inputs[0].data);
}

void fail(const Ctx& c, const std::string& what) { throw Error(ErrorKind::kType, c.op.name + ": " + what); }

std::string shapes(const Ctx& c) {
  std::string out;
  for (const InferInput& i : c.inputs) out += (out.empty() ? "" : " x ") + (i.present ? type_text(i.type) : std::string("_"));
  return out;
}

std::string ints_text(const IntVec& v) { return attr_text(v); }

Int axis_of(const Ctx& c, Int axis, int rank) {
  if (!is_plain(axis) || axis < -rank || axis >= rank)
    fail(c, "axis " + int_text(axis) + " is out of range for rank " + std::to_string(rank) + " (" + shapes(c) + ")");
  return axis < 0 ? axis + rank : axis;
}

Int canonical_axis(Ctx& c, std::string_view name, int rank) {
  Int axis = axis_of(c, c.attrs.get_int(name), rank);
  c.attrs.set(name, axis);
  return axis;
}

IntVec canonical_axes(Ctx& c, std::string_view name, int rank) {
  IntVec axes = c.attrs.get_ints(name);
  for (Int& a : axes) a = axis_of(c, a, rank);
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end())
    fail(c, "an axis is named twice in " + std::string(name) + "=" + ints_text(axes) + " (" + shapes(c) + ")");
  c.attrs.set(name, axes);
  return axes;
}

int common_dtype(const Ctx& c, size_t i, size_t j) {
  int a = in(c, i).dtype, b = in(c, j).dtype;
  if (!present(c, i) || a == kUndefined) return b;
  if (!present(c, j) || b == kUndefined) return a;
  if (a != b) fail(c, "element types differ: " + shapes(c) + " (" + std::string(dtype_name(a)) + " against " + std::string(dtype_name(b)) + ")");
  return a;
}

Int unify(const Ctx& c, Int a, Int b, const char* what) {
  if (int_eq(a, b) == Tri::kFalse) fail(c, std::string(what) + " differ: " + shapes(c) + " (" + int_text(a) + " against " + int_text(b) + ")");
  if (is_plain(a) || b == kUnknown) return a;
  return b == kUnknown || (is_symbolic(a) && is_symbolic(b)) ? a : b;
}

Int broadcast_dim(const Ctx& c, Int a, Int b) {
  if (a == 1) return b;
  if (b == 1) return a;
  if (is_plain(a) && is_plain(b)) {
    if (a != b) fail(c, "shapes do not broadcast: " + shapes(c) + " (" + int_text(a) + " against " + int_text(b) + ")");
    return a;
  }
  // A dim that is not 1 wins: in every valid run the other one is 1 or equal to it.
  if (is_plain(a)) return a;
  if (is_plain(b)) return b;
  return a == b ? a : kUnknown;
}

IntVec broadcast_dims(const Ctx& c, const IntVec& a, const IntVec& b) {
  const IntVec& longer = a.size() >= b.size() ? a : b;
  const IntVec& shorter = a.size() >= b.size() ? b : a;
  IntVec out = longer;
  size_t shift = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) out[i + shift] = broadcast_dim(c, longer[i + shift], shorter[i]);
  return out;
}

TensorType broadcast(const Ctx& c, const TensorType& a, const TensorType& b) {
  if (!ranked(a) || !ranked(b)) return {a.dtype, -1, {}};
  IntVec dims = broadcast_dims(c, a.dims, b.dims);
  return {a.dtype, static_cast<int>(dims.size()), std::move(dims)};
}

void require_rank(const Ctx& c, size_t i, int at_least, int at_most) {
  const TensorType& t = in(c, i);
  if (!ranked(t) || (t.rank >= at_least && t.rank <= at_most)) return;
  std::string wanted = at_least == at_most ? "rank " + std::to_string(at_least)
                       : t.rank < at_least ? "rank " + std::to_string(at_least) + " or more"
                                           : "rank " + std::to_string(at_most) + " or less";
  fail(c, "input " + std::to_string(i) + " is " + type_text(c.inputs[i].type) + ", expected " + wanted);
}

void require_outputs(const Ctx& c, size_t at_most) {
  if (c.outputs.size() > at_most)
    throw Error(ErrorKind::kGraph,
                c.op.name + ": found " + std::to_string(c.outputs.size()) + " outputs, expected at most " + std::to_string(at_most));
}

void require_dtype(const Ctx& c, size_t i, bool (*allowed)(int), const char* expected) {
  int dtype = in(c, i).dtype;
  if (dtype == kUndefined || allowed(dtype)) return;
  fail(c, "input " + std::to_string(i) + " is " + type_text(c.inputs[i].type) + ", expected " + expected);
}

Int product(std::span<const Int> dims) {
  Int n = 1;
  for (Int d : dims) {
    if (d == 0) return 0;
    n = int_mul(n, d);
  }
  return n;
}

IntVec spatial(Ctx& c, std::string_view name, size_t count, Int fill) {
  const IntVec* given = c.attrs.find_ints(name);
  if (given && given->size() == count) return *given;
  if (given && !given->empty())
    fail(c, std::string(name) + "=" + ints_text(*given) + " has " + std::to_string(given->size()) + " entries, expected " + std::to_string(count) +
                " (" + shapes(c) + ")");
  IntVec filled(count, fill);
  c.attrs.set(name, filled);
  return filled;
}

double attribute_float(double v) {
  if (v == std::trunc(v) && std::fabs(v) <= 16777216) return v;  // exact, and its own shortest text
  if (!(std::fabs(v) <= std::numeric_limits<float>::max())) return v;
  char text[32];
  char* end = std::to_chars(text, text + sizeof text, static_cast<float>(v)).ptr;
  std::from_chars(text, end, v);
  return v;
}

void infer_like_first(Ctx& c) {
  for (InferOutput& o : c.outputs) o.type = present(c, 0) ? c.inputs[0].type : 0;
}
void infer_unknown(Ctx&) {}

double count(TypeId type) {
  double n = 1;
  for (Int d : type_of(type).dims) n *= is_plain(d) ? static_cast<double>(d) : 1;
  return n;
}

}  // namespace rlflow::detail
