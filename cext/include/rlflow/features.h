// A graph as arrays of numbers, for learned models: what a node is, what it costs, which tensors run between nodes.
#pragma once
#include <cstdint>
#include <vector>

#include "rlflow/cost.h"
#include "rlflow/graph.h"

namespace rlflow {

inline constexpr int kShapeDims = 4;          // the last dims of a tensor; earlier ones only count in its elements
inline constexpr int kAttributeSlots = 16;    // attributes are hashed into so many features (Weinberger et al. 2009)
inline constexpr int kNodeFeatures = 16 + kAttributeSlots;
inline constexpr int kEdgeFeatures = kShapeDims + 4;

// Rows are the alive nodes that do work or feed it (constants and what only depends on them cost nothing and are left out; they show
// as features of their readers), in canonical order. Names of the columns: rlflow/graph/features.py.
struct GraphFeatures {
  std::vector<int32_t> row;                   // by node id; -1 where the node has no row
  std::vector<int32_t> op, dtype;             // [rows]: index in the operator table; ONNX number of the first output
  std::vector<float> node;                    // [rows, kNodeFeatures]
  std::vector<int32_t> source, target;        // [edges]: rows; one edge an operand that has a row
  std::vector<float> edge;                    // [edges, kEdgeFeatures]
};
// Needs order(). `prices` may be null: then nothing has a price. Linear.
GraphFeatures graph_features(const Graph& g, const Pricer* prices);

}  // namespace rlflow
