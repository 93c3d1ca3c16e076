#include "rlflow/ops.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "ops_common.h"
#include "rlflow/ops_extension.h"

namespace rlflow {

using detail::Table;

namespace {

Table& table() {
  static Table& whole = []() -> Table& {
    auto* t = new Table;
    detail::add_source_rows(*t);  // first: these have fixed ids
    detail::add_elementwise_rows(*t);
    detail::add_linear_rows(*t);
    detail::add_convolution_rows(*t);
    detail::add_normalisation_rows(*t);
    detail::add_reduction_rows(*t);
    detail::add_movement_rows(*t);
    detail::add_indexing_rows(*t);
    detail::add_shape_rows(*t);
    detail::add_quantisation_rows(*t);
    t->rows.reserve(t->rows.size() + kMostExtensions);  // rows are referred to, so they never move
    return *t;
  }();
  return whole;
}

// Whether somebody has read the table: then it is as it is.
std::atomic<bool> sealed{false};

using NameIndex = std::unordered_map<std::string_view, OpId>;
const NameIndex& names() {
  static const auto& index = []() -> const NameIndex& {
    auto* m = new NameIndex;
    sealed = true;
    for (const OpInfo& row : op_table()) m->emplace(row.name, row.id);
    return *m;
  }();
  return index;
}

// Edit distance, to name the nearest operator in an error message.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t above = row[j];
      bool same = (a[i - 1] | 32) == (b[j - 1] | 32);  // letters regardless of case
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + !same});
      diagonal = above;
    }
  }
  return row[b.size()];
}

void check_arity(const OpInfo& op, std::span<const InferInput> inputs) {
  int n = static_cast<int>(inputs.size());
  bool good = n >= op.min_inputs && (op.max_inputs < 0 || n <= op.max_inputs);
  if (good) {
    int required = op.max_inputs < 0 ? n : op.min_inputs;
    for (int i = 0; i < required; ++i) good = good && inputs[static_cast<size_t>(i)].present;
    if (good) return;
    throw Error(ErrorKind::kGraph, op.name + ": a required input is absent (the first " + std::to_string(required) + " are required)");
  }
  std::string wanted = op.max_inputs < 0                ? std::to_string(op.min_inputs) + " or more"
                       : op.min_inputs == op.max_inputs ? std::to_string(op.min_inputs)
                                                        : std::to_string(op.min_inputs) + " to " + std::to_string(op.max_inputs);
  throw Error(ErrorKind::kGraph, op.name + ": found " + std::to_string(n) + " inputs, expected " + wanted);
}

void check_attributes(const OpInfo& op, const AttrSet& attrs) {
  if (op.id <= kOpOpaque) return;  // the builder's own
  for (const auto& [name, value] : attrs.items) {
    if (std::binary_search(op.attributes.begin(), op.attributes.end(), name)) continue;
    std::string known;
    for (const std::string& a : op.attributes) known += (known.empty() ? "" : ", ") + a;
    throw Error(ErrorKind::kGraph, op.name + ": unknown attribute '" + name + "'" + (known.empty() ? " (it has none)" : " (it has " + known + ")"));
  }
}

void fill_defaults(const OpInfo& op, AttrSet& attrs) {
  for (const AttrDefault& d : op.defaults) {
    const AttrValue* given = attrs.find(d.name);
    if (!given) {
      attrs.set(d.name, d.value);
    } else if (given->index() != d.value.index()) {
      if (std::holds_alternative<double>(d.value)) {
        attrs.set(d.name, attrs.get_float(d.name));  // an integer is written as the float it means
      } else if (auto* list = std::get_if<IntVec>(given); list && list->empty()) {
        attrs.set(d.name, d.value);                  // "[]" reads as a list of integers whatever it was meant to be
      } else {
        throw Error(ErrorKind::kType,
                    op.name + ": attribute '" + d.name + "' is " + attr_text(*given) + ", expected a value like its default " + attr_text(d.value));
      }
    }
  }
}

// "value" (of Pad and ConstantOfShape) is an element of a tensor, not a float attribute of ONNX.
void round_floats(AttrSet& attrs) {
  for (auto& [name, value] : attrs.items) {
    if (auto* v = std::get_if<double>(&value); v && name != "value") *v = detail::attribute_float(*v);
    if (auto* list = std::get_if<std::vector<double>>(&value))
      for (double& v : *list) v = detail::attribute_float(v);
  }
}

