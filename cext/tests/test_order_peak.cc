// Orders and their memory by hand; random ones are compared with the same rules in Python in tests/footprint.
#include "rlflow/order_peak.h"
#include "testing.h"

using namespace rlflow;

namespace {

// x -> a, x -> b, and c of both, which is kept. No buffer may be taken over but by kind.
OrderJobs fork(int64_t a, int64_t b) {
  OrderJobs j;
  j.jobs = 3;
  j.values = 4;  // x, a, b, c
  j.input_begin = {0, 1, 2, 4};
  j.input = {0, 0, 1, 2};
  j.output_begin = {0, 1, 2, 3};
  j.output = {1, 2, 3};
  j.candidate_begin = {0, 0, 0, 0};
  j.alias = {0, 0, 0};
  j.workspace = {0, 0, 0};
  j.bytes = {0, a, b, 256};
  j.kind = {-1, 0, 1, 2};
  j.kept = {0, 0, 0, 1};
  j.uses = {3, 2, 2, 2};
  return j;
}

}  // namespace

TEST(the_highest_level_goes_first_and_of_equals_the_first_job) {
  const OrderPeak p(fork(512, 256));
  CHECK_EQ(p.order(std::vector<int32_t>{0, 0, 0}), (std::vector<int32_t>{0, 1, 2}));
  CHECK_EQ(p.order(std::vector<int32_t>{0, 1, 9}), (std::vector<int32_t>{1, 0, 2}));
}

TEST(two_buffers_and_an_output_take_the_sum) { CHECK_EQ(OrderPeak(fork(512, 256)).peak(std::vector<int32_t>{0, 1, 2}), 1024); }

TEST(a_workspace_counts_while_its_job_runs) {
  OrderJobs j = fork(512, 256);
  j.workspace = {1024, 0, 0};
  CHECK_EQ(OrderPeak(j).peak(std::vector<int32_t>{0, 1, 2}), 768 + 1024);
}

TEST(a_result_in_place_takes_no_buffer) {
  OrderJobs j = fork(512, 256);
  j.input_begin = {0, 1, 2, 3};  // b is made of a, which nobody else reads
  j.input = {0, 1, 2};
  j.candidate_begin = {0, 0, 1, 1};
  j.candidate = {1};
  j.uses = {2, 2, 2, 2};
  CHECK_EQ(OrderPeak(j).peak(std::vector<int32_t>{0, 1, 2}), 512 + 256);
}

TEST(what_is_no_order_is_refused) {
  const OrderPeak p(fork(512, 256));
  CHECK_THROWS(p.peak(std::vector<int32_t>{0, 1}), "each job once");
  CHECK_THROWS(p.peak(std::vector<int32_t>{0, 2, 1}), "behind those");
}
