// A smaller graph of choices whose best choices are those of the given one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "rlflow/choices.h"

namespace rlflow {

// What is left to decide. A node uses `use[use_at[k] + choice]` in the sections [from[k], to[k]), for each k of its own; a section is a
// span of time in which nothing begins or ends.
struct ChoiceCore {
  int32_t count(int32_t i) const { return choice_begin[i + 1] - choice_begin[i]; }
  int32_t size() const { return static_cast<int32_t>(choice_begin.size()) - 1; }

  std::vector<int32_t> choice_begin{0};
  std::vector<double> cost;
  std::vector<int32_t> first, second;
  std::vector<int64_t> table_begin{0};
  std::vector<double> table;
  std::vector<int32_t> use_begin{0}, from, to;
  std::vector<int64_t> use_at;
  std::vector<double> use, room;  // room: of each section, the limit less what is used in any case
  double decided = 0;             // what the rest costs
  bool possible = true;           // false: some node has no choice that is not forbidden, or a section has no room
};

// Takes out, until nothing changes: choices that are forbidden by a cost, or with each choice of a neighbour; choices that cost and use no
// less than another one of the node, whatever the neighbours do (Goldstein's dead ends); nodes that a neighbour's choice decides; uses in
// which the limit cannot be met; nodes without uses that have two neighbours at most. Costs from `forbidden` on count as infinite.
class ChoiceReduction {
 public:
  ChoiceReduction(const ChoiceGraph& graph, double forbidden);
  ChoiceCore core();
  std::vector<int32_t> expand(const std::vector<int32_t>& x) const;  // choices of all nodes from those of the core

 private:
  struct Use {
    int32_t from, to;
    std::vector<double> of;  // by choice; the least of them is 0
  };
  struct Node {
    std::vector<int32_t> label;  // the given numbers of its choices
    std::vector<double> cost;
    std::vector<Use> uses;
    size_t tidy = 8;                    // how many uses may lie there before equal spans are added up
    std::map<int32_t, int32_t> edges;  // by neighbour
    bool there = true, waiting = false;
  };
  struct Edge {
    int32_t a, b;
    std::vector<double> table;  // [choices of a, choices of b]
  };
  // How a node's choice follows from those of one or two others, by their given numbers.
  struct Step {
    int32_t node, a, b;
    std::vector<int32_t> choice;
  };

  int32_t count(int32_t v) const { return static_cast<int32_t>(nodes_[v].cost.size()); }
  int32_t given(int32_t v) const { return g_.choice_begin[v + 1] - g_.choice_begin[v]; }
  void read();
  void sections(std::vector<int32_t>& from, std::vector<int32_t>& to);
  void wait(int32_t v);
  void work();
  void visit(int32_t v);
  std::vector<double> rows(int32_t e, int32_t v) const;  // the table, seen from v
  void take_off(int32_t e);
  void put(int32_t a, int32_t b, const std::vector<double>& table);
  void keep(int32_t v, const std::vector<char>& kept);
  bool prune(int32_t v);
  bool separate(int32_t e, int32_t v);
  bool decides(int32_t e, int32_t v, std::vector<int32_t>& map) const;
  bool merge_any(int32_t v);
  bool grows_too_much(int32_t into, int32_t v) const;
  void merge(int32_t into, int32_t v, const std::vector<int32_t>& map);
  void fold(int32_t v);
  void fold_pair(int32_t v, int32_t a, int32_t b);
  void use_more(int32_t v, const Use& use);
  void tidy(int32_t v);
  void strip();
  bool dominated(int32_t v);
  bool dominates(int32_t v, int32_t a, int32_t b, const std::vector<std::vector<double>>& tables,
                 const std::vector<std::vector<double>>& least) const;
  void write_uses(ChoiceCore& out) const;

  const ChoiceGraph& g_;
  double forbidden_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<double> base_;  // use in any case, by section
  std::vector<Step> steps_;
  std::deque<int32_t> queue_;
  std::vector<int32_t> left_;
  double decided_ = 0;
  bool possible_ = true;
};

}  // namespace rlflow
