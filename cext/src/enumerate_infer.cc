// Shapes of the enumerator's operators; false where operands do not fit.
#include <algorithm>

#include "rlflow/enumerate.h"
#include "rlflow/error.h"

namespace rlflow::enumeration {

int64_t Shape::count() const {
  int64_t n = 1;
  for (int k = 0; k < rank; ++k) n *= extent[k];
  return n;
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

bool broadcast(const Shape& a, const Shape& b, Shape& out) {
  out.rank = std::max(a.rank, b.rank);
  for (int k = 1; k <= out.rank; ++k) {
    int x = k <= a.rank ? a.extent[a.rank - k] : 1, y = k <= b.rank ? b.extent[b.rank - k] : 1;
    if (x != y && x != 1 && y != 1) return false;
    out.extent[out.rank - k] = std::max(x, y);
  }
  return true;
}

bool matmul(const Shape& a, const Shape& b, Shape& out) {
  if (a.rank < 2 || b.rank < 2 || a.extent[a.rank - 1] != b.extent[b.rank - 2]) return false;
  Shape x = a, y = b;
  x.rank -= 2;
  y.rank -= 2;
  if (!broadcast(x, y, out) || out.rank + 2 > kMaxRank) return false;
  out.extent[out.rank] = a.extent[a.rank - 2];
  out.extent[out.rank + 1] = b.extent[b.rank - 1];
  out.rank += 2;
  return true;
}

// Spatial extents under a window whose attributes begin at `w`: kernel (2), pads (4), strides (2).
bool windowed(const Shape& x, const int64_t* w, Shape& out) {
  for (int k = 0; k < 2; ++k) {
    int64_t room = x.extent[2 + k] + w[2 + k] + w[4 + k] - w[k];
    if (room < 0) return false;
    out.extent[2 + k] = static_cast<int32_t>(room / w[6 + k] + 1);
  }
  return true;
}

bool convolution(const Shape& x, const Shape& k, const int64_t* a, Shape& out) {
  if (x.rank != 4 || k.rank != 4 || k.extent[2] != a[1] || k.extent[3] != a[2]) return false;
  if (x.extent[1] != k.extent[1] * a[0] || k.extent[0] % a[0] != 0) return false;
  out.rank = 4;
  out.extent[0] = x.extent[0];
  out.extent[1] = k.extent[0];
  return windowed(x, a + 1, out);
}

bool reduction(const Shape& x, const std::vector<int64_t>& a, Shape& out) {
  out = x;
  bool gone[kMaxRank] = {};
  for (size_t k = 1; k < a.size(); ++k) {
    if (a[k] >= x.rank) return false;
    gone[a[k]] = true;
  }
  out.rank = 0;
  for (int k = 0; k < x.rank; ++k)
    if (!gone[k] || a[0]) out.extent[out.rank++] = gone[k] ? 1 : x.extent[k];
  for (int k = out.rank; k < kMaxRank; ++k) out.extent[k] = 0;
  return true;
}

bool moved(const Template& t, const Shape& x, const std::vector<int64_t>& a, Shape& out) {
  out = x;
  switch (t.kind) {
    case Kind::kTranspose:
      if (a.size() != x.rank) return false;
      for (int k = 0; k < x.rank; ++k) out.extent[k] = x.extent[a[k]];
      return true;
    case Kind::kPad:
      if (a.size() != 2u * x.rank) return false;
      for (int k = 0; k < x.rank; ++k) out.extent[k] += static_cast<int32_t>(a[k] + a[x.rank + k]);
      return true;
    case Kind::kSlice:
      if (a[0] >= x.rank || a[2] > x.extent[a[0]] || a[1] >= a[2]) return false;
      out.extent[a[0]] = static_cast<int32_t>(a[2] - a[1]);
      return true;
    case Kind::kUpsample:
      if (a.size() != x.rank) return false;
      for (int k = 0; k < x.rank; ++k) out.extent[k] *= static_cast<int32_t>(a[k]);
      return true;
    case Kind::kSplit:
      if (a[0] >= x.rank || x.extent[a[0]] % 2 != 0) return false;
      out.extent[a[0]] /= 2;
      return true;
    default: return a[0] < x.rank;  // Rows
  }
}

bool concat(const Shape& x, const Shape& y, int64_t axis, Shape& out) {
  if (x.rank != y.rank || axis >= x.rank) return false;
  for (int k = 0; k < x.rank; ++k)
    if (k != axis && x.extent[k] != y.extent[k]) return false;
  out = x;
  out.extent[axis] += y.extent[axis];
  return true;
}

bool infer_one(const Template& t, const Shape* const* x, const std::vector<int64_t>& a, Shape& out) {
  switch (t.kind) {
    case Kind::kMatMul: return matmul(*x[0], *x[1], out);
    case Kind::kAdd:
    case Kind::kSub:
    case Kind::kMul:
    case Kind::kDiv:
    case Kind::kMax:
    case Kind::kMin: return broadcast(*x[0], *x[1], out);
    case Kind::kScaledRows: out = *x[0]; return a[0] == x[0]->rank - 1 && x[1]->rank == 1 && x[1]->extent[0] == out.extent[a[0]];
    case Kind::kNeg:
    case Kind::kRelu:
    case Kind::kUnary: out = *x[0]; return true;
    case Kind::kConv: return convolution(*x[0], *x[1], a.data(), out);
    case Kind::kAveragePool:
    case Kind::kMaxPool: out = *x[0]; return x[0]->rank == 4 && windowed(*x[0], a.data(), out);
    case Kind::kConcat: return concat(*x[0], *x[1], a[0], out);
    case Kind::kReduceSum:
    case Kind::kReduceMean:
    case Kind::kReduceMax: return reduction(*x[0], a, out);
    default: return moved(t, *x[0], a, out);
  }
}

}  // namespace

bool infer(const Template& t, const Value* const* operands, int worlds, int64_t max_elements, Value* outputs) {
  for (int w = 0; w < worlds; ++w) {
    const Shape* shapes[kMaxOperands] = {};
    for (int k = 0; k < t.arity; ++k) shapes[k] = &operands[k]->shape[w];
    Shape& out = outputs[0].shape[w];
    out = Shape{};
    if (!infer_one(t, shapes, t.attributes[w], out) || out.count() > max_elements) return false;
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
