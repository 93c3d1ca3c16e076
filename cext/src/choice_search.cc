#include "choice_search.h"

#include <algorithm>
#include <ctime>
#include <numeric>

namespace rlflow {
namespace {

constexpr double kInfinite = ChoiceField::kInfinite;
constexpr double kDear = 1e13;     // costs above this count as this
constexpr int kSweeps = 3;         // of messages, a round
constexpr int kWarm = 8;           // rounds before prices rise
constexpr int kSeldom = 8;         // of so many rounds, one renews the prices after `kEager` rounds without a better bound
constexpr int kEager = 40;
constexpr int kRepairs = 2'000;    // moves of one repair
constexpr size_t kQuick = 200'000;  // cells of tables that are small enough for every round
constexpr int kPushes = 12;        // of prices, to get below the limit
constexpr int kTries = 6;          // of prices, for a part
constexpr double kCells = 10'000;  // of a table of a part
constexpr size_t kLargest = 400;   // nodes of a part that is chosen anew

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

ChoiceSearch::ChoiceSearch(const ChoiceCore& core, uint64_t seed)
    : f_(core), messages_(f_), buckets_(f_), random_(seed), mark_(f_.n, 0), all_(f_.n), every_(1 + static_cast<int>(core.table.size() / kQuick)) {
  result_.bound = -kInfinite;
  std::iota(all_.begin(), all_.end(), 0);
  f_.cap(kDear);
}

bool ChoiceSearch::late() const { return processor_seconds() >= end_; }

Chosen ChoiceSearch::run(double seconds, int64_t rounds) {
  if (f_.n == 0) return {{}, f_.g.decided, f_.g.decided, 0};
  end_ = rounds > 0 ? kInfinite : processor_seconds() + seconds;
  const auto goes_on = [&] { return rounds > 0 ? result_.rounds < rounds : result_.rounds == 0 || !late(); };
  for (; goes_on(); ++result_.rounds) {
    if (stale_ < kEager || result_.choice.empty() || result_.rounds % kSeldom == 0) relax();
    if (!result_.choice.empty()) around();
  }
  return result_;
}

// A step of the Lagrangian relaxation: a bound at the prices of now, choices that are near it, other prices.
void ChoiceSearch::relax() {
  f_.reprice();
  double now = -kInfinite;
  for (int sweep = 0; sweep < kSweeps; ++sweep) now = std::max(now, messages_.pass());
  stale_ = now > top_ + 1e-7 * std::abs(now) ? 0 : stale_ + 1;
  if (now > top_) {
    top_ = now;
    top_price_ = f_.price;
  }
  result_.bound = std::max(result_.bound, now);
  messages_.decode();
  if (result_.rounds % every_ == 0) {
    buckets_.choose(all_, kCells, random_);
    const std::vector<int32_t> relaxed = f_.x;
    const std::vector<double> kept = f_.price;
    if (enter()) {
      descend();
      record();
    }
    f_.price = kept;
    f_.x = relaxed;
  }
  if (++warm_ > kWarm) raise(now);
}

// Prices rise where the load is above the room, so much that the load of now pays `worth` more; whether they did.
bool ChoiceSearch::push(double worth) {
  double norm = 0;
  for (int32_t s = 0; s < f_.sections; ++s) norm += std::pow(std::max(0.0, f_.load[s] - f_.g.room[s]), 2);
  if (norm <= 0) return false;
  for (int32_t s = 0; s < f_.sections; ++s) f_.price[s] += worth / norm * std::max(0.0, f_.load[s] - f_.g.room[s]);
  return true;
}

// Gets below the limit: prices rise for a while where the load is above it; what is left is repaired.
bool ChoiceSearch::enter() {
  f_.reload();
  double worth = 1e-3 * std::max(std::abs(result_.bound), 1.0);
  for (int k = 0; k < kPushes && !late() && push(worth); ++k, worth *= 2) {
    f_.reprice();
    buckets_.choose(all_, kCells, random_);
    f_.reload();
  }
  return f_.within() || repair();
}

// Moves nodes that are alive where the load is highest, those that pay least for each byte first; whether all is within the limit.
bool ChoiceSearch::repair() {
  for (int moves = 0; moves < kRepairs && !late(); ++moves) {
    int32_t worst = -1;
    double over = 0;
    for (int32_t s = 0; s < f_.sections; ++s)
      if (f_.load[s] - f_.g.room[s] > over) {
        over = f_.load[s] - f_.g.room[s];
        worst = s;
      }
    if (worst < 0) return true;
    if (!step_back(worst)) return false;
  }
  return false;
}

bool ChoiceSearch::step_back(int32_t s) {
  const double over = f_.load[s] - f_.g.room[s];
  double best = kInfinite;
  int32_t node = -1, choice = -1;
  for (int32_t i : alive_at(s)) {
    const double now = f_.worth(i, f_.x[i]);
    for (int32_t a = 0; a < f_.count(i); ++a) {
      double less = 0;
      for (int32_t k = f_.g.use_begin[i]; k < f_.g.use_begin[i + 1]; ++k)
        if (f_.g.from[k] <= s && s < f_.g.to[k]) less += f_.g.use[f_.g.use_at[k] + f_.x[i]] - f_.g.use[f_.g.use_at[k] + a];
      if (less <= 0) continue;
      const double price = (f_.worth(i, a) - now) / std::min(less, over);
      if (price < best) {
        best = price;
        node = i;
        choice = a;
      }
    }
  }
  if (node >= 0) f_.move(node, choice);
  return node >= 0;
}

std::vector<int32_t> ChoiceSearch::alive_at(int32_t s) const {
  std::vector<int32_t> found;
  for (int32_t i = 0; i < f_.n; ++i)
    for (int32_t k = f_.g.use_begin[i]; k < f_.g.use_begin[i + 1]; ++k)
      if (f_.g.from[k] <= s && s < f_.g.to[k]) {
        found.push_back(i);
        break;
      }
  return found;
}

// Single moves that cost less and stay within the limit, until there are none.
void ChoiceSearch::descend() {
  for (int sweeps = 0; sweeps < 50 && !late(); ++sweeps) {
    bool moved = false;
    for (int32_t i = 0; i < f_.n; ++i) {
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

// Parts of the best choices are chosen anew; what costs less and stays within the limit is kept.
void ChoiceSearch::around() {
  f_.x = result_.choice;
  f_.reload();
  bool better = false;
  size_t worked = 0;
  const std::vector<double> kept = f_.price;
  while (worked < static_cast<size_t>(4 * f_.n) + kLargest && !late()) {
    const std::vector<int32_t> part = part_of();
    worked += part.size() + 8;
    better |= improve(part);
    f_.price = kept;
  }
  f_.reload();
  if (better && f_.within()) record();
}

// A part is chosen anew at the prices of now, which rise where that does not fit and fall where it costs more; whether it costs less then.
bool ChoiceSearch::improve(const std::vector<int32_t>& part) {
  const double old = f_.cost_around(part);
  std::vector<int32_t> before, after;
  for (int32_t i : part) before.push_back(f_.x[i]);
  for (int k = 0; k < kTries; ++k) {
    f_.reprice(part);
    buckets_.choose(part, kCells, random_);
    const double now = f_.cost_around(part);
    after.clear();
    for (int32_t i : part) after.push_back(f_.x[i]);
    if (after == before) return false;
    for (size_t at = 0; at < part.size(); ++at) f_.x[part[at]] = before[at];
    const bool fits = f_.change(part, after);
    if (fits && now <= old + 1e-9) return now < old - 1e-9;
    if (!fits && now < old) push(1.5 * (old - now));
    f_.change(part, before);
    if (!fits && now >= old) return false;
    if (fits)
      for (double& price : f_.price) price *= 0.5;
  }
  return false;
}

// Connected nodes around a random one, or around several that are alive where little room is left.
std::vector<int32_t> ChoiceSearch::part_of() {
  const size_t most = 2 + static_cast<size_t>(std::exp(std::uniform_real_distribution<double>(0.0, std::log(double(kLargest)))(random_)));
  std::vector<int32_t> part = {static_cast<int32_t>(random_() % f_.n)};
  if (f_.sections > 0 && random_() % 2) {
    const auto s = static_cast<int32_t>(random_() % f_.sections);
    const std::vector<int32_t> alive = alive_at(s);
    for (size_t k = 0; k < 1 + random_() % 4 && !alive.empty(); ++k) part.push_back(alive[random_() % alive.size()]);
    std::sort(part.begin(), part.end());
    part.erase(std::unique(part.begin(), part.end()), part.end());
  }
  grow(part, most);
  return part;
}

void ChoiceSearch::grow(std::vector<int32_t>& part, size_t most) {
  for (int32_t i : part) mark_[i] = 1;
  for (size_t at = 0; at < part.size() && part.size() < most; ++at)
    for (int32_t k = f_.arc_begin[part[at]]; k < f_.arc_begin[part[at] + 1] && part.size() < most; ++k)
      if (!mark_[f_.arc[k].other]) {
        mark_[f_.arc[k].other] = 1;
        part.push_back(f_.arc[k].other);
      }
  for (int32_t i : part) mark_[i] = 0;
}

void ChoiceSearch::record() {
  const double total = f_.total();
  if (!result_.choice.empty() && total >= result_.cost) return;
  result_.cost = total;
  result_.choice = f_.x;
  const double enough = f_.enough(total);
  if (enough < 0.5 * f_.dear) {
    f_.cap(enough);
    messages_.forget();
    std::fill(f_.price.begin(), f_.price.end(), 0.0);
    warm_ = stale_ = 0;
    top_ = -kInfinite;
  }
}

// Polyak's step along the subgradient: prices rise where the load is above the limit, and fall where it is below.
void ChoiceSearch::raise(double now) {
  f_.reload();
  double norm = 0;
  for (int32_t s = 0; s < f_.sections; ++s) {
    const double over = f_.load[s] - f_.g.room[s];
    if (over > 0 || f_.price[s] > 0) norm += over * over;
  }
  if (norm <= 0) return;
  const double known = result_.choice.empty() ? now + 0.1 * std::abs(now) + 1.0 : result_.cost;
  if (stale_ > 0 && stale_ % kEager == 0) f_.price = top_price_;  // and long steps from there again
  const double step = std::pow(0.7, stale_ % kEager / 4) * std::max(known - now, 1e-9) / norm;
  for (int32_t s = 0; s < f_.sections; ++s) f_.price[s] = std::max(0.0, f_.price[s] + step * (f_.load[s] - f_.g.room[s]));
}

}  // namespace rlflow
