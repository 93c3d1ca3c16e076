// What a placement takes: tasks on devices with links between them, event by event.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace rlflow {

// Tasks, the values that run between them, and the machine. Device d runs one task at a time. A value goes once to every other device
// that reads it. CSR: the readers of value v are reader[reader_begin[v] .. reader_begin[v + 1]).
struct TaskGraph {
  int32_t tasks = 0, devices = 0;
  std::vector<double> seconds;        // [tasks, devices]
  std::vector<int32_t> maker;         // [values]: the task that makes it; -1: there from the start, on every device
  std::vector<double> bytes;          // [values]
  std::vector<uint8_t> kept;          // [values]: 1 where it stays to the end, as an output
  std::vector<int32_t> reader_begin;  // [values + 1]
  std::vector<int32_t> reader;
  std::vector<int32_t> weight_begin;  // [tasks + 1]: the weights of each task
  std::vector<int32_t> weight;
  std::vector<double> weight_bytes;   // [weights]: on a device each counts once, however many of its tasks read it
  std::vector<double> latency;        // [devices, devices]: seconds before the first byte of a transfer arrives
  std::vector<double> per_byte;       // [devices, devices]: seconds a byte
  std::vector<double> memory;         // [devices]: bytes
  bool serial_links = true;           // whether a link carries one transfer at a time
};

struct Schedule {
  double makespan = 0;
  double overflow = 0;                // the sum over devices of peak above memory, relative to the memory; 0: it fits
  std::vector<double> start, finish;  // [tasks]
  std::vector<double> peak, busy;     // [devices]
};

// Runs schedules of one graph. Of the tasks that are ready on a device the one of the highest priority goes first; of equals the one that
// became ready first. Values are freed when their last reader on a device has finished and no transfer from there is under way.
class Simulator {
 public:
  // Throws Error (usage) for arrays whose lengths or numbers do not fit each other, and for a graph with a cycle.
  explicit Simulator(TaskGraph graph);
  const TaskGraph& graph() const { return graph_; }
  // `device`: [tasks]. `priority`: [tasks], or empty.
  Schedule run(std::span<const int32_t> device, std::span<const double> priority) const;

 private:
  void check() const;
  void check_acyclic() const;
  TaskGraph graph_;
  std::vector<int32_t> input_begin_, input_;    // values that each task reads
  std::vector<int32_t> output_begin_, output_;  // values that each task makes
};

}  // namespace rlflow
