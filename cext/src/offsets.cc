#include "rlflow/offsets.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "rlflow/error.h"

namespace rlflow {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kFirstTry = 2000;  // partial packings before another order is tried

// Buffers whose lifetimes hang together. A section is a stretch of time in which the same buffers are alive.
struct Problem {
  int64_t capacity;
  std::vector<int64_t> size;
  std::vector<int32_t> first, last;  // sections [first, last) of each buffer
  std::vector<std::vector<int32_t>> alive;
  int32_t count() const { return static_cast<int32_t>(size.size()); }
};

Problem problem_of(const std::vector<TimedBuffer>& buffers, const std::vector<int32_t>& chosen, int64_t capacity) {
  std::vector<int64_t> times;
  for (int32_t b : chosen) times.insert(times.end(), {buffers[b].begin, buffers[b].end});
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  Problem p{.capacity = capacity, .size = {}, .first = {}, .last = {}, .alive = {}};
  p.alive.resize(times.size() - 1);
  for (int32_t b : chosen) {
    const auto at = [&](int64_t time) { return static_cast<int32_t>(std::lower_bound(times.begin(), times.end(), time) - times.begin()); };
    const int32_t number = p.count();
    p.size.push_back(buffers[b].size);
    p.first.push_back(at(buffers[b].begin));
    p.last.push_back(at(buffers[b].end));
    for (int32_t s = p.first.back(); s < p.last.back(); ++s) p.alive[s].push_back(number);
  }
  return p;
}

// Orders in which buffers are preferred: by the fullest of a buffer's sections, by its width, by its area, by its size.
enum class Key { kFullest, kWidth, kArea, kSize };
constexpr std::array<std::array<Key, 3>, 6> kOrders = {{
    {Key::kFullest, Key::kWidth, Key::kArea},
    {Key::kFullest, Key::kArea, Key::kWidth},
    {Key::kWidth, Key::kFullest, Key::kArea},
    {Key::kArea, Key::kFullest, Key::kWidth},
    {Key::kSize, Key::kFullest, Key::kWidth},
    {Key::kWidth, Key::kSize, Key::kArea},
}};

std::vector<int32_t> preferred(const Problem& p, const std::array<Key, 3>& keys) {
  std::vector<int64_t> load(p.alive.size());
  for (size_t s = 0; s < load.size(); ++s)
    for (int32_t b : p.alive[s]) load[s] += p.size[b];
  const auto value = [&](int32_t b, Key key) -> int64_t {
    const int64_t width = p.last[b] - p.first[b];
    if (key == Key::kFullest) return *std::max_element(load.begin() + p.first[b], load.begin() + p.last[b]);
    if (key == Key::kWidth) return width;
    return key == Key::kArea ? width * p.size[b] : p.size[b];
  };
  std::vector<std::array<int64_t, 3>> rows(p.count());
  for (int32_t b = 0; b < p.count(); ++b) rows[b] = {value(b, keys[0]), value(b, keys[1]), value(b, keys[2])};
  std::vector<int32_t> order(p.count());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return rows[a] > rows[b]; });
  return order;
}

// One depth-first search. Buffers are placed at offsets that never fall, so each packing is met once. What is left to place is taken apart
// where it has no time in common: such parts do not ask each other.
class Search {
 public:
  Search(const Problem& p, const std::vector<int32_t>& order, bool low_first)
      : p_(p), low_first_(low_first), rank_(p.count()), floor_(p.alive.size()), top_(p.alive.size()), offset_(p.count(), -1), at_(p.count(), kNever) {
    for (size_t k = 0; k < order.size(); ++k) rank_[order[k]] = static_cast<int32_t>(k);
  }
  bool run(int64_t most) {
    most_ = most;
    Items all(p_.count());
    std::iota(all.begin(), all.end(), 0);
    std::stable_sort(all.begin(), all.end(), [&](int32_t a, int32_t b) { return p_.first[a] < p_.first[b]; });
    return place(all, 0, -1);
  }
  const std::vector<int64_t>& offsets() const { return offset_; }
  int64_t opened() const { return opened_; }
  bool stopped() const { return opened_ >= most_; }

 private:
  using Items = std::vector<int32_t>;  // buffers that are not placed, by their first section
  struct Candidate {
    int64_t offset;
    int32_t rank, buffer;
  };

  // Places all of `items`, or nothing.
  bool place(const Items& items, int64_t lowest, int32_t last_rank) {
    if (items.empty()) return true;
    if (++opened_ >= most_) return false;
    std::vector<Candidate> found;
    if (!candidates(items, lowest, last_rank, found)) return false;
    const size_t mark = placed_.size();
    for (const Candidate& one : found) {
      put(one.buffer, one.offset);
      if (rest_of(items, one)) return true;
      undo(mark);
      if (stopped()) return false;
    }
    return false;
  }

  bool rest_of(const Items& items, const Candidate& one) {
    Items part;
    int32_t end = 0;
    std::vector<Items> parts;
    for (int32_t b : items) {
      if (b == one.buffer) continue;
      if (!part.empty() && p_.first[b] >= end) {
        parts.push_back(std::move(part));
        part.clear();
      }
      end = part.empty() ? p_.last[b] : std::max(end, p_.last[b]);
      part.push_back(b);
    }
    if (!part.empty()) parts.push_back(std::move(part));
    std::stable_sort(parts.begin(), parts.end(), [](const Items& a, const Items& b) { return a.size() < b.size(); });
    for (const Items& each : parts)
      if (!place(each, one.offset, one.rank)) return false;
    return true;
  }

  int64_t rest(int32_t b) const { return *std::max_element(floor_.begin() + p_.first[b], floor_.begin() + p_.last[b]); }

