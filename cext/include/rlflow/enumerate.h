// Enumeration of small graphs over typed symbolic inputs, and their values in GF(2^61 - 1).
//
// A *world* gives every input a concrete shape and random values; a value lives in several worlds of different extents at once, so that
// extents that happen to coincide in one of them (a square matrix, as many channels as rows) do not make two graphs look equal.
// An element is a pair: its exact residue modulo p = 2^61 - 1, and its real value as a double. Equality is decided by residues only;
// the double only orders elements (Max, Min, Relu, MaxPool), which the field cannot. Inputs are rationals n/1024, so that both are exact
// at the leaves. Pointwise functions about which nothing is assumed are keyed random functions of the residue, row-wise ones keyed
// random functions of the row; both are the functions of rlflow.synthesis.field, which is this evaluator's oracle.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "rlflow/hash.h"
#include "rlflow/ops.h"

namespace rlflow::enumeration {

constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
constexpr int kMaxWorlds = 3, kMaxRank = 5, kMaxOperands = 3, kMaxOps = 5;

// clang-format off
enum class Kind : uint8_t {
  kMatMul, kAdd, kSub, kMul, kDiv, kNeg, kMax, kMin, kRelu, kUnary, kConv, kAveragePool, kMaxPool, kConcat, kSplit, kTranspose,
  kPad, kSlice, kUpsample, kReduceSum, kReduceMean, kReduceMax, kRows, kScaledRows, kCount
};
// clang-format on
Kind kind_of(const std::string& name);  // throws Error(kUsage)

// What an operand may be: any value, one made of weights only, an input only, a weight input only, one not made of weights only.
enum class Operand : uint8_t { kAny, kWeight, kInput, kWeightInput, kActivation };

struct Shape {
  uint8_t rank = 0;
  std::array<int32_t, kMaxRank> extent{};
  int64_t count() const;
  friend bool operator==(const Shape&, const Shape&) = default;
  friend auto operator<=>(const Shape&, const Shape&) = default;
};

// What the operator table's shape rule said of operands' shapes, in each world: it is asked once for each.
class ShapeMemo {
 public:
  using Operands = std::array<Shape, kMaxOperands>;
  std::optional<std::optional<Shape>> find(int world, const Operands& operands) const;
  void keep(int world, const Operands& operands, const std::optional<Shape>& result);

 private:
  mutable std::shared_mutex mutex_;
  std::array<std::map<Operands, std::optional<Shape>>, kMaxWorlds> known_;
};

// An operator with its attributes: as the operator table has them (`op`, `attrs`, for shapes), and as the evaluator of its kind reads
// them. `attributes` holds one list a world, in the order that the kind's evaluator reads them:
// Conv [group, kernel h, w, pads (4), strides (2)]; AveragePool, MaxPool [kernel h, w, pads (4), strides (2), count_include_pad];
// Concat, Split [axis]; Transpose [perm...]; Pad [pads...]; Slice [axis, start, end]; Upsample [factor of each axis...];
// ReduceSum, ReduceMean, ReduceMax [keepdims, axes...]; Rows, ScaledRows (the last) [axis]; Unary [maps zero to zero].
struct Template {
  Kind kind = Kind::kAdd;
  uint8_t arity = 1, outputs = 1;
  bool commutative = false;
  std::array<Operand, kMaxOperands> operand{};
  uint64_t key = 0;  // of the keyed function, where the kind is one
  std::vector<std::vector<int64_t>> attributes;
  OpId op = 0;
  std::vector<AttrSet> attrs;  // one a world
  std::shared_ptr<ShapeMemo> shapes = std::make_shared<ShapeMemo>();
};

// One tensor, in every world.
struct Value {
  std::array<Shape, kMaxWorlds> shape{};
  std::array<uint32_t, kMaxWorlds + 1> begin{};
  std::vector<uint64_t> residue;
  std::vector<double> real;
  Hash128 print;
  bool weight = false;
};

struct Input {
  uint8_t family = 0;
  bool weight = false;
  Value value;
};

// An operator with its operands: indices below `inputs` are inputs, `inputs + 2*k + j` is output j of operation k.
struct Step {
  uint8_t op = 0;
  std::array<uint8_t, kMaxOperands> operand{};
  friend bool operator==(const Step&, const Step&) = default;
  friend auto operator<=>(const Step&, const Step&) = default;
};

// A graph with one output, and the fingerprint of what it computes. Plain data: written to checkpoints as it is.
struct Record {
  Hash128 print;
  std::array<Step, kMaxOps> step{};
  uint8_t ops = 0, root = 0;  // root: index of the value that is the output
  uint8_t canonical = 0;      // the inputs of each family are used in order
  uint8_t size = 0;           // operators counted as in a tree
};
static_assert(sizeof(Record) == 40);  // the layout that Python reads

// An equation between two graphs (or, for two outputs, between a Split's outputs and a pair of graphs).
struct Pair {
  Record left, right;
  Record second;  // the term of the other output, where `two_outputs`
  uint64_t two_outputs = 0;  // of eight bytes: a pair is written out as it is, and has no holes
};

struct Space {
  std::vector<Input> inputs;
  std::vector<Template> templates;
  int worlds = 2, max_ops = 3;
  int64_t max_elements = 512;  // of a tensor in one world
};

// The values of `space`'s templates. False where the operands do not fit, in any of the worlds.
bool infer(const Template& t, const Value* const* operands, int worlds, int64_t max_elements, Value* outputs);
void compute(const Template& t, const Value* const* operands, int worlds, Value* outputs);
void fingerprint(Value& v, int worlds);

struct Counts {
  uint64_t graphs = 0;      // operator sequences that were evaluated
  uint64_t ill_typed = 0;   // operands that do not fit
  uint64_t repeated = 0;    // an intermediate value that the graph has already
  uint64_t reordered = 0;   // the same graph in another order of operators or operands
};

// The branches are the graphs' first operators; they are independent of each other.
class Enumerator {
 public:
  explicit Enumerator(Space space);
  size_t branch_count() const { return first_.size(); }
  // Appends the records of one branch. False if `stop` was set meanwhile, with `out` incomplete.
  bool run_branch(size_t branch, size_t limit, const std::atomic<bool>* stop, std::vector<Record>& out, Counts& counts) const;
  std::vector<Record> inputs() const;  // the graphs without operators
  const Space& space() const { return space_; }
  std::vector<Value> evaluate(const Record& graph) const;  // of each operation, two for each; for tests and for pairing
 private:
  friend class Walk;
  Space space_;
  std::vector<Step> first_;
};

struct PairCounts {
  uint64_t records = 0, classes = 0, shared_classes = 0, pairs = 0, parts = 0, renamed = 0, context = 0, kept = 0;
};

// The equations among records. `records` is sorted in place.
std::vector<Pair> find_pairs(const Enumerator& e, std::vector<Record>& records, PairCounts& counts, const std::atomic<bool>* stop);

}  // namespace rlflow::enumeration
