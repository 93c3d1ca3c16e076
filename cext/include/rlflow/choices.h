// One choice a node, with costs of nodes and of pairs, and a limit on what all choices use at any time.
#pragma once
#include <cstdint>
#include <vector>

namespace rlflow {

struct ChoiceGraph {
  std::vector<int32_t> choice_begin;   // [nodes + 1]: the choices of node i are [choice_begin[i], choice_begin[i + 1])
  std::vector<double> cost;            // [choices]
  std::vector<double> usage;           // [choices]
  std::vector<int64_t> begin, end;     // [nodes]: a node uses in [begin, end)
  std::vector<int32_t> first, second;  // [edges]
  std::vector<int64_t> table_begin;    // [edges + 1]
  std::vector<double> table;           // of each edge [choices of first, choices of second], row-major
  double limit = 0;                    // on the sum of uses at any time
};

struct Chosen {
  std::vector<int32_t> choice;  // [nodes]; empty: none within the limit was found
  double cost = 0;
  double bound = 0;             // no choices within the limit cost less
  int64_t rounds = 0;
};

// Looks for cheap choices within the limit for about `seconds` of processor time, or `rounds` rounds where that is above 0.
//
// What is decided anyway is taken out first (choice_reduce.h); costs of 1e15 and more count as forbidden while any choices do without. A
// round begins with sequential tree-reweighted message passing (Kolmogorov 2006) over costs in which each use has a price at each time; what
// it takes off its messages bounds the cost from below. Then comes an exact dynamic programme over all nodes but a few that are held (bucket
// elimination, Dechter 1999, over a random cutset), a repair of what is above the limit, and the same for small parts of the best choices so
// far, at prices of their own. Prices follow the loads (Lagrangian relaxation, Polyak's steps). Throws Error (usage) for arrays that do not
// fit.
Chosen choose(const ChoiceGraph& graph, double seconds, int64_t rounds, uint64_t seed);

}  // namespace rlflow
