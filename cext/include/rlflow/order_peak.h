// The memory that an order of jobs needs, by ONNX Runtime's rules for buffers; rlflow/footprint/lifetimes.py says them in words.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace rlflow {

// Jobs, and the values that run between them. CSR throughout: job j reads input[input_begin[j] .. input_begin[j + 1]).
struct OrderJobs {
  int32_t jobs = 0, values = 0;
  std::vector<int32_t> input_begin, input;          // [jobs + 1]; values, as often as they are read
  std::vector<int32_t> output_begin, output;        // [jobs + 1]
  std::vector<int32_t> candidate_begin, candidate;  // [outputs + 1]: of each entry of `output`, the values whose buffer it may take over
  std::vector<uint8_t> alias;                       // [jobs]: 1 where it takes the first of these over in any case
  std::vector<int64_t> workspace;                   // [jobs]: bytes while it runs
  std::vector<int64_t> bytes;                       // [values]: multiples of what buffers are aligned to
  std::vector<int32_t> kind;                        // [values]: buffers of one kind follow each other; -1: of no kind
  std::vector<uint8_t> kept;                        // [values]: 1 where it is an output of the whole, and has memory of its own
  std::vector<int32_t> uses;                        // [values]: how often it is read, made, given or taken
};

// Peaks of orders of one set of jobs.
class OrderPeak {
 public:
  // Throws Error (usage) for arrays whose lengths or numbers do not fit each other, and for jobs that wait for each other in a cycle.
  explicit OrderPeak(OrderJobs jobs);
  int32_t jobs() const { return j_.jobs; }
  // Of the jobs that are ready the one of the highest level goes first, of equals the first. `level`: [jobs].
  std::vector<int32_t> order(std::span<const int32_t> level) const;
  // Bytes that a run in this order takes. Throws Error (usage) for what is no order of all jobs, each behind those that it waits for.
  int64_t peak(std::span<const int32_t> order) const;

 private:
  void check() const;
  void check_order(std::span<const int32_t> order) const;
  OrderJobs j_;
  std::vector<int32_t> waiting_;               // [jobs]: how many jobs each waits for
  std::vector<int32_t> behind_begin_, behind_;  // the jobs that wait for each
};

}  // namespace rlflow