size_t output_count(const OpInfo& op, const AttrSet& attrs, int wanted) {
  if (wanted > op.outputs && !op.has(kVariadicOutputs))
    throw Error(ErrorKind::kGraph, op.name + ": found " + std::to_string(wanted) + " outputs, expected " + std::to_string(op.outputs));
  if (wanted > 0) return static_cast<size_t>(wanted);
  if (op.has(kVariadicOutputs) && op.id != kOpOpaque) {
    if (const IntVec* sizes = attrs.find_ints("split"); sizes && !sizes->empty()) return sizes->size();
    if (Int n = attrs.get_int("num_outputs", Int{1}); is_plain(n) && n > 0 && n <= UINT16_MAX) return static_cast<size_t>(n);
  }
  return static_cast<size_t>(op.outputs);
}

// ---- rows that are added at run time ---------------------------------------------------------------------------------------
// A shape rule of somebody else's, and its answers so far.
class GivenRule {
 public:
  explicit GivenRule(GivenShape shape) : shape_(std::move(shape)) {}

  std::optional<IntVec> dims(const AttrSet& attrs, const std::vector<TypeId>& operands) {
    const Key key{intern_attrs(attrs), operands};
    {
      const std::shared_lock lock(mutex_);
      if (const auto it = known_.find(key); it != known_.end()) return it->second;
    }
    std::optional<IntVec> found = shape_(attrs, operands);  // without the lock: it may wait for one of its own
    const std::unique_lock lock(mutex_);
    return known_.emplace(key, std::move(found)).first->second;
  }

 private:
  using Key = std::pair<AttrId, std::vector<TypeId>>;
  GivenShape shape_;
  std::shared_mutex mutex_;
  std::map<Key, std::optional<IntVec>> known_;
};

// By operator. Rows are added by one thread before anybody reads the table; afterwards this is only read.
std::map<OpId, GivenRule>& given_rules() {
  static auto* const rules = new std::map<OpId, GivenRule>;
  return *rules;
}

void infer_given(detail::Ctx& c) {
  std::vector<TypeId> operands;
  const int dtype = detail::in(c, 0).dtype;
  for (const InferInput& one : c.inputs) {
    if (type_of(one.type).rank < 0) return detail::set_unranked(c, 0, dtype);
    operands.push_back(one.type);
  }
  if (const std::optional<IntVec> dims = given_rules().at(c.op.id).dims(c.attrs, operands)) detail::set(c, 0, dtype, *dims);
  else detail::set_unranked(c, 0, dtype);
}

void infer_broadcast(detail::Ctx& c) {
  TensorType out = detail::in(c, 0);
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    out.dtype = detail::common_dtype(c, 0, i);
    out = detail::broadcast(c, out, detail::in(c, i));
  }
  detail::set_like(c, 0, out.dtype, out);
}

detail::Row extension_row(const Extension& extension, OpId id) {
  const bool given = extension.shape != nullptr;
  const uint32_t kind = given ? 0 : extension.inputs == 1 ? kUnary : extension.inputs == 2 ? kBinary : kPointwise;
  if (given) given_rules().try_emplace(id, extension.shape);
  return {.name = extension.name.c_str(),
          .since = 1,
          .min_inputs = extension.inputs,
          .max_inputs = extension.inputs,
          .outputs = 1,
          .flags = extension.flags | kPure | kind,
          .fusion = given ? FusionClass::kAnchor : FusionClass::kElementwise,
          .infer = given                   ? infer_given
                   : extension.inputs == 1 ? detail::infer_like_first
                                           : infer_broadcast,
          .defaults = extension.defaults,
          .flops_per_output = extension.flops_per_output};
}

}  // namespace

const std::vector<OpInfo>& op_table() {
  sealed.store(true, std::memory_order_relaxed);
  return table().rows;
}

const OpInfo& op_info(OpId id) {
  static const std::vector<OpInfo>& rows = table().rows;
  return rows[id];
}

OpId extend_table(Extension extension) {
  std::vector<OpInfo>& rows = table().rows;
  const auto refuse = [&](const std::string& why) { throw Error(ErrorKind::kUsage, "the operator " + extension.name + " cannot be added: " + why); };
  if (sealed) refuse("the operator table was read already; register operators first, before any graph or rule is made");
  if (std::any_of(rows.begin(), rows.end(), [&](const OpInfo& row) { return row.name == extension.name; }))
    refuse("the table has an operator of this name");
  if (rows.size() == rows.capacity()) refuse("there are " + std::to_string(kMostExtensions) + " added operators already");
  table().add(extension_row(extension, static_cast<OpId>(rows.size())));
  return rows.back().id;
}

