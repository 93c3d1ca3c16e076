// The last steps of making a graph of choices smaller: dominated choices, sections that never matter, and the result in flat arrays.
#include <algorithm>
#include <cmath>
#include <limits>

#include "choice_reduce.h"

namespace rlflow {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int64_t kCompared = 50'000'000;  // cells that are looked at for the dominated choices of one node

// Sections that cannot be over their room, or of which another one holds all that is alive and has no more room, are left out.
std::vector<int32_t> sections_that_matter(const ChoiceCore& core) {
  const auto n = static_cast<int32_t>(core.room.size());
  std::vector<double> most(n + 1, 0.0);
  std::vector<char> begins(n + 1, 0), ends(n + 1, 0);
  for (size_t k = 0; k < core.from.size(); ++k) {
    const size_t node = std::upper_bound(core.use_begin.begin(), core.use_begin.end(), static_cast<int32_t>(k)) - core.use_begin.begin() - 1;
    const double top =
        *std::max_element(core.use.begin() + core.use_at[k], core.use.begin() + core.use_at[k] + core.count(static_cast<int32_t>(node)));
    most[core.from[k]] += top;
    most[core.to[k]] -= top;
    begins[core.from[k]] = ends[core.to[k]] = 1;
  }
  std::vector<int32_t> kept;
  double sum = 0;
  for (int32_t s = 0; s < n; ++s) {
    sum += most[s];
    if (sum <= core.room[s]) continue;
    // Between kept.back() and s, what began and what ended?
    bool begun = false, ended = false;
    for (int32_t t = kept.empty() ? s : kept.back() + 1; t <= s; ++t) {
      begun |= begins[t] != 0;
      ended |= ends[t] != 0;
    }
    if (!kept.empty() && !begun && core.room[kept.back()] <= core.room[s]) continue;
    while (!kept.empty() && !ended && core.room[s] <= core.room[kept.back()]) {
      kept.pop_back();
      for (int32_t t = kept.empty() ? s : kept.back() + 1; t <= s; ++t) ended |= ends[t] != 0;
    }
    kept.push_back(s);
  }
  return kept;
}

}  // namespace

// Whether choice a makes choice b needless: it uses no more anywhere, and costs no more whatever the neighbours choose.
bool ChoiceReduction::dominates(int32_t v, int32_t a, int32_t b, const std::vector<std::vector<double>>& tables,
                                const std::vector<std::vector<double>>& least) const {
  const Node& node = nodes_[v];
  double bound = node.cost[a] - node.cost[b];
  for (const std::vector<double>& row : least) bound += row[a] - row[b];
  if (bound > 0) return false;
  for (const Use& use : node.uses)
    if (use.of[a] > use.of[b]) return false;
  for (size_t k = 0; k < tables.size(); ++k) {
    const size_t columns = tables[k].size() / node.cost.size();
    const double *one = tables[k].data() + a * columns, *two = tables[k].data() + b * columns;
    double most = -kInfinite;
    for (size_t c = 0; c < columns; ++c)
      if (two[c] < kInfinite) most = std::max(most, one[c] - two[c]);
    bound += most - (least[k][a] - least[k][b]);
    if (bound > 0) return false;
  }
  return true;
}

// Takes out uses in sections where the largest uses of all together stay below the limit.
void ChoiceReduction::strip() {
  std::vector<double> change(base_.size() + 1, 0.0);
  for (const Node& node : nodes_)
    for (const Use& use : node.uses) {
      const double top = *std::max_element(use.of.begin(), use.of.end());
      change[use.from] += top;
      change[use.to] -= top;
    }
  std::vector<int32_t> tight(base_.size() + 1, 0);  // sections before that may be above the limit
  double sum = 0;
  for (size_t s = 0; s < base_.size(); ++s) {
    sum += change[s];
    tight[s + 1] = tight[s] + (base_[s] + sum > g_.limit ? 1 : 0);
  }
  for (int32_t v = 0; v < static_cast<int32_t>(nodes_.size()); ++v)
    if (std::erase_if(nodes_[v].uses, [&](const Use& use) { return tight[use.from] == tight[use.to]; })) wait(v);
}

// Takes out dominated choices; whether there were any.
bool ChoiceReduction::dominated(int32_t v) {
  tidy(v);
  const Node& node = nodes_[v];
  const int32_t own = count(v);
  std::vector<std::vector<double>> tables, least;
  int64_t cells = 0;
  for (const auto& [other, e] : node.edges) cells += int64_t{own} * own * count(other);
  if (own < 2 || cells > kCompared) return false;
  for (const auto& [other, e] : node.edges) {
    tables.push_back(rows(e, v));
    least.emplace_back(own, kInfinite);
    const int32_t columns = count(other);
    for (int32_t a = 0; a < own; ++a) {
      const auto row = tables.back().begin() + int64_t{a} * columns;
      least.back()[a] = *std::min_element(row, row + columns);
    }
  }
  std::vector<char> kept(own, 1);
  for (int32_t b = 0; b < own; ++b)
    for (int32_t a = 0; a < own && kept[b]; ++a)
      if (a != b && kept[a] && dominates(v, a, b, tables, least)) kept[b] = 0;
  if (std::count(kept.begin(), kept.end(), 1) == own) return false;
  keep(v, kept);
  return true;
}

ChoiceCore ChoiceReduction::core() {
  ChoiceCore out;
  out.decided = decided_;
  out.possible = possible_;
  left_.clear();
  if (!possible_) return out;
  std::vector<int32_t> number(nodes_.size(), -1);
  for (int32_t v = 0; v < static_cast<int32_t>(nodes_.size()); ++v) {
    if (!nodes_[v].there) continue;
    number[v] = static_cast<int32_t>(left_.size());
    left_.push_back(v);
    out.cost.insert(out.cost.end(), nodes_[v].cost.begin(), nodes_[v].cost.end());
    out.choice_begin.push_back(static_cast<int32_t>(out.cost.size()));
  }
  for (const Edge& edge : edges_) {
    if (edge.table.empty()) continue;
    out.first.push_back(number[edge.a]);
    out.second.push_back(number[edge.b]);
    out.table.insert(out.table.end(), edge.table.begin(), edge.table.end());
    out.table_begin.push_back(static_cast<int64_t>(out.table.size()));
  }
  write_uses(out);
  return out;
}

void ChoiceReduction::write_uses(ChoiceCore& out) const {
  for (int32_t v : left_) {
    for (const Use& use : nodes_[v].uses) {
      out.from.push_back(use.from);
      out.to.push_back(use.to);
      out.use_at.push_back(static_cast<int64_t>(out.use.size()));
      out.use.insert(out.use.end(), use.of.begin(), use.of.end());
    }
    out.use_begin.push_back(static_cast<int32_t>(out.from.size()));
  }
  for (double used : base_) {
    out.room.push_back(g_.limit - used);
    out.possible &= out.room.back() >= 0;
  }
  const std::vector<int32_t> kept = sections_that_matter(out);
  const auto moved = [&](int32_t s) { return static_cast<int32_t>(std::lower_bound(kept.begin(), kept.end(), s) - kept.begin()); };
  for (size_t k = 0; k < out.from.size(); ++k) {
    out.from[k] = moved(out.from[k]);
    out.to[k] = moved(out.to[k]);
  }
  std::vector<double> room;
  for (int32_t s : kept) room.push_back(out.room[s]);
  out.room = std::move(room);
}

}  // namespace rlflow
