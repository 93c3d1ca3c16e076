// Groups by hand; random ones are compared with the same pass in Python in tests/placement.
#include "rlflow/group_times.h"
#include "testing.h"

using namespace rlflow;

namespace {

// 0 -> 1 -> 2 -> 3, each of 400 bytes and a second of work; 1 is a product and has weights.
FusedNodes chain() {
  FusedNodes f;
  f.nodes = 4;
  f.input_begin = {0, 0, 1, 2, 3};
  f.input = {0, 1, 2};
  f.busy = {1, 1, 1, 1};
  f.bytes = {400, 400, 400, 400};
  f.weight_bytes = {0, 800, 0, 0};
  f.product = {0, 1, 0, 0};
  f.most = 3;
  f.operands = 6;
  f.bytes_per_second = 100;
  f.overhead = 0.5;
  return f;
}

using Levels = std::vector<int32_t>;

}  // namespace

TEST(level_zero_joins_nothing) { CHECK_EQ(GroupTimes(chain()).groups(Levels{0, 0, 0, 0}), (Levels{0, 1, 2, 3})); }

TEST(the_highest_level_is_joined_first_and_a_group_has_a_limit) {
  CHECK_EQ(GroupTimes(chain()).groups(Levels{1, 1, 1, 0}), (Levels{0, 0, 0, 3}));
  CHECK_EQ(GroupTimes(chain()).groups(Levels{1, 2, 3, 0}), (Levels{0, 1, 1, 1}));
}

TEST(two_products_are_never_one_group) {
  FusedNodes f = chain();
  f.product = {0, 1, 1, 0};
  CHECK_EQ(GroupTimes(f).groups(Levels{0, 1, 1, 0}), (Levels{0, 1, 2, 2}));
}

TEST(a_group_reads_so_many_values_and_weights_at_most) {
  FusedNodes f = chain();
  f.operands = 1;
  CHECK_EQ(GroupTimes(f).groups(Levels{1, 0, 0, 0}), (Levels{0, 0, 2, 3}));  // nothing but the weights
  CHECK_EQ(GroupTimes(f).groups(Levels{0, 1, 0, 0}), (Levels{0, 1, 2, 3}));  // the weights, and 0
}

TEST(a_pair_around_another_group_would_close_a_cycle) {
  FusedNodes f = chain();
  f.nodes = 3;  // 0 -> 1, and both -> 2; 1 and 2 are products
  f.input_begin = {0, 0, 1, 3};
  f.input = {0, 0, 1};
  f.busy = f.bytes = f.weight_bytes = {1, 1, 1};
  f.product = {1, 1, 0};
  CHECK_EQ(GroupTimes(f).groups(Levels{1, 0, 0}), (Levels{0, 1, 2}));
}

TEST(seconds_are_the_larger_of_work_and_bytes_and_an_overhead) {
  const GroupTimes times(chain());
  CHECK_EQ(times.seconds(Levels{0, 1, 2, 3}), (std::vector<double>{4.5, 16.5, 8.5, 8.5}));
  CHECK_EQ(times.seconds(Levels{0, 0, 0, 0}), (std::vector<double>{12.5}));  // 800 of weights and 400 of the result
}

TEST(a_value_is_read_once_by_a_group) {
  FusedNodes f = chain();
  f.nodes = 3;
  f.input_begin = {0, 0, 1, 2};
  f.input = {0, 0};
  f.busy = {0, 0, 0};
  f.bytes = {400, 0, 0};
  f.weight_bytes = {0, 0, 0};
  f.product = {0, 0, 0};
  CHECK_EQ(GroupTimes(f).seconds(Levels{0, 1, 1}), (std::vector<double>{4.5, 4.5}));
}

TEST(nodes_to_fuse_that_do_not_fit_are_refused) {
  FusedNodes f = chain();
  f.bytes.pop_back();
  CHECK_THROWS(GroupTimes{f}, "what is said of each");
  f = chain();
  f.input = {0, 1, 3};
  CHECK_THROWS(GroupTimes{f}, "what they read");
  const GroupTimes times(chain());
  CHECK_THROWS(times.groups(Levels{0}), "one for each node");
  CHECK_THROWS(times.seconds(Levels{0, 0, 0, 4}), "number of a node");
}
