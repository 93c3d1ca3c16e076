// Patterns on an e-graph: terms with variables, compiled to a flat program of binds and comparisons; several roots joined on shared variables.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rlflow/egraph.h"

namespace rlflow::egraph {

// One node of a pattern. Children come before their parents in Pattern::nodes; the root is last.
struct PatternNode {
  int variable = -1;                        // >= 0: stands for any class; nodes with one number stand for the same class
  std::vector<uint32_t> ops;                // else one of these operators,
  bool any_attr = false;                    // with any attributes, or
  uint32_t attr = 0;                        // with exactly these,
  std::vector<int> children;                // on these nodes of the pattern
};

struct Pattern {
  std::vector<PatternNode> nodes;
  int variables = 0;
  int add(PatternNode node);                // its index
  int add_variable(int number);
  // The same for patterns that differ in the numbers of their variables only; `renaming` receives, by canonical number, this pattern's own.
  std::string canonical_text(std::vector<int>& renaming) const;
};

// All matches of a pattern, in the order of their root classes. A row holds the root's class, a class for each variable, and the matched
// node of each pattern node (kNone for variables).
struct Matches {
  uint32_t variables = 0, nodes = 0;
  std::vector<uint32_t> rows;
  size_t width() const { return 1 + variables + nodes; }
  size_t size() const { return rows.empty() ? 0 : rows.size() / width(); }
  ClassId root(size_t i) const { return rows[i * width()]; }
  std::span<const ClassId> bound(size_t i) const { return {rows.data() + i * width() + 1, variables}; }
  std::span<const ENodeId> matched(size_t i) const { return {rows.data() + i * width() + 1 + variables, nodes}; }
};

class Matcher {
 public:
  explicit Matcher(const Pattern& pattern);
  // Needs a clean e-graph. Filtered nodes do not match. Stops after `limit` matches.
  Matches search(const EGraph& g, size_t limit = SIZE_MAX) const;
  const Pattern& pattern() const { return pattern_; }

 private:
  struct Instruction {
    enum Kind : uint8_t { kBind, kCompare, kGround } kind;
    uint32_t reg;                           // the class that is looked at
    uint32_t node;                          // kBind: the pattern node; kGround: index of the ground term
    uint32_t out;                           // kBind: register of its first child; kCompare: the other register
  };
  struct Run;
  void compile(int node, uint32_t reg);
  bool is_ground(int node) const;
  Pattern pattern_;
  std::vector<Instruction> code_;
  std::vector<int> ground_;                 // pattern nodes without variables below them: looked up, not searched
  std::vector<uint32_t> variable_reg_;
  uint32_t registers_ = 1;
};

// A term to be built: variables refer to a rule's variables, children to earlier nodes.
struct TermNode {
  int variable = -1;
  uint32_t op = 0, attr = 0;
  std::vector<int> children;
};

// The left-hand sides of a rule with several roots, each a row of its pattern's Matches, such that shared variables agree.
struct JoinInput {
  const Matches* matches;
  std::vector<int> variable;                // the rule's number of each of the pattern's variables
};
// Calls `yield` with one row index per input, first input slowest, until it returns false. With `unordered`, two inputs that hold the same
// matches give each pair of root classes once. Roots in one and the same class are left out.
template <class Yield>
void join(const EGraph& g, std::span<const JoinInput> inputs, int rule_variables, bool unordered, Yield yield);

}  // namespace rlflow::egraph

#include "rlflow/egraph_join.h"
