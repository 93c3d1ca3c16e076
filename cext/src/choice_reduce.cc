#include "choice_reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rlflow {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int64_t kGrowth = 20'000;  // cells that a merger may add
constexpr int64_t kFolded = 1'000;   // cells of a table that a node with two neighbours may become
constexpr int kRounds = 10;          // of looking for dominated choices

}  // namespace

ChoiceReduction::ChoiceReduction(const ChoiceGraph& graph, double forbidden) : g_(graph), forbidden_(forbidden) {
  read();
  work();
  for (int round = 0; possible_ && round < kRounds; ++round) {
    bool changed = false;
    for (int32_t v = 0; v < static_cast<int32_t>(nodes_.size()); ++v)
      if (nodes_[v].there) changed |= dominated(v);
    strip();
    if (!changed && queue_.empty()) break;
    work();
  }
}

void ChoiceReduction::read() {
  const size_t n = g_.begin.size();
  std::vector<int32_t> from, to;
  sections(from, to);
  nodes_.resize(n);
  const auto bounded = [&](double cost) { return cost >= forbidden_ ? kInfinite : cost; };
  for (size_t v = 0; v < n; ++v) {
    for (int32_t c = g_.choice_begin[v]; c < g_.choice_begin[v + 1]; ++c) {
      nodes_[v].label.push_back(c - g_.choice_begin[v]);
      nodes_[v].cost.push_back(bounded(g_.cost[c]));
    }
    if (from[v] < to[v]) use_more(v, {from[v], to[v], {g_.usage.begin() + g_.choice_begin[v], g_.usage.begin() + g_.choice_begin[v + 1]}});
  }
  for (size_t e = 0; e < g_.first.size(); ++e) {
    std::vector<double> table(g_.table.begin() + g_.table_begin[e], g_.table.begin() + g_.table_begin[e + 1]);
    for (double& value : table) value = bounded(value);
    put(g_.first[e], g_.second[e], table);
  }
  for (size_t v = 0; v < n; ++v) wait(static_cast<int32_t>(v));
}

// Moments between which nothing begins or ends are one section.
void ChoiceReduction::sections(std::vector<int32_t>& from, std::vector<int32_t>& to) {
  const size_t n = g_.begin.size();
  std::vector<int64_t> all;
  const bool limited = std::isfinite(g_.limit);
  for (size_t i = 0; i < n; ++i)
    if (limited && g_.begin[i] < g_.end[i]) all.insert(all.end(), {g_.begin[i], g_.end[i]});
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  const auto at = [&](int64_t time) { return static_cast<int32_t>(std::lower_bound(all.begin(), all.end(), time) - all.begin()); };
  from.assign(n, 0);
  to.assign(n, 0);
  for (size_t i = 0; i < n; ++i)
    if (limited && g_.begin[i] < g_.end[i]) {
      from[i] = at(g_.begin[i]);
      to[i] = at(g_.end[i]);
    }
  base_.assign(all.empty() ? 0 : all.size() - 1, 0.0);
}

// What every choice uses is taken to the rest.
void ChoiceReduction::use_more(int32_t v, const Use& use) {
  const double least = *std::min_element(use.of.begin(), use.of.end());
  for (int32_t s = use.from; s < use.to; ++s) base_[s] += least;
  if (*std::max_element(use.of.begin(), use.of.end()) == least) return;
  Node& node = nodes_[v];
  node.uses.push_back(use);
  for (double& value : node.uses.back().of) value -= least;
  if (node.uses.size() > node.tidy) {
    tidy(v);
    node.tidy = std::max<size_t>(8, 2 * node.uses.size());
  }
}

// Uses in the same span are added up.
void ChoiceReduction::tidy(int32_t v) {
  std::vector<Use>& uses = nodes_[v].uses;
  std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.from != b.from ? a.from < b.from : a.to < b.to; });
  std::vector<Use> sums;
  for (Use& use : uses) {
    if (sums.empty() || sums.back().from != use.from || sums.back().to != use.to) {
      sums.push_back(std::move(use));
      continue;
    }
    for (size_t c = 0; c < use.of.size(); ++c) sums.back().of[c] += use.of[c];
  }
  uses.clear();
  for (const Use& use : sums) {
    const double least = *std::min_element(use.of.begin(), use.of.end());
    for (int32_t s = use.from; s < use.to; ++s) base_[s] += least;
    if (*std::max_element(use.of.begin(), use.of.end()) == least) continue;
    uses.push_back(use);
    for (double& value : uses.back().of) value -= least;
  }
}

