#include "rlflow/simulate.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <string>
#include <utility>

#include "rlflow/error.h"

namespace rlflow {
namespace {

constexpr int32_t kMostDevices = 1024;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kUsage, "A graph of tasks: " + what); }

void expect(size_t found, size_t wanted, const char* what) {
  if (found != wanted) refuse(std::string(what) + " has " + std::to_string(found) + " entries; expected " + std::to_string(wanted));
}

void expect_csr(const std::vector<int32_t>& begin, size_t rows, size_t entries, const char* what) {
  expect(begin.size(), rows + 1, what);
  for (size_t i = 0; i < rows; ++i)
    if (begin[i] > begin[i + 1]) refuse(std::string(what) + " does not ascend");
  if (begin.front() != 0 || begin.back() != static_cast<int64_t>(entries)) refuse(std::string(what) + " does not cover its entries");
}

void expect_below(const std::vector<int32_t>& values, int64_t least, int64_t end, const char* what) {
  for (int32_t v : values)
    if (v < least || v >= end) refuse(std::string(what) + " holds " + std::to_string(v));
}

void expect_numbers(const std::vector<double>& values, const char* what, bool infinite = false) {
  for (double v : values)
    if (!(v >= 0) || (!infinite && std::isinf(v))) refuse(std::string(what) + " holds a number below zero or none");
}

// Turns a CSR from values to tasks round, or lists the values by the task that makes them.
void by_task(int32_t tasks, const std::vector<std::pair<int32_t, int32_t>>& pairs, std::vector<int32_t>& begin, std::vector<int32_t>& out) {
  begin.assign(tasks + 1, 0);
  for (const auto& [task, value] : pairs) ++begin[task + 1];
  for (int32_t t = 0; t < tasks; ++t) begin[t + 1] += begin[t];
  out.resize(pairs.size());
  std::vector<int32_t> next(begin.begin(), begin.end() - 1);
  for (const auto& [task, value] : pairs) out[next[task]++] = value;
}

struct Event {
  double time;
  int64_t order;     // of making: events of one moment happen in it
  int32_t id;        // a task, or a value
  int32_t device;    // -1: the task has finished; else: the value has arrived there
  bool operator>(const Event& o) const { return time != o.time ? time > o.time : order > o.order; }
};

struct Ready {
  double priority;
  int64_t order;
  int32_t task;
  bool operator<(const Ready& o) const { return priority != o.priority ? priority < o.priority : order > o.order; }
};

// The state of one run.
class Run {
 public:
  Run(const TaskGraph& g, const std::vector<int32_t>& input_begin, const std::vector<int32_t>& input, const std::vector<int32_t>& output_begin,
      const std::vector<int32_t>& output, std::span<const int32_t> device, std::span<const double> priority)
      : g_(g),
        in_begin_(input_begin),
        in_(input),
        out_begin_(output_begin),
        out_(output),
        device_(device),
        priority_(priority),
        waiting_(g.tasks),
        reads_left_(g.maker.size() * g.devices),
        under_way_(g.maker.size()),
        ready_(g.devices),
        idle_(g.devices, 1),
        link_free_(static_cast<size_t>(g.devices) * g.devices),
        live_(g.devices) {
    s_.start.assign(g.tasks, 0);
    s_.finish.assign(g.tasks, 0);
    s_.peak.assign(g.devices, 0);
    s_.busy.assign(g.devices, 0);
  }

  Schedule go() {
    begin();
    while (!events_.empty()) {
      const Event e = events_.top();
      events_.pop();
      if (e.device < 0) finish(e.id, e.time);
      else arrive(e.id, e.device, e.time);
    }
    for (int32_t d = 0; d < g_.devices; ++d)
      if (s_.peak[d] > g_.memory[d]) s_.overflow += (s_.peak[d] - g_.memory[d]) / std::max(g_.memory[d], 1.0);
    return std::move(s_);
  }

