// What the parts of the search for choices share: the graph, the costs as they are seen now, the choices of now.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "choice_reduce.h"

namespace rlflow {

struct ChoiceField {
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();
  struct Arc {
    int32_t edge, other;
    bool first;  // whether this node is the edge's first
  };

  explicit ChoiceField(const ChoiceCore& core);
  int32_t count(int32_t i) const { return g.count(i); }
  // The costs of an arc's edge where the node has the choice `own`, by the other node's choice.
  const double* row(const Arc& a, int32_t own) const {
    const std::vector<double>& seen = a.first ? table : turned;
    return seen.data() + g.table_begin[a.edge] + int64_t{own} * count(a.other);
  }
  // By this node's choice, where the other node has the choice `other`.
  const double* column(const Arc& a, int32_t other) const { return row({a.edge, a.first ? g.first[a.edge] : g.second[a.edge], !a.first}, other); }
  double worth(int32_t i, int32_t a) const;  // what the choice costs beside the choices of now
  bool allowed(int32_t i, int32_t a) const;  // whether it stays within the room
  bool within() const { return over() <= 0; }
  double over() const;  // how far the load is above the room at worst
  void move(int32_t i, int32_t a);
  // Gives the nodes the choices `after`, whether that stays within the room or not; whether it does.
  bool change(const std::vector<int32_t>& nodes, const std::vector<int32_t>& after);
  double cost_around(const std::vector<int32_t>& nodes);  // of nodes and of edges that touch one of them
  double total() const;
  void reload();  // from the choices of now
  void reprice();
  void reprice(const std::vector<int32_t>& nodes);
  // What costs more than any good choice is as good as forbidden; large numbers would drown the small ones.
  void cap(double most);
  double enough(double total) const;  // a cap that no choices reach that cost less than so much

  const ChoiceCore& g;
  int32_t n, sections;
  std::vector<int32_t> arc_begin;     // [n + 1]
  std::vector<Arc> arc;
  std::vector<double> price, load;    // by section
  std::vector<double> cost, table;    // with a cap
  std::vector<double> turned;         // the tables seen from the second node
  std::vector<double> priced;         // costs with the prices of their use
  std::vector<int32_t> x;             // the choices of now
  double dear = 0;                    // the cap

 private:
  void arcs();
  void turn();
  void sum_prices();
  void price_one(int32_t i);

  std::vector<double> sum_, change_;  // of prices, up to a section; of loads, from a section on
  std::vector<char> mark_;
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

// Exact choices of many nodes at once, the others held: nodes are taken out one after the other, the cheapest first, and those that
// would need a table of more than `cells` cells are held as well (bucket elimination over a random cutset).
class ChoiceBuckets {
 public:
  explicit ChoiceBuckets(ChoiceField& field);
  // At the prices of now; the choices are in the field's `x`. Returns the cells that were filled.
  int64_t choose(const std::vector<int32_t>& nodes, double cells, std::mt19937_64& random);

 private:
  struct Bucket {
    int32_t node;
    std::vector<int32_t> scope;       // nodes that its message looks at, the last to go first
    std::vector<const ChoiceField::Arc*> arcs;  // to nodes that go later
    std::vector<int32_t> messages;    // buckets whose message ends here
    int64_t at = 0;                   // where its message is
  };
  struct Factor {
    const double* table;
    std::vector<int64_t> stride;  // by place in the scope
  };

  void connect(const std::vector<int32_t>& nodes);
  double weight(int32_t k) const;
  void line_up(double cells, std::mt19937_64& random);
  int32_t heaviest(std::mt19937_64& random) const;
  void remove(int32_t k, bool joined);
  void own_costs(int32_t i, double* own) const;
  std::vector<Factor> factors(const Bucket& bucket) const;
  int64_t fill(Bucket& bucket);
  void hand_out();

  ChoiceField& f_;
  std::vector<int32_t> place_, number_;           // of each node: in the order of going, or -1; in nodes_, or -1
  std::vector<int32_t> nodes_;
  std::vector<std::vector<int32_t>> next_;        // neighbours that are left, sorted
  std::vector<Bucket> buckets_;
  std::vector<double> message_, logs_;
  std::vector<int32_t> best_;                     // of each cell of a message
  std::vector<char> gone_;
};

}  // namespace rlflow