void ChoiceReduction::wait(int32_t v) {
  if (nodes_[v].waiting || !nodes_[v].there) return;
  nodes_[v].waiting = true;
  queue_.push_back(v);
}

void ChoiceReduction::work() {
  while (!queue_.empty() && possible_) {
    const int32_t v = queue_.front();
    queue_.pop_front();
    nodes_[v].waiting = false;
    if (nodes_[v].there) visit(v);
  }
}

void ChoiceReduction::visit(int32_t v) {
  if (!prune(v)) return;
  std::vector<int32_t> edges;
  for (const auto& [other, e] : nodes_[v].edges) edges.push_back(e);
  for (int32_t e : edges)
    if (separate(e, v)) wait(edges_[e].a == v ? edges_[e].b : edges_[e].a);
  if (!prune(v) || merge_any(v)) return;
  tidy(v);
  if (nodes_[v].uses.empty()) fold(v);
}

std::vector<double> ChoiceReduction::rows(int32_t e, int32_t v) const {
  const Edge& edge = edges_[e];
  if (edge.a == v) return edge.table;
  const int32_t rows = count(edge.a), columns = count(edge.b);
  std::vector<double> out(edge.table.size());
  for (int32_t i = 0; i < rows; ++i)
    for (int32_t j = 0; j < columns; ++j) out[int64_t{j} * rows + i] = edge.table[int64_t{i} * columns + j];
  return out;
}

void ChoiceReduction::take_off(int32_t e) {
  nodes_[edges_[e].a].edges.erase(edges_[e].b);
  nodes_[edges_[e].b].edges.erase(edges_[e].a);
  std::vector<double>().swap(edges_[e].table);
}

// A table between two nodes, added to the one that is there.
void ChoiceReduction::put(int32_t a, int32_t b, const std::vector<double>& table) {
  const auto found = nodes_[a].edges.find(b);
  if (found == nodes_[a].edges.end()) {
    nodes_[a].edges[b] = nodes_[b].edges[a] = static_cast<int32_t>(edges_.size());
    edges_.push_back({a, b, table});
    return;
  }
  Edge& edge = edges_[found->second];
  const int32_t rows = count(a), columns = count(b);
  for (int32_t i = 0; i < rows; ++i)
    for (int32_t j = 0; j < columns; ++j)
      edge.table[edge.a == a ? int64_t{i} * columns + j : int64_t{j} * rows + i] += table[int64_t{i} * columns + j];
}

void ChoiceReduction::keep(int32_t v, const std::vector<char>& kept) {
  Node& node = nodes_[v];
  const auto cut = [&](auto& values) {
    size_t to = 0;
    for (size_t c = 0; c < kept.size(); ++c)
      if (kept[c]) values[to++] = values[c];
    values.resize(to);
  };
  for (const auto& [other, e] : node.edges) {
    Edge& edge = edges_[e];
    const auto columns = static_cast<size_t>(count(edge.b));
    size_t to = 0;
    for (size_t at = 0; at < edge.table.size(); ++at)
      if (kept[edge.a == v ? at / columns : at % columns]) edge.table[to++] = edge.table[at];
    edge.table.resize(to);
    wait(other);
  }
  cut(node.label);
  cut(node.cost);
  for (Use& use : node.uses) cut(use.of);
  tidy(v);
  wait(v);
}

