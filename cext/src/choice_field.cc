#include "choice_field.h"

#include <numeric>

namespace rlflow {
namespace {

// A cap at what the choices cost would do for the search; but it bounds the cost from below the better, the more a forbidden pair costs.
constexpr double kStronger = 1000;

}  // namespace

ChoiceField::ChoiceField(const ChoiceCore& core)
    : g(core),
      n(core.size()),
      sections(static_cast<int32_t>(core.room.size())),
      price(sections, 0.0),
      load(sections, 0.0),
      cost(core.cost),
      table(core.table),
      turned(core.table.size()),
      priced(core.cost),
      x(n, 0),
      sum_(sections + 1, 0.0),
      change_(sections + 1, 0.0),
      mark_(n, 0) {
  arcs();
  turn();
}

void ChoiceField::cap(double most) {
  for (double& value : cost) value = std::min(value, most);
  for (double& value : table) value = std::min(value, most);
  turn();
  dear = most;
}

double ChoiceField::enough(double total) const {
  double floor = g.decided, most = 0;
  const auto add = [&](auto begin, auto end) {
    const double least = *std::min_element(begin, end);
    floor += least;
    most = std::max(most, least);
  };
  for (int32_t i = 0; i < n; ++i) add(cost.begin() + g.choice_begin[i], cost.begin() + g.choice_begin[i + 1]);
  for (size_t e = 0; e < g.first.size(); ++e) add(table.begin() + g.table_begin[e], table.begin() + g.table_begin[e + 1]);
  return most + kStronger * (total - floor);
}

void ChoiceField::turn() {
  for (size_t e = 0; e < g.first.size(); ++e) {
    const int32_t rows = count(g.first[e]), columns = count(g.second[e]);
    const double* from = table.data() + g.table_begin[e];
    double* to = turned.data() + g.table_begin[e];
    for (int32_t i = 0; i < rows; ++i)
      for (int32_t j = 0; j < columns; ++j) to[int64_t{j} * rows + i] = from[int64_t{i} * columns + j];
  }
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

void ChoiceField::sum_prices() {
  for (int32_t s = 0; s < sections; ++s) sum_[s + 1] = sum_[s] + price[s];
}

void ChoiceField::price_one(int32_t i) {
  const int32_t begin = g.choice_begin[i], own = count(i);
  std::copy_n(cost.begin() + begin, own, priced.begin() + begin);
  for (int32_t k = g.use_begin[i]; k < g.use_begin[i + 1]; ++k) {
    const double over = sum_[g.to[k]] - sum_[g.from[k]];
    if (over <= 0) continue;
    const double* use = g.use.data() + g.use_at[k];
    for (int32_t a = 0; a < own; ++a) priced[begin + a] += use[a] * over;
  }
}

void ChoiceField::reprice() {
  sum_prices();
  for (int32_t i = 0; i < n; ++i) price_one(i);
}

void ChoiceField::reprice(const std::vector<int32_t>& nodes) {
  sum_prices();
  for (int32_t i : nodes) price_one(i);
}

void ChoiceField::reload() {
  std::fill(change_.begin(), change_.end(), 0.0);
  for (int32_t i = 0; i < n; ++i)
    for (int32_t k = g.use_begin[i]; k < g.use_begin[i + 1]; ++k) {
      const double use = g.use[g.use_at[k] + x[i]];
      change_[g.from[k]] += use;
      change_[g.to[k]] -= use;
    }
  double sum = 0;
  for (int32_t s = 0; s < sections; ++s) load[s] = sum += change_[s];
}

double ChoiceField::over() const {
  double most = -kInfinite;
  for (int32_t s = 0; s < sections; ++s) most = std::max(most, load[s] - g.room[s]);
  return most;
}

double ChoiceField::worth(int32_t i, int32_t a) const {
  double total = cost[g.choice_begin[i] + a];
  for (int32_t k = arc_begin[i]; k < arc_begin[i + 1]; ++k) total += row(arc[k], a)[x[arc[k].other]];
  return total;
}

void ChoiceField::move(int32_t i, int32_t a) {
  for (int32_t k = g.use_begin[i]; k < g.use_begin[i + 1]; ++k) {
    const double more = g.use[g.use_at[k] + a] - g.use[g.use_at[k] + x[i]];
    if (more == 0) continue;
    for (int32_t s = g.from[k]; s < g.to[k]; ++s) load[s] += more;
  }
  x[i] = a;
}

bool ChoiceField::change(const std::vector<int32_t>& nodes, const std::vector<int32_t>& after) {
  std::fill(change_.begin(), change_.end(), 0.0);
  for (size_t at = 0; at < nodes.size(); ++at) {
    const int32_t i = nodes[at];
    if (x[i] == after[at]) continue;
    for (int32_t k = g.use_begin[i]; k < g.use_begin[i + 1]; ++k) {
      const double more = g.use[g.use_at[k] + after[at]] - g.use[g.use_at[k] + x[i]];
      change_[g.from[k]] += more;
      change_[g.to[k]] -= more;
    }
    x[i] = after[at];
  }
  double sum = 0;
  for (int32_t s = 0; s < sections; ++s) load[s] += sum += change_[s];
  return within();
}

bool ChoiceField::allowed(int32_t i, int32_t a) const {
  // Uses of one node may meet in a section, so the changes are added up before they are compared.
  const int32_t old = x[i];
  bool more = false;
  for (int32_t k = g.use_begin[i]; k < g.use_begin[i + 1] && !more; ++k) more = g.use[g.use_at[k] + a] > g.use[g.use_at[k] + old];
  if (!more) return true;
  auto* self = const_cast<ChoiceField*>(this);
  self->move(i, a);
  bool fits = true;
  for (int32_t k = g.use_begin[i]; k < g.use_begin[i + 1] && fits; ++k)
    if (g.use[g.use_at[k] + a] > g.use[g.use_at[k] + old])
      for (int32_t s = g.from[k]; s < g.to[k] && fits; ++s) fits = load[s] <= g.room[s];
  self->move(i, old);
  return fits;
}

double ChoiceField::cost_around(const std::vector<int32_t>& nodes) {
  double total = 0;
  for (int32_t i : nodes) mark_[i] = 1;
  for (int32_t i : nodes) {
    total += cost[g.choice_begin[i] + x[i]];
    for (int32_t k = arc_begin[i]; k < arc_begin[i + 1]; ++k)
      if (!mark_[arc[k].other] || arc[k].first) total += row(arc[k], x[i])[x[arc[k].other]];
  }
  for (int32_t i : nodes) mark_[i] = 0;
  return total;
}

double ChoiceField::total() const {
  double sum = g.decided;
  for (int32_t i = 0; i < n; ++i) sum += g.cost[g.choice_begin[i] + x[i]];
  for (size_t e = 0; e < g.first.size(); ++e) sum += g.table[g.table_begin[e] + int64_t{x[g.first[e]]} * count(g.second[e]) + x[g.second[e]]];
  return sum;
}

}  // namespace rlflow
