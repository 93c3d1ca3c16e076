#include "rlflow/choices.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "choice_field.h"
#include "rlflow/error.h"

namespace rlflow {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kDear = 1e13;      // costs above this count as this
constexpr int kSweeps = 3;         // of messages, a round
constexpr int kWarm = 8;          // rounds before prices rise
constexpr int kForests = 4;        // a round
constexpr int kRepairs = 20'000;   // moves of one repair
constexpr int kPushes = 8;         // of prices, to get below the limit
constexpr size_t kLargest = 400;   // nodes of a part that is chosen anew

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

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

class Chooser {
 public:
  Chooser(const ChoiceGraph& g, uint64_t seed) : f_(g), messages_(f_), forest_(f_), random_(seed), mark_(f_.n, 0), all_(f_.n) {
    result_.bound = -kInfinite;
    std::iota(all_.begin(), all_.end(), 0);
    f_.cap(kDear);
  }

  Chosen run(double seconds, int64_t rounds) {
    const double start = processor_seconds();
    const auto goes_on = [&] { return rounds > 0 ? result_.rounds < rounds : processor_seconds() - start < seconds; };
    for (; goes_on(); ++result_.rounds) {
      f_.reprice();
      double now = -kInfinite;
      for (int sweep = 0; sweep < kSweeps; ++sweep) now = std::max(now, messages_.pass());
      stale_ = now > result_.bound ? 0 : stale_ + 1;
      result_.bound = std::max(result_.bound, now);
      messages_.decode();
      for (int k = 0; k < kForests; ++k) forest_.choose(all_, random_());
      const std::vector<int32_t> relaxed = f_.x;
      if (enter()) {
        descend();
        record();
      }
      if (!result_.choice.empty()) around();
      f_.x = relaxed;
      if (++warm_ > kWarm) raise(now);
    }
    return result_;
  }

 private:
  // Moves nodes that are alive where the load is highest, those that pay least for each byte first; whether all is within the limit.
  bool repair() {
    f_.reload();
    for (int moves = 0; moves < kRepairs; ++moves) {
      const auto worst = std::max_element(f_.load.begin(), f_.load.end());
      if (worst == f_.load.end() || *worst <= f_.g.limit) return true;
      const auto s = static_cast<int32_t>(worst - f_.load.begin());
      const double over = *worst - f_.g.limit;
      std::vector<std::pair<double, std::pair<int32_t, int32_t>>> found;
      for (int32_t i = 0; i < f_.n; ++i) {
        if (f_.from[i] > s || f_.to[i] <= s || f_.count(i) < 2) continue;
        const double now = f_.worth(i, f_.x[i]);
        for (int32_t a = 0; a < f_.count(i); ++a) {
          const double less = f_.use(i, f_.x[i]) - f_.use(i, a);
          if (less > 0) found.push_back({(f_.worth(i, a) - now) / std::min(less, over), {i, a}});
        }
      }
      if (found.empty()) return false;
      std::sort(found.begin(), found.end());
      double left = over;
      for (const auto& [price, change] : found) {
        const auto [i, a] = change;
        const double less = f_.use(i, f_.x[i]) - f_.use(i, a);
        if (less <= 0) continue;
        f_.move(i, a);
        left -= less;
        if (left <= 0) break;
      }
    }
    return false;
  }

  // Single moves that cost less and stay within the limit, until there are none.
  void descend() {
    for (int sweeps = 0; sweeps < 50; ++sweeps) {
      bool moved = false;
      for (int32_t i = 0; i < f_.n; ++i) {
        if (f_.count(i) < 2) continue;
        double least = f_.worth(i, f_.x[i]) - 1e-9;
        int32_t best = -1;
        for (int32_t a = 0; a < f_.count(i); ++a) {
          if (a == f_.x[i]) continue;
          const double value = f_.worth(i, a);
          if (value < least && f_.allowed(i, a)) {
            least = value;
            best = a;
          }
        }
        if (best < 0) continue;
        f_.move(i, best);
        moved = true;
      }
      if (!moved) return;
    }
  }

  // Gets below the limit: prices rise for a while where the load is above it; what is left is repaired.
  bool enter() {
    f_.reload();
    if (f_.within()) return true;
    const std::vector<double> kept = f_.price;
    const double mean = std::accumulate(f_.price.begin(), f_.price.end(), 0.0) / std::max(1, f_.sections);
    double push = std::max(mean, std::abs(result_.bound) / std::max(f_.g.limit, 1.0) / std::max(1, f_.sections));
    for (int k = 0; k < kPushes && !f_.within(); ++k, push *= 2) {
      for (int32_t s = 0; s < f_.sections; ++s)
        if (f_.load[s] > f_.g.limit) f_.price[s] += push;
      f_.reprice();
      forest_.choose(all_, random_());
      forest_.choose(all_, random_());
      f_.reload();
    }
    f_.price = kept;
    f_.reprice();
    return f_.within() || repair();
  }