// Takes out what is forbidden by itself or with every choice of a neighbour; false: something was.
bool ChoiceReduction::prune(int32_t v) {
  Node& node = nodes_[v];
  std::vector<char> kept(node.cost.size());
  for (size_t c = 0; c < kept.size(); ++c) kept[c] = node.cost[c] < kInfinite;
  for (const auto& [other, e] : node.edges) {
    const Edge& edge = edges_[e];
    const int32_t columns = count(edge.b);
    std::vector<char> met(kept.size(), 0);
    for (size_t at = 0; at < edge.table.size(); ++at)
      if (edge.table[at] < kInfinite) met[edge.a == v ? at / columns : at % columns] = 1;
    for (size_t c = 0; c < kept.size(); ++c) kept[c] &= met[c];
  }
  const auto left = std::count(kept.begin(), kept.end(), 1);
  if (left == static_cast<int64_t>(kept.size())) return true;
  if (left == 0) possible_ = false;
  else keep(v, kept);
  return false;
}

// A table that is the sum of a cost of each side becomes costs of the nodes.
bool ChoiceReduction::separate(int32_t e, int32_t v) {
  const Edge& edge = edges_[e];
  const int32_t other = edge.a == v ? edge.b : edge.a, columns = count(other);
  const std::vector<double> table = rows(e, v);
  double most = 0;
  for (double value : table) {
    if (value == kInfinite) return false;
    most = std::max(most, std::abs(value));
  }
  for (int32_t i = 0; i < count(v); ++i)
    for (int32_t j = 0; j < columns; ++j) {
      const double sum = table[int64_t{i} * columns] + table[j] - table[0];
      if (std::abs(table[int64_t{i} * columns + j] - sum) > 1e-13 * most) return false;
    }
  for (int32_t i = 0; i < count(v); ++i) nodes_[v].cost[i] += table[int64_t{i} * columns];
  for (int32_t j = 0; j < columns; ++j) nodes_[other].cost[j] += table[j] - table[0];
  take_off(e);
  return true;
}

// Whether each choice of v allows one choice of the other node; which.
bool ChoiceReduction::decides(int32_t e, int32_t v, std::vector<int32_t>& map) const {
  const Edge& edge = edges_[e];
  const bool by_row = edge.a == v;
  const int32_t columns = count(edge.b);
  map.assign(count(v), -1);
  for (size_t at = 0; at < edge.table.size(); ++at) {
    if (edge.table[at] == kInfinite) continue;
    const auto row = static_cast<int32_t>(at / columns), column = static_cast<int32_t>(at % columns);
    int32_t& to = map[by_row ? row : column];
    if (to >= 0) return false;
    to = by_row ? column : row;
  }
  return std::find(map.begin(), map.end(), -1) == map.end();
}

// Merges the node with a neighbour that it decides, or that decides it; true: something has changed.
bool ChoiceReduction::merge_any(int32_t v) {
  std::vector<int32_t> map, back;
  for (const auto& [other, e] : nodes_[v].edges) {
    const bool to = decides(e, v, map) && !grows_too_much(v, other), fro = decides(e, other, back) && !grows_too_much(other, v);
    if (!to && !fro) continue;
    if (fro && (!to || nodes_[v].edges.size() <= nodes_[other].edges.size())) merge(other, v, back);
    else merge(v, other, map);
    return true;
  }
  return false;
}

bool ChoiceReduction::grows_too_much(int32_t into, int32_t v) const {
  if (nodes_[v].edges.size() <= 2) return false;
  int64_t more = 0;
  for (const auto& [other, e] : nodes_[v].edges)
    if (other != into) more += int64_t{count(into) - count(v)} * count(other);
  return more > kGrowth;
}

// Node v, whose choice is map[choice of `into`], goes.
void ChoiceReduction::merge(int32_t into, int32_t v, const std::vector<int32_t>& map) {
  const int32_t own = count(into);
  const int32_t between = nodes_[into].edges.at(v);
  const std::vector<double> table = rows(between, into);
  Step step{v, into, -1, std::vector<int32_t>(given(into), 0)};
  for (int32_t c = 0; c < own; ++c) {
    step.choice[nodes_[into].label[c]] = nodes_[v].label[map[c]];
    nodes_[into].cost[c] += nodes_[v].cost[map[c]] + table[int64_t{c} * count(v) + map[c]];
  }
  steps_.push_back(std::move(step));
  take_off(between);
  const std::map<int32_t, int32_t> edges = nodes_[v].edges;
  for (const auto& [other, e] : edges) {
    const std::vector<double> old = rows(e, v);
    const int32_t columns = count(other);
    std::vector<double> seen(int64_t{own} * columns);
    for (int32_t c = 0; c < own; ++c) std::copy_n(old.begin() + int64_t{map[c]} * columns, columns, seen.begin() + int64_t{c} * columns);
    take_off(e);
    put(into, other, seen);
    wait(other);
  }
  for (const Use& use : nodes_[v].uses) {
    Use moved{use.from, use.to, std::vector<double>(own)};
    for (int32_t c = 0; c < own; ++c) moved.of[c] = use.of[map[c]];
    use_more(into, moved);
  }
  nodes_[v] = Node{};
  nodes_[v].there = false;
  wait(into);
}