std::string shape_rule_text(const OpInfo& op) {
  return op.infer == detail::infer_like_first ? "as the first operand"
         : op.infer == detail::infer_unknown  ? "unknown"
         : op.infer == infer_broadcast        ? "the operands, broadcast"
         : op.infer == infer_given            ? "given"
                                              : "its own";
}

std::string flops_text(const OpInfo& op) {
  if (op.flops) return "counted from its shapes";
  std::string text;
  const auto term = [&](double count, const char* what) {
    if (count != 0) text += (text.empty() ? "" : " and ") + std::to_string(static_cast<long>(count)) + " an " + what + " element";
  };
  term(op.flops_per_input, "input");
  term(op.flops_per_output, "output");
  return text.empty() ? "none" : text;
}

bool has_op(std::string_view name) { return names().contains(name); }

OpId find_op(std::string_view name) {
  if (auto it = names().find(name); it != names().end()) return it->second;
  std::string_view nearest;
  size_t best = 4;
  for (const OpInfo& row : op_table())
    if (size_t d = distance(name, row.name); d < best) best = d, nearest = row.name;
  throw Error(ErrorKind::kGraph, "unknown operator '" + shown(name) + "' (" +
                                     (nearest.empty() ? "the table has " + std::to_string(op_table().size()) + " operators, none like it"
                                                      : "did you mean '" + std::string(nearest) + "'?") +
                                     ")");
}

void infer(OpId id, AttrSet& attrs, std::span<const InferInput> inputs, std::vector<InferOutput>& outputs, int wanted_outputs) {
  const OpInfo& op = op_info(id);
  check_arity(op, inputs);
  check_attributes(op, attrs);
  fill_defaults(op, attrs);
  round_floats(attrs);
  outputs.clear();
  outputs.resize(output_count(op, attrs, wanted_outputs));
  InferContext context{op, attrs, inputs, std::move(outputs)};
  try {
    op.infer(context);
  } catch (const Error& e) {
    std::string_view what = e.what();
    if (what.starts_with(op.name + ":")) throw;
    throw Error(e.kind(), op.name + ": " + std::string(what));
  }
  outputs = std::move(context.outputs);
}

bool infers(OpId id, AttrSet& attrs, std::span<const InferInput> inputs, std::vector<InferOutput>& outputs, int wanted_outputs) {
  try {
    infer(id, attrs, inputs, outputs, wanted_outputs);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kType) throw;
    return false;
  }
  return true;
}

NodeCost node_cost(OpId id, const AttrSet& attrs, std::span<const TypeId> inputs, std::span<const TypeId> outputs) {
  const OpInfo& op = op_info(id);
  NodeCost cost;
  if (op.fusion == FusionClass::kSource || op.fusion == FusionClass::kView) return cost;
  for (TypeId t : inputs) cost.bytes_in += detail::count(t) * dtype_bytes(type_of(t).dtype);
  for (TypeId t : outputs) cost.bytes_out += detail::count(t) * dtype_bytes(type_of(t).dtype);
  if (op.flops) {
    cost.flops = op.flops(attrs, inputs, outputs);
  } else {
    if (!inputs.empty()) cost.flops += op.flops_per_input * detail::count(inputs[0]);
    if (!outputs.empty()) cost.flops += op.flops_per_output * detail::count(outputs[0]);
  }
  return cost;
}

}  // namespace rlflow

namespace rlflow::detail {

namespace {
void infer_constant(Ctx& c) {
  const AttrValue* value = c.attrs.find("value");
  const ConstRef* ref = value ? std::get_if<ConstRef>(value) : nullptr;
  if (!ref) fail(c, "attribute 'value' is absent or not a constant");
  const ConstInfo& k = const_of(ref->id);
  if (c.outputs.empty()) return;
  c.outputs[0].type = k.type;
  const TensorType& t = type_of(k.type);
  bool integer = t.dtype == kI64 || t.dtype == kI32 || t.dtype == kBool;
  if (!k.inline_values || !integer || t.rank < 0 || t.rank > 1) return;
  for (Int v : k.ints)
    if (!is_plain(v)) return;
  set_data(c, 0, k.ints);
}
}  // namespace

void add_source_rows(Table& t) {
  t.add({"Input", 1, 0, 0, 1, 0, FusionClass::kSource, infer_unknown, {}, {"index", "type"}});
  t.add({"Constant", 1, 0, 0, 1, kPure, FusionClass::kSource, infer_constant, {}, {"value"}});
  t.add({"Opaque", 1, 0, -1, 1, kVariadicOutputs, FusionClass::kOpaque, infer_unknown, {}, {"name", "payload", "pure"}});
}

}  // namespace rlflow::detail
