// What the rows of the operator table share: how a row is written, and the vocabulary of the shape rules.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rlflow/ops.h"

namespace rlflow::detail {

// A row as it is written down. `extra` names the attributes without a default.
struct Row {
  const char* name;
  int since;
  int min_inputs, max_inputs;
  int outputs;
  uint32_t flags;
  FusionClass fusion;
  InferFn infer;
  std::vector<AttrDefault> defaults = {};
  std::vector<const char*> extra = {};
  double flops_per_input = 0;
  double flops_per_output = 0;
  FlopsFn flops = nullptr;
};
class Table {
 public:
  void add(Row row);
  std::vector<OpInfo> rows;
};
void add_source_rows(Table& t);
void add_elementwise_rows(Table& t);
void add_linear_rows(Table& t);
void add_convolution_rows(Table& t);
void add_normalisation_rows(Table& t);
void add_reduction_rows(Table& t);
void add_movement_rows(Table& t);
void add_indexing_rows(Table& t);
void add_shape_rows(Table& t);
void add_quantisation_rows(Table& t);

using Ctx = InferContext;

// ---- reading the inputs
inline bool present(const Ctx& c, size_t i) { return i < c.inputs.size() && c.inputs[i].present; }
inline const TensorType& in(const Ctx& c, size_t i) { return type_of(present(c, i) ? c.inputs[i].type : TypeId{0}); }
inline bool ranked(const TensorType& t) { return t.rank >= 0; }
// Known elements of a shape-like input: propagated data, or a constant's values (those beyond +-2^62 are clamped: they only ever
// mean "to the end").
std::optional<IntVec> known_ints(const Ctx& c, size_t i);
// Elements of a list of extents or axes, where they are counted; throws where they are more than any tensor has axes.
std::optional<size_t> list_length(const Ctx& c, size_t i);

// ---- writing the outputs
inline void set(Ctx& c, size_t i, int dtype, const IntVec& dims) {
  if (i < c.outputs.size()) c.outputs[i].type = make_type(dtype, dims);
}
inline void set_unranked(Ctx& c, size_t i, int dtype) {
  if (i < c.outputs.size()) c.outputs[i].type = make_type_unranked(dtype);
}
inline void set_like(Ctx& c, size_t i, int dtype, const TensorType& shape) {
  if (i < c.outputs.size()) c.outputs[i].type = shape.rank < 0 ? make_type_unranked(dtype) : make_type(dtype, shape.dims);
}
inline void set_rank(Ctx& c, size_t i, int dtype, int rank) { set(c, i, dtype, IntVec(static_cast<size_t>(rank), kUnknown)); }
void set_data(Ctx& c, size_t i, IntVec values);  // dropped when there are more than 64 or none is known

// The first input's known elements are the output's too, where the output has rank 0 or 1.
void pass_data(Ctx& c, int rank);

// ---- complaining
[[noreturn]] void fail(const Ctx& c, const std::string& what);
std::string shapes(const Ctx& c);                // "f32[2,3] x f32[4,5]"
std::string ints_text(const IntVec& v);          // "[1,N]"

// ---- rules
Int axis_of(const Ctx& c, Int axis, int rank);                             // non-negative; throws when out of range
Int canonical_axis(Ctx& c, std::string_view name, int rank);               // the same for an attribute, and stores it
IntVec canonical_axes(Ctx& c, std::string_view name, int rank);            // sorted, no duplicates; stores it
int common_dtype(const Ctx& c, size_t i, size_t j);                        // throws when both are known and differ
Int unify(const Ctx& c, Int a, Int b, const char* what);                   // equal by definition: the better known of the two
Int broadcast_dim(const Ctx& c, Int a, Int b);
IntVec broadcast_dims(const Ctx& c, const IntVec& a, const IntVec& b);
TensorType broadcast(const Ctx& c, const TensorType& a, const TensorType& b);  // dtype of a; unranked if either is
void require_rank(const Ctx& c, size_t i, int at_least, int at_most = 1 << 20);
void require_outputs(const Ctx& c, size_t at_most);  // of an operator with a variable number of them
void require_dtype(const Ctx& c, size_t i, bool (*allowed)(int), const char* expected);
Int product(std::span<const Int> dims);
// Spelled-out list of `count` integers: checks the length of an attribute, or sets it to `fill` when it is absent or empty.
IntVec spatial(Ctx& c, std::string_view name, size_t count, Int fill);

// Common whole rules.
void infer_like_first(Ctx& c);       // every output has the first input's type
void infer_unknown(Ctx& c);

// ONNX stores float attributes in single precision. They are kept as the double with the shortest decimal text that rounds to the
// same single (0.1, not 0.100000001490116), so that defaults, files and rules agree on one value.
double attribute_float(double v);

// ---- cost
double count(TypeId type);           // elements; a dim that is not known counts as 1

}  // namespace rlflow::detail