  // What may be placed next; false where no packing can come of this.
  bool candidates(const Items& items, int64_t lowest, int32_t last_rank, std::vector<Candidate>& found) {
    int64_t under = kNever;  // the lowest top of what could be placed: what lies higher can wait
    int32_t end = 0;
    for (int32_t b : items) {
      const int64_t lies = rest(b);
      at_[b] = std::max(lies, lowest);
      if (at_[b] + p_.size[b] > p_.capacity) return false;
      under = std::min(under, at_[b] + p_.size[b]);
      end = std::max(end, p_.last[b]);
      // Of equal offsets the order does not matter.
      if (lies > lowest || (lies == lowest && rank_[b] > last_rank)) found.push_back({lies, rank_[b], b});
    }
    if (!stackable(items, end)) return false;
    std::erase_if(found, [&](const Candidate& one) { return one.offset >= under; });
    std::sort(found.begin(), found.end(),
              [&](const Candidate& a, const Candidate& b) { return low_first_ && a.offset != b.offset ? a.offset < b.offset : a.rank < b.rank; });
    return true;
  }

  // Whether the buffers of each section fit one above the other, none below the offset that it can have now: the shortest stack takes them
  // by these offsets.
  bool stackable(const Items& items, int32_t end) {
    Items low(items);
    std::sort(low.begin(), low.end(), [&](int32_t a, int32_t b) { return at_[a] < at_[b]; });
    std::fill(top_.begin() + p_.first[items.front()], top_.begin() + end, 0);
    for (int32_t b : low)
      for (int32_t s = p_.first[b]; s < p_.last[b]; ++s) {
        top_[s] = std::max(top_[s], at_[b]) + p_.size[b];
        if (top_[s] > p_.capacity) return false;
      }
    return true;
  }

  void put(int32_t b, int64_t offset) {
    placed_.push_back(b);
    offset_[b] = offset;
    for (int32_t s = p_.first[b]; s < p_.last[b]; ++s) {
      saved_.push_back(floor_[s]);
      floor_[s] = offset + p_.size[b];
    }
  }

  void undo(size_t mark) {
    for (; placed_.size() > mark; placed_.pop_back()) {
      const int32_t b = placed_.back();
      for (int32_t s = p_.last[b]; s-- > p_.first[b];) {
        floor_[s] = saved_.back();
        saved_.pop_back();
      }
      offset_[b] = -1;
    }
  }

  const Problem& p_;
  bool low_first_;
  std::vector<int32_t> rank_;
  std::vector<int64_t> floor_, top_;  // by section: where free room begins, and the top of a stack
  std::vector<int64_t> offset_, at_, saved_;
  std::vector<int32_t> placed_;
  int64_t opened_ = 0, most_ = 0;
};

// Whether it is packed; `opened` counts, and `exhausted` says that there is no packing.
bool solve(const Problem& p, int64_t most, std::vector<int64_t>& offsets, int64_t& opened, bool& exhausted) {
  std::mt19937_64 random(0);
  for (int64_t round = 0; opened < most; ++round)
    for (const auto& keys : kOrders)
      for (const bool low_first : {true, false}) {
        std::vector<int32_t> order = preferred(p, keys);
        if (round > 0) {
          std::vector<double> place(p.count());
          const double reach = std::uniform_real_distribution<double>(0.0, 0.5)(random) * p.count();
          for (int32_t k = 0; k < p.count(); ++k) place[order[k]] = k + std::uniform_real_distribution<double>(0.0, reach)(random);
          std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return place[a] < place[b]; });
        }
        int64_t luby = 1;
        for (int64_t r = round; r & 1; r >>= 1) luby *= 2;
        Search search(p, order, low_first);
        const bool found = search.run(std::min(kFirstTry * luby, std::max<int64_t>(1, most - opened)));
        opened += search.opened();
        if (found) {
          offsets = search.offsets();
          return true;
        }
        if (!search.stopped()) {
          exhausted = true;
          return false;
        }
        if (opened >= most) return false;
      }
  return false;
}

void check(const std::vector<TimedBuffer>& buffers, int64_t capacity, int64_t most) {
  if (capacity < 0 || most < 1) throw Error(ErrorKind::kUsage, "Packing buffers: the capacity is below 0, or nothing may be tried");
  for (size_t b = 0; b < buffers.size(); ++b)
    if (buffers[b].size <= 0 || buffers[b].begin >= buffers[b].end)
      throw Error(ErrorKind::kUsage, "Packing buffers: buffer " + std::to_string(b) + " has no size, or no lifetime");
}

}  // namespace

Packing pack_buffers(const std::vector<TimedBuffer>& buffers, int64_t capacity, int64_t most) {
  check(buffers, capacity, most);
  std::vector<int32_t> by_begin(buffers.size());
  std::iota(by_begin.begin(), by_begin.end(), 0);
  std::stable_sort(by_begin.begin(), by_begin.end(), [&](int32_t a, int32_t b) { return buffers[a].begin < buffers[b].begin; });
  Packing result;
  std::vector<int64_t> all(buffers.size(), 0);
  for (size_t at = 0; at < by_begin.size();) {
    std::vector<int32_t> together;
    int64_t end = buffers[by_begin[at]].end;
    for (; at < by_begin.size() && (together.empty() || buffers[by_begin[at]].begin < end); ++at) {
      together.push_back(by_begin[at]);
      end = std::max(end, buffers[by_begin[at]].end);
    }
    std::vector<int64_t> offsets;
    int64_t opened = 0;
    const bool found = solve(problem_of(buffers, together, capacity), most, offsets, opened, result.exhausted);
    result.opened += opened;
    if (!found) return result;
    for (size_t k = 0; k < together.size(); ++k) all[together[k]] = offsets[k];
  }
  result.offsets = std::move(all);
  return result;
}

}  // namespace rlflow
