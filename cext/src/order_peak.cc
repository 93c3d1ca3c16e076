#include "rlflow/order_peak.h"

#include <algorithm>
#include <queue>
#include <string>
#include <utility>

#include "rlflow/error.h"

namespace rlflow {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kUsage, what); }

void expect(bool holds, const char* what) {
  if (!holds) refuse(std::string("Jobs to order: ") + what + " does not fit the others.");
}

void expect_csr(const std::vector<int32_t>& begin, const std::vector<int32_t>& entries, size_t rows, int32_t end, const char* what) {
  expect(begin.size() == rows + 1 && begin.front() == 0 && begin.back() == static_cast<int64_t>(entries.size()), what);
  expect(std::is_sorted(begin.begin(), begin.end()), what);
  expect(std::all_of(entries.begin(), entries.end(), [end](int32_t v) { return v >= 0 && v < end; }), what);
}

// Buffers side by side: each takes the gap that fits it best, of which the room up to the end of the block so far is one; else it makes
// the block longer.
class Block {
 public:
  int64_t size() const { return size_; }

  void take(int32_t value, int64_t bytes) {
    size_t index = held_.size();
    bool fits = false;
    int64_t waste = 0, offset = 0, end = 0;
    for (size_t i = 0; i < held_.size(); ++i) {
      const int64_t gap = held_[i].offset - end;
      if (gap >= bytes && (!fits || gap - bytes < waste)) {
        fits = true;
        index = i;
        waste = gap - bytes;
        offset = end;
      }
      end = held_[i].offset + held_[i].bytes;
    }
    const int64_t behind = size_ - end - bytes;  // what would be left up to the end of the block
    if (!fits || (behind >= 0 && behind < waste)) {
      index = held_.size();
      offset = end;
    }
    held_.insert(held_.begin() + index, {offset, bytes, value});
    size_ = std::max(size_, offset + bytes);
  }

  void give(int32_t value) {
    held_.erase(std::find_if(held_.begin(), held_.end(), [value](const Held& h) { return h.value == value; }));
  }

 private:
  struct Held {
    int64_t offset, bytes;
    int32_t value;
  };
  int64_t size_ = 0;
  std::vector<Held> held_;  // by their places
};

// Which value lies in which buffer, for one order.
class Buffers {
 public:
  Buffers(const OrderJobs& j, std::span<const int32_t> order)
      : j_(j), home_(j.values, -1), last_(j.values, -1), uses_(j.uses), begun_(order.size()), ended_(order.size()) {
    for (int32_t kind : j.kind) kinds_ = std::max(kinds_, kind + 1);
    free_.resize(kinds_);
    for (size_t place = 0; place < order.size(); ++place) run(order[place], static_cast<int32_t>(place));
    for (const std::vector<int32_t>& made : begun_)
      for (int32_t buffer : made)
        if (last_[buffer] >= 0) ended_[last_[buffer]].push_back(buffer);
  }

  // The buffers that are got before a place, and those that are given back after it.
  const std::vector<int32_t>& begun(size_t place) const { return begun_[place]; }
  const std::vector<int32_t>& ended(size_t place) const { return ended_[place]; }

 private:
  void run(int32_t job, int32_t place) {
    for (int32_t o = j_.output_begin[job]; o < j_.output_begin[job + 1]; ++o) {
      const int32_t value = j_.output[o];
      if (j_.kept[value]) continue;
      const int32_t found = taken_over(job, o, value);
      home_[value] = found < 0 ? value : buffer_of(found);
      if (found < 0) begun_[place].push_back(value);
      else uses_[home_[value]] += uses_[value];
    }
    for (int32_t i = j_.input_begin[job]; i < j_.input_begin[job + 1]; ++i) {
      last_[buffer_of(j_.input[i])] = place;
      use(j_.input[i]);
    }
    for (int32_t o = j_.output_begin[job]; o < j_.output_begin[job + 1]; ++o) use(j_.output[o]);
  }

  int32_t buffer_of(int32_t value) const { return home_[value] < 0 ? value : home_[value]; }

  // The value whose buffer an output takes over: an input's, or the one of its kind that was freed last; -1: none.
  int32_t taken_over(int32_t job, int32_t output, int32_t value) {
    for (int32_t c = j_.candidate_begin[output]; c < j_.candidate_begin[output + 1]; ++c)
      if (j_.alias[job] || uses_[buffer_of(j_.candidate[c])] == 1) return j_.candidate[c];
    if (j_.kind[value] < 0 || free_[j_.kind[value]].empty()) return -1;
    const int32_t found = free_[j_.kind[value]].back();
    free_[j_.kind[value]].pop_back();
    return found;
  }

  void use(int32_t value) {
    const int32_t buffer = buffer_of(value);
    if (--uses_[buffer] == 0 && home_[value] >= 0 && j_.kind[buffer] >= 0) free_[j_.kind[buffer]].push_back(buffer);
  }