// A node that uses the same whatever its choice is goes, if few neighbours look at it.
void ChoiceReduction::fold(int32_t v) {
  const Node& node = nodes_[v];
  if (node.edges.size() > 2) return;
  if (node.edges.size() == 2) {
    const int32_t a = node.edges.begin()->first, b = node.edges.rbegin()->first;
    const int64_t cells = int64_t{count(a)} * count(b), now = int64_t{count(v)} * (count(a) + count(b));
    if (cells <= std::max(now, kFolded) || nodes_[a].edges.count(b)) fold_pair(v, a, b);
    return;
  }
  if (node.edges.empty()) {
    const auto best = std::min_element(node.cost.begin(), node.cost.end());
    decided_ += *best;
    steps_.push_back({v, -1, -1, {node.label[best - node.cost.begin()]}});
  } else {
    const auto [a, e] = *node.edges.begin();
    const std::vector<double> table = rows(e, a);
    Step step{v, a, -1, std::vector<int32_t>(given(a), 0)};
    for (int32_t i = 0; i < count(a); ++i) {
      double least = kInfinite;
      for (int32_t c = 0; c < count(v); ++c) {
        const double value = node.cost[c] + table[int64_t{i} * count(v) + c];
        if (value >= least) continue;
        least = value;
        step.choice[nodes_[a].label[i]] = node.label[c];
      }
      nodes_[a].cost[i] += least;
    }
    steps_.push_back(std::move(step));
    take_off(e);
    wait(a);
  }
  nodes_[v] = Node{};
  nodes_[v].there = false;
}

void ChoiceReduction::fold_pair(int32_t v, int32_t a, int32_t b) {
  const Node& node = nodes_[v];
  const int32_t ea = node.edges.at(a), eb = node.edges.at(b), own = count(v), columns = count(b);
  const std::vector<double> to_a = rows(ea, a), to_b = rows(eb, b);
  Step step{v, a, b, std::vector<int32_t>(int64_t{given(a)} * given(b), 0)};
  std::vector<double> table(int64_t{count(a)} * columns, kInfinite);
  for (int32_t i = 0; i < count(a); ++i)
    for (int32_t j = 0; j < columns; ++j)
      for (int32_t c = 0; c < own; ++c) {
        const double value = node.cost[c] + to_a[int64_t{i} * own + c] + to_b[int64_t{j} * own + c];
        if (value >= table[int64_t{i} * columns + j]) continue;
        table[int64_t{i} * columns + j] = value;
        step.choice[int64_t{nodes_[a].label[i]} * given(b) + nodes_[b].label[j]] = node.label[c];
      }
  steps_.push_back(std::move(step));
  take_off(ea);
  take_off(eb);
  nodes_[v] = Node{};
  nodes_[v].there = false;
  put(a, b, table);
  wait(a);
  wait(b);
}

std::vector<int32_t> ChoiceReduction::expand(const std::vector<int32_t>& x) const {
  std::vector<int32_t> out(nodes_.size(), 0);
  for (size_t k = 0; k < left_.size(); ++k) out[left_[k]] = nodes_[left_[k]].label[x[k]];
  for (size_t at = steps_.size(); at-- > 0;) {
    const Step& step = steps_[at];
    const int64_t row = step.a < 0 ? 0 : out[step.a];
    out[step.node] = step.choice[step.b < 0 ? row : row * given(step.b) + out[step.b]];
  }
  return out;
}

}  // namespace rlflow
