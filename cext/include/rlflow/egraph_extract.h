// Choosing one graph from an e-graph: the node of each class, at the least sum of costs over the classes that are needed.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "rlflow/egraph.h"

namespace rlflow::egraph {

// The e-graph as an extractor sees it: plain numbers, whatever it came from. Classes and nodes are numbered from 0.
struct Extraction {
  uint32_t classes = 0;
  std::vector<uint32_t> node_class;         // by node
  std::vector<double> cost;                 // by node, >= 0
  std::vector<uint32_t> child_begin{0}, child;                   // by node: classes
  std::vector<uint32_t> roots;              // classes that must be there
  size_t nodes() const { return cost.size(); }
  std::span<const uint32_t> children(uint32_t n) const { return {child.data() + child_begin[n], child_begin[n + 1] - child_begin[n]}; }
  void check() const;                       // throws Error(kUsage) for numbers that do not fit together
};

// A node by class; kNone where the class is not needed or cannot be had.
using Choice = std::vector<uint32_t>;

// Each class by its cheapest tree; what is shared is paid for at each use.
Choice greedy_tree(const Extraction& e);
// Each class by the cheapest set of classes below it (the greedy-DAG of extraction-gym): sharing counts once, but each class decides alone.
Choice greedy_dag(const Extraction& e);
// The sum over what the roots need; infinite if a class has no choice or the choice is cyclic.
double choice_cost(const Extraction& e, const Choice& choice);
// Strongly connected components of the classes: by class, its component; equal numbers on no cycle do not occur.
std::vector<uint32_t> components(const Extraction& e);

// The same problem, smaller, with the same optimum: without what cannot be extracted or reached, with free leaves taken, free only children
// passed through, and nodes dropped that cost at least as much as another of their class and need at least as much.
struct Simplified {
  Extraction problem;
  std::vector<uint32_t> node, cls;          // of the full problem, by number in the smaller one
  Choice fixed;                             // by class of the full problem: what is decided already
};
Simplified simplify(const Extraction& e);
// A choice of the smaller problem in terms of the full one.
Choice expand(const Extraction& e, const Simplified& s, const Choice& choice);

// What can be reached from `roots` through nodes that are not filtered. `node` and `cls` receive the ids in the e-graph.
Extraction snapshot(const EGraph& g, std::span<const ClassId> roots, std::vector<ENodeId>& node, std::vector<ClassId>& cls);

}  // namespace rlflow::egraph