 private:
  // Weights are there, inputs are everywhere where they are read, and tasks that wait for nothing begin.
  void begin() {
    place_weights();
    for (size_t v = 0; v < g_.maker.size(); ++v)
      for (int32_t r = g_.reader_begin[v]; r < g_.reader_begin[v + 1]; ++r) {
        const int32_t task = g_.reader[r], d = device_[task];
        if (g_.maker[v] >= 0) ++waiting_[task];
        if (reads_left_[v * g_.devices + d]++ == 0 && g_.maker[v] < 0) hold(d, g_.bytes[v]);
      }
    for (int32_t t = 0; t < g_.tasks; ++t)
      if (waiting_[t] == 0) enqueue(t);
    for (int32_t d = 0; d < g_.devices; ++d) start_next(d, 0);
  }

  void place_weights() {
    std::vector<uint8_t> there(g_.weight_bytes.size() * g_.devices);
    for (int32_t t = 0; t < g_.tasks; ++t)
      for (int32_t w = g_.weight_begin[t]; w < g_.weight_begin[t + 1]; ++w) {
        uint8_t& held = there[static_cast<size_t>(g_.weight[w]) * g_.devices + device_[t]];
        if (!held) hold(device_[t], g_.weight_bytes[g_.weight[w]]);
        held = 1;
      }
  }

  void hold(int32_t d, double bytes) {
    live_[d] += bytes;
    s_.peak[d] = std::max(s_.peak[d], live_[d]);
  }

  void enqueue(int32_t t) { ready_[device_[t]].push({priority_.empty() ? 0.0 : priority_[t], order_++, t}); }

  void start_next(int32_t d, double now) {
    if (!idle_[d] || ready_[d].empty()) return;
    const int32_t t = ready_[d].top().task;
    ready_[d].pop();
    idle_[d] = 0;
    for (int32_t o = out_begin_[t]; o < out_begin_[t + 1]; ++o) hold(d, g_.bytes[out_[o]]);
    const double takes = g_.seconds[static_cast<size_t>(t) * g_.devices + d];
    s_.start[t] = now;
    s_.finish[t] = now + takes;
    s_.busy[d] += takes;
    events_.push({now + takes, order_++, t, -1});
  }

  void finish(int32_t t, double now) {
    const int32_t d = device_[t];
    idle_[d] = 1;
    s_.makespan = std::max(s_.makespan, now);
    for (int32_t i = in_begin_[t]; i < in_begin_[t + 1]; ++i) {
      --reads_left_[static_cast<size_t>(in_[i]) * g_.devices + d];
      release(in_[i], d);
    }
    for (int32_t o = out_begin_[t]; o < out_begin_[t + 1]; ++o) hand_out(out_[o], d, now);
    start_next(d, now);
  }

  // A value that was just made: its readers here have it, every other device that reads it is sent it.
  void hand_out(int32_t v, int32_t d, double now) {
    for (int32_t e = 0; e < g_.devices; ++e)
      if (e != d && reads_left_[static_cast<size_t>(v) * g_.devices + e] > 0) send(v, d, e, now);
    reach(v, d);
    release(v, d);
  }

  void send(int32_t v, int32_t d, int32_t e, double now) {
    const size_t link = static_cast<size_t>(d) * g_.devices + e;
    const double begins = g_.serial_links ? std::max(now, link_free_[link]) : now;
    const double ends = begins + g_.latency[link] + g_.bytes[v] * g_.per_byte[link];
    link_free_[link] = ends;
    ++under_way_[v];
    hold(e, g_.bytes[v]);
    events_.push({ends, order_++, v, e});
  }

  void arrive(int32_t v, int32_t e, double now) {
    --under_way_[v];
    release(v, device_[g_.maker[v]]);
    reach(v, e);
    start_next(e, now);
  }

  // The readers of a value on a device wait for one value less.
  void reach(int32_t v, int32_t d) {
    for (int32_t r = g_.reader_begin[v]; r < g_.reader_begin[v + 1]; ++r)
      if (device_[g_.reader[r]] == d && --waiting_[g_.reader[r]] == 0) enqueue(g_.reader[r]);
  }

  // Frees a value on a device where nobody needs it there any more.
  void release(int32_t v, int32_t d) {
    if (reads_left_[static_cast<size_t>(v) * g_.devices + d] > 0) return;
    const bool home = g_.maker[v] >= 0 && device_[g_.maker[v]] == d;
    if (home && (under_way_[v] > 0 || g_.kept[v])) return;
    live_[d] -= g_.bytes[v];
  }

