#include "choice_field.h"

namespace rlflow {

ChoiceField::ChoiceField(const ChoiceGraph& graph)
    : g(graph), n(static_cast<int32_t>(graph.begin.size())), cost(graph.cost), table(graph.table), priced(graph.cost), x(n, 0) {
  arcs();
  times();
}

void ChoiceField::cap(double most) {
  for (double& value : cost) value = std::min(value, most);
  for (double& value : table) value = std::min(value, most);
  dear = most;
}

void ChoiceField::arcs() {
  arc_begin.assign(n + 1, 0);
  for (size_t e = 0; e < g.first.size(); ++e) {
    ++arc_begin[g.first[e] + 1];
    ++arc_begin[g.second[e] + 1];
  }
  for (int32_t i = 0; i < n; ++i) arc_begin[i + 1] += arc_begin[i];
  arc.resize(arc_begin[n]);
  std::vector<int32_t> next(arc_begin.begin(), arc_begin.end() - 1);
  for (size_t e = 0; e < g.first.size(); ++e) {
    const int32_t a = g.first[e], b = g.second[e];
    arc[next[a]++] = {static_cast<int32_t>(e), b, true};
    arc[next[b]++] = {static_cast<int32_t>(e), a, false};
  }
}

// Moments between which nothing begins or ends are one section.
void ChoiceField::times() {
  std::vector<int64_t> all;
  const bool limited = std::isfinite(g.limit);
  for (int32_t i = 0; i < n; ++i)
    if (limited && g.begin[i] < g.end[i]) all.insert(all.end(), {g.begin[i], g.end[i]});
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  from.assign(n, 0);
  to.assign(n, 0);
  for (int32_t i = 0; i < n; ++i)
    if (limited && g.begin[i] < g.end[i]) {
      from[i] = static_cast<int32_t>(std::lower_bound(all.begin(), all.end(), g.begin[i]) - all.begin());
      to[i] = static_cast<int32_t>(std::lower_bound(all.begin(), all.end(), g.end[i]) - all.begin());
    }
  sections = all.empty() ? 0 : static_cast<int32_t>(all.size()) - 1;
  price.assign(sections, 0.0);
  load.assign(sections, 0.0);
}

void ChoiceField::reprice() {
  std::vector<double> sum(sections + 1, 0.0);
  for (int32_t s = 0; s < sections; ++s) sum[s + 1] = sum[s] + price[s];
  for (int32_t i = 0; i < n; ++i)
    for (int32_t c = g.choice_begin[i]; c < g.choice_begin[i + 1]; ++c) priced[c] = cost[c] + g.usage[c] * (sum[to[i]] - sum[from[i]]);
}

void ChoiceField::reload() {
  std::vector<double> change(sections + 1, 0.0);
  for (int32_t i = 0; i < n; ++i) {
    change[from[i]] += use(i, x[i]);
    change[to[i]] -= use(i, x[i]);
  }
  double sum = 0;
  for (int32_t s = 0; s < sections; ++s) load[s] = sum += change[s];
}

double ChoiceField::worth(int32_t i, int32_t a) const {
  double total = cost[g.choice_begin[i] + a];
  for (int32_t k = arc_begin[i]; k < arc_begin[i + 1]; ++k) total += pair(arc[k], a, x[arc[k].other]);
  return total;
}

void ChoiceField::move(int32_t i, int32_t a) {
  const double more = use(i, a) - use(i, x[i]);
  for (int32_t s = from[i]; s < to[i]; ++s) load[s] += more;
  x[i] = a;
}

bool ChoiceField::allowed(int32_t i, int32_t a) const {
  const double more = use(i, a) - use(i, x[i]);
  if (more <= 0) return true;
  for (int32_t s = from[i]; s < to[i]; ++s)
    if (load[s] + more > g.limit) return false;
  return true;
}

}  // namespace rlflow
