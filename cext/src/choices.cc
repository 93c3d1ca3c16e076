#include "rlflow/choices.h"

#include <algorithm>
#include <limits>
#include <string>

#include "choice_search.h"
#include "rlflow/error.h"

namespace rlflow {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kForbidden = 1e15;  // a cost from here on says that a choice, or a pair, must not be

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kUsage, "A graph of choices: " + what); }

void check(const ChoiceGraph& g) {
  const size_t n = g.begin.size(), m = g.first.size();
  if (g.choice_begin.size() != n + 1 || g.end.size() != n) refuse("the arrays of nodes have different lengths");
  for (size_t i = 0; i < n; ++i)
    if (g.choice_begin[i] >= g.choice_begin[i + 1]) refuse("node " + std::to_string(i) + " has no choice");
  if (g.cost.size() != static_cast<size_t>(g.choice_begin[n]) || g.usage.size() != g.cost.size()) refuse("costs or uses are missing");
  if (g.second.size() != m || g.table_begin.size() != m + 1) refuse("the arrays of edges have different lengths");
  for (size_t e = 0; e < m; ++e) {
    const int32_t a = g.first[e], b = g.second[e];
    if (a < 0 || b < 0 || a >= static_cast<int32_t>(n) || b >= static_cast<int32_t>(n) || a == b)
      refuse("edge " + std::to_string(e) + " joins no two nodes");
    const int64_t cells = int64_t{g.choice_begin[a + 1] - g.choice_begin[a]} * (g.choice_begin[b + 1] - g.choice_begin[b]);
    if (g.table_begin[e + 1] - g.table_begin[e] != cells) refuse("edge " + std::to_string(e) + " has a table of another size");
  }
  if (g.table_begin[0] != 0 || static_cast<size_t>(g.table_begin[m]) != g.table.size()) refuse("the tables do not fit");
}

// What choices cost at least that have a forbidden cost.
double least_forbidden(const ChoiceGraph& g) {
  double sum = kForbidden;
  for (size_t i = 0; i + 1 < g.choice_begin.size(); ++i)
    sum += std::min(0.0, *std::min_element(g.cost.begin() + g.choice_begin[i], g.cost.begin() + g.choice_begin[i + 1]));
  for (size_t e = 0; e < g.first.size(); ++e)
    sum += std::min(0.0, *std::min_element(g.table.begin() + g.table_begin[e], g.table.begin() + g.table_begin[e + 1]));
  return sum;
}

double cost_of(const ChoiceGraph& g, const std::vector<int32_t>& x) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += g.cost[g.choice_begin[i] + x[i]];
  for (size_t e = 0; e < g.first.size(); ++e) {
    const int32_t columns = g.choice_begin[g.second[e] + 1] - g.choice_begin[g.second[e]];
    sum += g.table[g.table_begin[e] + int64_t{x[g.first[e]]} * columns + x[g.second[e]]];
  }
  return sum;
}

Chosen search(const ChoiceGraph& g, double forbidden, double seconds, int64_t rounds, uint64_t seed) {
  ChoiceReduction reduction(g, forbidden);
  const ChoiceCore core = reduction.core();
  if (!core.possible) return {{}, 0.0, kInfinite, 0};
  Chosen found = ChoiceSearch(core, seed).run(seconds, rounds);
  if (found.choice.empty() && core.size() > 0) return found;
  found.choice = reduction.expand(found.choice);
  found.cost = cost_of(g, found.choice);
  found.bound = std::min(found.bound, found.cost);  // they may differ by what rounding does
  return found;
}

}  // namespace

Chosen choose(const ChoiceGraph& graph, double seconds, int64_t rounds, uint64_t seed) {
  check(graph);
  const double least = least_forbidden(graph);
  Chosen found = search(graph, kForbidden, seconds, rounds, seed);
  if (found.choice.empty() && found.bound == kInfinite) found = search(graph, kInfinite, seconds, rounds, seed);
  else found.bound = std::min(found.bound, least);
  return found;
}

}  // namespace rlflow
