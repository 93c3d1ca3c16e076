#include "rlflow/order_peak.h"

#include <algorithm>
#include <queue>
#include <string>
#include <utility>

#include "buffers.h"
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
