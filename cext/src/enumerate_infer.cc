// Shapes of the enumerator's operators, by the operator table's rules; false where operands do not fit, or the evaluator has no such case.
#include <mutex>

#include "rlflow/enumerate.h"
#include "rlflow/error.h"

namespace rlflow::enumeration {

int64_t Shape::count() const {
  int64_t n = 1;
  for (int k = 0; k < rank; ++k) n *= extent[k];
  return n;
}

std::optional<std::optional<Shape>> ShapeMemo::find(int world, const Operands& operands) const {
  std::shared_lock lock(mutex_);
  const auto& known = known_[static_cast<size_t>(world)];
  const auto it = known.find(operands);
  if (it == known.end()) return std::nullopt;
  return it->second;
}

void ShapeMemo::keep(int world, const Operands& operands, const std::optional<Shape>& result) {
  std::unique_lock lock(mutex_);
  known_[static_cast<size_t>(world)].emplace(operands, result);
}

Kind kind_of(const std::string& name) {
  static const char* const kNames[] = {"MatMul", "Add",   "Sub",      "Mul",         "Div",        "Neg",       "Max",   "Min",
                                       "Relu",   "Unary", "Conv",     "AveragePool", "MaxPool",    "Concat",    "Split", "Transpose",
                                       "Pad",    "Slice", "Upsample", "ReduceSum",   "ReduceMean", "ReduceMax", "Rows",  "ScaledRows"};
  static_assert(std::size(kNames) == static_cast<size_t>(Kind::kCount));
  for (size_t k = 0; k < std::size(kNames); ++k)
    if (name == kNames[k]) return static_cast<Kind>(k);
  throw Error(ErrorKind::kUsage, "the enumerator has no evaluator for the kind of operator '" + name + "'");
}

namespace {

// Whether the evaluator of the kind has these operands: less than the operators, and no more than its loops read.
bool evaluated(const Template& t, const Shape* const* x, const std::vector<int64_t>& a) {
  switch (t.kind) {
    case Kind::kMatMul: return x[0]->rank >= 2 && x[1]->rank >= 2;
    case Kind::kConv: return x[0]->rank == 4 && x[1]->rank == 4;
    case Kind::kAveragePool:
    case Kind::kMaxPool: return x[0]->rank == 4;
    case Kind::kScaledRows: return a[0] == x[0]->rank - 1 && x[1]->rank == 1 && x[1]->extent[0] == x[0]->extent[static_cast<size_t>(a[0])];
    case Kind::kSlice: return a[0] < x[0]->rank && a[1] < a[2] && a[2] <= x[0]->extent[static_cast<size_t>(a[0])];  // it does not clip
    case Kind::kConcat: return x[0]->rank == x[1]->rank && a[0] < x[0]->rank;
    case Kind::kSplit:
    case Kind::kRows: return a[0] < x[0]->rank;
    default: return true;
  }
}

// The evaluator sums over the axes that it is given, whatever else the operator of the table reduces.
bool reduces_its_axes(const Template& t, const Shape& x, const std::vector<int64_t>& a, const Shape& out) {
  if (t.kind != Kind::kReduceSum && t.kind != Kind::kReduceMean && t.kind != Kind::kReduceMax) return true;
  int64_t gone = 1;
  for (size_t k = 1; k < a.size(); ++k) {
    if (a[k] >= x.rank) return false;
    gone *= x.extent[static_cast<size_t>(a[k])];
  }
  return out.count() * gone == x.count();
}

std::optional<Shape> shape_of(TypeId id) {
  const TensorType& type = type_of(id);
  if (type.rank < 0 || type.rank > kMaxRank) return std::nullopt;
  Shape shape;
  for (Int d : type.dims) {
    if (!is_plain(d) || d < 1 || d > INT32_MAX) return std::nullopt;
    shape.extent[shape.rank++] = static_cast<int32_t>(d);
  }
  return shape;
}

// The operator table's own rule; nothing where it finds a contradiction.
std::optional<Shape> by_the_table(const Template& t, int world, const Shape* const* x) {
  std::vector<InferInput> inputs(t.arity);
  for (size_t k = 0; k < t.arity; ++k) {
    IntVec dims(x[k]->extent.begin(), x[k]->extent.begin() + x[k]->rank);
    inputs[k] = {.present = true, .type = make_type(kF32, dims)};
  }
  AttrSet attrs = t.attrs[static_cast<size_t>(world)];
  std::vector<InferOutput> outputs;
  if (!infers(t.op, attrs, inputs, outputs, t.outputs)) return std::nullopt;
  if (t.outputs == 2 && outputs[0].type != outputs[1].type) return std::nullopt;  // it keeps one shape for both
  return shape_of(outputs[0].type);
}

bool infer_one(const Template& t, int world, const Shape* const* x, Shape& out) {
  const std::vector<int64_t>& a = t.attributes[static_cast<size_t>(world)];
  if (!evaluated(t, x, a)) return false;
  ShapeMemo::Operands operands{};
  for (size_t k = 0; k < t.arity; ++k) operands[k] = *x[k];
  std::optional<std::optional<Shape>> known = t.shapes->find(world, operands);
  if (!known) {
    known = by_the_table(t, world, x);
    t.shapes->keep(world, operands, *known);
  }
  if (!*known || !reduces_its_axes(t, *x[0], a, **known)) return false;
  out = **known;
  return true;
}

}  // namespace

bool infer(const Template& t, const Value* const* operands, int worlds, int64_t max_elements, Value* outputs) {
  for (int w = 0; w < worlds; ++w) {
    const Shape* shapes[kMaxOperands] = {};
    for (int k = 0; k < t.arity; ++k) shapes[k] = &operands[k]->shape[w];
    Shape& out = outputs[0].shape[w];
    if (!infer_one(t, w, shapes, out) || out.count() > max_elements) return false;
    if (t.outputs == 2) outputs[1].shape[w] = out;
  }
  bool weight = true;
  for (int k = 0; k < t.arity; ++k) weight = weight && operands[k]->weight;
  for (int j = 0; j < t.outputs; ++j) {
    outputs[j].weight = weight;
    outputs[j].begin[0] = 0;
    for (int w = 0; w < worlds; ++w) outputs[j].begin[w + 1] = outputs[j].begin[w] + static_cast<uint32_t>(outputs[j].shape[w].count());
  }
  return true;
}

}  // namespace rlflow::enumeration