  double around_cost(const std::vector<int32_t>& nodes) {
    double total = 0;
    for (int32_t i : nodes) mark_[i] = 1;
    for (int32_t i : nodes) {
      total += f_.cost[f_.g.choice_begin[i] + f_.x[i]];
      for (int32_t k = f_.arc_begin[i]; k < f_.arc_begin[i + 1]; ++k)
        if (!mark_[f_.arc[k].other] || f_.arc[k].first) total += f_.pair(f_.arc[k], f_.x[i], f_.x[f_.arc[k].other]);
    }
    for (int32_t i : nodes) mark_[i] = 0;
    return total;
  }

  // Parts of the best choices are chosen anew; what costs less and stays within the limit is kept.
  void around() {
    f_.x = result_.choice;
    f_.reload();
    bool better = false;
    size_t worked = 0;
    while (worked < static_cast<size_t>(4 * f_.n) + kLargest) {
      std::vector<int32_t> part = part_of();
      worked += part.size() + 8;
      std::vector<int32_t> before(part.size());
      const double old = around_cost(part);
      std::vector<int32_t> nodes = part;
      for (size_t k = 0; k < part.size(); ++k) before[k] = f_.x[part[k]];
      forest_.choose(nodes, random_());
      const double now = around_cost(part);
      std::vector<int32_t> after(part.size());
      for (size_t k = 0; k < part.size(); ++k) {
        after[k] = f_.x[part[k]];
        f_.x[part[k]] = before[k];
      }
      if (now >= old - 1e-9) continue;
      for (size_t k = 0; k < part.size(); ++k) f_.move(part[k], after[k]);
      if (f_.within()) {
        better = true;
        continue;
      }
      for (size_t k = 0; k < part.size(); ++k) f_.move(part[k], before[k]);
    }
    if (better) {
      f_.reload();
      descend();
      if (f_.within()) record();
    }
  }

  // Connected nodes around a random one.
  std::vector<int32_t> part_of() {
    const size_t most = 2 + static_cast<size_t>(std::exp(std::uniform_real_distribution<double>(0.0, std::log(double(kLargest)))(random_)));
    std::vector<int32_t> part = {static_cast<int32_t>(random_() % f_.n)};
    mark_[part[0]] = 1;
    for (size_t at = 0; at < part.size() && part.size() < most; ++at)
      for (int32_t k = f_.arc_begin[part[at]]; k < f_.arc_begin[part[at] + 1] && part.size() < most; ++k)
        if (!mark_[f_.arc[k].other]) {
          mark_[f_.arc[k].other] = 1;
          part.push_back(f_.arc[k].other);
        }
    for (int32_t i : part) mark_[i] = 0;
    return part;
  }

  void record() {
    double total = 0;
    for (int32_t i = 0; i < f_.n; ++i) total += f_.g.cost[f_.g.choice_begin[i] + f_.x[i]];
    for (size_t e = 0; e < f_.g.first.size(); ++e)
      total += f_.g.table[f_.g.table_begin[e] + int64_t{f_.x[f_.g.first[e]]} * f_.count(f_.g.second[e]) + f_.x[f_.g.second[e]]];
    if (!result_.choice.empty() && total >= result_.cost) return;
    result_.cost = total;
    result_.choice = f_.x;
    if (2 * total < 0.5 * f_.dear) {
      f_.cap(2 * total);
      messages_.forget();
      std::fill(f_.price.begin(), f_.price.end(), 0.0);
      warm_ = 0;
    }
  }

  // Polyak's step along the subgradient: prices rise where the load is above the limit, and fall where it is below.
  void raise(double now) {
    f_.reload();
    double norm = 0;
    for (int32_t s = 0; s < f_.sections; ++s) {
      const double over = f_.load[s] - f_.g.limit;
      if (over > 0 || f_.price[s] > 0) norm += over * over;
    }
    if (norm <= 0) return;
    const double known = result_.choice.empty() ? now + 0.1 * std::abs(now) + 1.0 : result_.cost;
    const double step = std::pow(0.7, stale_ / 5) * std::max(known - now, 1e-9) / norm;
    for (int32_t s = 0; s < f_.sections; ++s) f_.price[s] = std::max(0.0, f_.price[s] + step * (f_.load[s] - f_.g.limit));
  }

  ChoiceField f_;
  ChoiceMessages messages_;
  ChoiceForest forest_;
  std::mt19937_64 random_;
  std::vector<int32_t> mark_, all_;
  int warm_ = 0;   // rounds since the prices were nothing
  int stale_ = 0;  // rounds without a better bound
  Chosen result_;
};

}  // namespace

Chosen choose(const ChoiceGraph& graph, double seconds, int64_t rounds, uint64_t seed) {
  check(graph);
  return Chooser(graph, seed).run(seconds, rounds);
}

}  // namespace rlflow