  const TaskGraph& g_;
  const std::vector<int32_t>&in_begin_, &in_, &out_begin_, &out_;
  std::span<const int32_t> device_;
  std::span<const double> priority_;
  std::vector<int32_t> waiting_, reads_left_, under_way_;
  std::vector<std::priority_queue<Ready>> ready_;
  std::vector<uint8_t> idle_;
  std::vector<double> link_free_, live_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t order_ = 0;
  Schedule s_;
};

}  // namespace

Simulator::Simulator(TaskGraph graph) : graph_(std::move(graph)) {
  check();
  std::vector<std::pair<int32_t, int32_t>> made, read;
  for (size_t v = 0; v < graph_.maker.size(); ++v) {
    if (graph_.maker[v] >= 0) made.emplace_back(graph_.maker[v], static_cast<int32_t>(v));
    for (int32_t r = graph_.reader_begin[v]; r < graph_.reader_begin[v + 1]; ++r) read.emplace_back(graph_.reader[r], static_cast<int32_t>(v));
  }
  by_task(graph_.tasks, made, output_begin_, output_);
  by_task(graph_.tasks, read, input_begin_, input_);
  check_acyclic();
}

void Simulator::check() const {
  const TaskGraph& g = graph_;
  if (g.tasks < 0 || g.devices < 1 || g.devices > kMostDevices) refuse("it needs 1 to 1024 devices");
  const size_t values = g.maker.size(), pairs = static_cast<size_t>(g.devices) * g.devices;
  expect(g.seconds.size(), static_cast<size_t>(g.tasks) * g.devices, "seconds");
  expect(g.bytes.size(), values, "bytes");
  expect(g.kept.size(), values, "kept");
  expect(g.latency.size(), pairs, "latency");
  expect(g.per_byte.size(), pairs, "per_byte");
  expect(g.memory.size(), g.devices, "memory");
  expect_csr(g.reader_begin, values, g.reader.size(), "reader_begin");
  expect_csr(g.weight_begin, g.tasks, g.weight.size(), "weight_begin");
  expect_below(g.maker, -1, g.tasks, "maker");
  expect_below(g.reader, 0, g.tasks, "reader");
  expect_below(g.weight, 0, static_cast<int64_t>(g.weight_bytes.size()), "weight");
  expect_numbers(g.seconds, "seconds");
  expect_numbers(g.bytes, "bytes");
  expect_numbers(g.weight_bytes, "weight_bytes");
  expect_numbers(g.latency, "latency");
  expect_numbers(g.per_byte, "per_byte");
  expect_numbers(g.memory, "memory", true);
}

void Simulator::check_acyclic() const {
  std::vector<int32_t> waiting(graph_.tasks), ready;
  for (int32_t t = 0; t < graph_.tasks; ++t) {
    for (int32_t i = input_begin_[t]; i < input_begin_[t + 1]; ++i) waiting[t] += graph_.maker[input_[i]] >= 0;
    if (waiting[t] == 0) ready.push_back(t);
  }
  int32_t done = 0;
  for (; !ready.empty(); ++done) {
    const int32_t t = ready.back();
    ready.pop_back();
    for (int32_t o = output_begin_[t]; o < output_begin_[t + 1]; ++o)
      for (int32_t r = graph_.reader_begin[output_[o]]; r < graph_.reader_begin[output_[o] + 1]; ++r)
        if (--waiting[graph_.reader[r]] == 0) ready.push_back(graph_.reader[r]);
  }
  if (done < graph_.tasks) refuse("tasks wait for each other in a cycle");
}

Schedule Simulator::run(std::span<const int32_t> device, std::span<const double> priority) const {
  if (device.size() != static_cast<size_t>(graph_.tasks)) refuse("a placement has another number of tasks");
  if (!priority.empty() && priority.size() != device.size()) refuse("priorities have another number of tasks");
  for (int32_t d : device)
    if (d < 0 || d >= graph_.devices) refuse("a placement names device " + std::to_string(d) + " of " + std::to_string(graph_.devices));
  return Run(graph_, input_begin_, input_, output_begin_, output_, device, priority).go();
}

}  // namespace rlflow
