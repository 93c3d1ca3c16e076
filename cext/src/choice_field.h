// What the parts of the search for choices share: the graph, the costs as they are seen now, the choices of now.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "rlflow/choices.h"

namespace rlflow {

struct ChoiceField {
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();
  struct Arc {
    int32_t edge, other;
    bool first;  // whether this node is the edge's first
  };

  explicit ChoiceField(const ChoiceGraph& graph);
  int32_t count(int32_t i) const { return g.choice_begin[i + 1] - g.choice_begin[i]; }
  // The cost of an arc's edge where the node has the choice `own`, and the other node `other`.
  double pair(const Arc& a, int32_t own, int32_t other) const {
    const int64_t at = g.table_begin[a.edge];
    return a.first ? table[at + int64_t{own} * count(a.other) + other] : table[at + int64_t{other} * count(g.second[a.edge]) + own];
  }
  double use(int32_t i, int32_t a) const { return g.usage[g.choice_begin[i] + a]; }
  double worth(int32_t i, int32_t a) const;    // what the choice costs beside the choices of now
  bool allowed(int32_t i, int32_t a) const;    // whether it stays within the limit
  bool within() const {
    return std::all_of(load.begin(), load.end(), [&](double one) { return one <= g.limit; });
  }
  void move(int32_t i, int32_t a);
  void reload();  // from the choices of now
  void reprice();
  // What costs more than any good choice is as good as forbidden; large numbers would drown the small ones.
  void cap(double most);

  const ChoiceGraph& g;
  int32_t n, sections = 0;         // a section: between two moments at which something begins or ends
  std::vector<int32_t> arc_begin;  // [n + 1]
  std::vector<Arc> arc;
  std::vector<int32_t> from, to;     // sections of each node
  std::vector<double> price, load;   // by section
  std::vector<double> cost, table;   // with a cap
  std::vector<double> priced;        // costs with the prices of their use
  std::vector<int32_t> x;            // the choices of now
  double dear = 0;                   // the cap

 private:
  void arcs();
  void times();
};

// Sequential tree-reweighted message passing.
class ChoiceMessages {
 public:
  explicit ChoiceMessages(ChoiceField& field);
  double pass();    // forth and back; what the costs of now are bounded from below by
  void decode();    // choices one after the other, by the messages
  void forget();

 private:
  double* in(const ChoiceField::Arc& arc);
  double* out(const ChoiceField::Arc& arc);
  void belief(int32_t i, std::vector<double>& sum);
  double send(int32_t i, const std::vector<double>& sum, double share, bool forward);

  ChoiceField& f_;
  std::vector<int64_t> message_begin_;  // of each edge: to its first node, then to its second
  std::vector<double> message_;
};

// Exact choices of random forests, all other nodes held.
class ChoiceForest {
 public:
  explicit ChoiceForest(ChoiceField& field);
  void choose(std::vector<int32_t>& nodes, uint64_t draw);  // of a forest among these, at the prices of now

 private:
  void plant(const std::vector<int32_t>& nodes);
  std::vector<int32_t> walk(const std::vector<int32_t>& nodes);
  const ChoiceField::Arc* to_parent(int32_t i) const;
  void solve(const std::vector<int32_t>& sequence);

  ChoiceField& f_;
  std::vector<double> up_;
  std::vector<int32_t> root_, inside_, parent_;
};

}  // namespace rlflow