  const OrderJobs& j_;
  int32_t kinds_ = 0;
  std::vector<int32_t> home_;                 // [values]: the value that the buffer was made for; -1: in none of the block
  std::vector<int32_t> last_;                 // [values]: the last place that reads a buffer; -1: none
  std::vector<int32_t> uses_;
  std::vector<std::vector<int32_t>> free_;    // by kind; the one that was freed last comes last
  std::vector<std::vector<int32_t>> begun_, ended_;
};

}  // namespace

OrderPeak::OrderPeak(OrderJobs jobs) : j_(std::move(jobs)) {
  check();
  std::vector<int32_t> maker(j_.values, -1);
  for (int32_t job = 0; job < j_.jobs; ++job)
    for (int32_t o = j_.output_begin[job]; o < j_.output_begin[job + 1]; ++o) maker[j_.output[o]] = job;
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (int32_t job = 0; job < j_.jobs; ++job)
    for (int32_t i = j_.input_begin[job]; i < j_.input_begin[job + 1]; ++i)
      if (maker[j_.input[i]] >= 0) pairs.emplace_back(maker[j_.input[i]], job);
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  waiting_.assign(j_.jobs, 0);
  behind_begin_.assign(j_.jobs + 1, 0);
  for (const auto& [before, job] : pairs) {
    ++waiting_[job];
    ++behind_begin_[before + 1];
    behind_.push_back(job);
  }
  for (int32_t job = 0; job < j_.jobs; ++job) behind_begin_[job + 1] += behind_begin_[job];
  const std::vector<int32_t> level(j_.jobs, 0);
  if (order(level).size() < level.size()) refuse("The jobs wait for each other in a cycle; they have no order.");
}

void OrderPeak::check() const {
  expect(j_.jobs >= 0 && j_.values >= 0, "their number");
  const size_t jobs = j_.jobs, values = j_.values;
  expect_csr(j_.input_begin, j_.input, jobs, j_.values, "what they read");
  expect_csr(j_.output_begin, j_.output, jobs, j_.values, "what they make");
  expect_csr(j_.candidate_begin, j_.candidate, j_.output.size(), j_.values, "what they take over");
  expect(j_.alias.size() == jobs && j_.workspace.size() == jobs, "what is said of each");
  expect(j_.bytes.size() == values && j_.kind.size() == values && j_.kept.size() == values && j_.uses.size() == values, "what is said of values");
}

std::vector<int32_t> OrderPeak::order(std::span<const int32_t> level) const {
  if (level.size() != static_cast<size_t>(j_.jobs)) refuse("An order needs a level for each job.");
  std::vector<int32_t> waiting = waiting_, found;
  std::priority_queue<std::pair<int32_t, int32_t>> ready;  // the level, and the job's number below zero
  for (int32_t job = 0; job < j_.jobs; ++job)
    if (!waiting[job]) ready.emplace(level[job], -job);
  while (!ready.empty()) {
    const int32_t job = -ready.top().second;
    ready.pop();
    found.push_back(job);
    for (int32_t b = behind_begin_[job]; b < behind_begin_[job + 1]; ++b)
      if (--waiting[behind_[b]] == 0) ready.emplace(level[behind_[b]], -behind_[b]);
  }
  return found;
}

void OrderPeak::check_order(std::span<const int32_t> order) const {
  std::vector<uint8_t> seen(j_.jobs, 0);
  for (int32_t job : order)
    if (job < 0 || job >= j_.jobs || seen[job]++) refuse("An order has each job once; this one does not.");
  if (order.size() != seen.size()) refuse("An order has each job once; this one does not.");
  std::vector<int32_t> waiting = waiting_;
  for (int32_t job : order) {
    if (waiting[job]) refuse("An order has each job behind those that it waits for; this one does not.");
    for (int32_t b = behind_begin_[job]; b < behind_begin_[job + 1]; ++b) --waiting[behind_[b]];
  }
}

int64_t OrderPeak::peak(std::span<const int32_t> order) const {
  check_order(order);
  const Buffers buffers(j_, order);
  Block block;
  int64_t given = 0, above = 0;
  for (size_t place = 0; place < order.size(); ++place) {
    for (int32_t buffer : buffers.begun(place)) block.take(buffer, j_.bytes[buffer]);
    for (int32_t o = j_.output_begin[order[place]]; o < j_.output_begin[order[place] + 1]; ++o)
      if (j_.kept[j_.output[o]]) given += j_.bytes[j_.output[o]];
    above = std::max(above, given + j_.workspace[order[place]]);
    for (int32_t buffer : buffers.ended(place)) block.give(buffer);
  }
  return block.size() + above;
}

}  // namespace rlflow
