// Flows in parts by hand; random ones are compared with the same rules in Python in tests/footprint.
#include "rlflow/flow_peak.h"
#include "testing.h"

using namespace rlflow;

namespace {

// x -> a -> b -> y of 1000, 3000, 3000, 100 bytes; each job reads one value and makes one.
FlowPart chain() {
  FlowPart p;
  p.input_begin = p.output_begin = {0, 1, 2, 3};
  p.input = {0, 1, 2};
  p.output = {1, 2, 3};
  p.reuse_begin = {0, 0, 0, 0};
  p.bits = p.layout = {0, 0, 0};
  p.node = {0, 1, 2};
  p.flops = {10, 20, 30};
  p.workspace = {0, 0, 0};
  p.bytes = p.filled_bytes = {1000, 3000, 3000, 100};
  p.shape = p.filled_shape = p.kind = p.filled_kind = {0, 1, 1, 2};
  p.hidden = p.scalar = {0, 0, 0, 0};
  return p;
}

// a -> b in two halves that are joined: the jobs in the place of the second one.
FlowPart halves() {
  FlowPart p;
  p.outer = 4;
  p.input_begin = {0, 1, 2, 4};
  p.input = {1, 1, 4, 5};
  p.output_begin = {0, 1, 2, 3};
  p.output = {4, 5, 2};
  p.reuse_begin = {0, 0, 0, 0};
  p.bits = {0, 0, kMoves};
  p.layout = {0, 0, 0};
  p.node = {1, 1, -1};
  p.flops = {10, 10, 0};
  p.workspace = {0, 0, 0};
  p.bytes = p.filled_bytes = {1500, 1500};
  p.shape = p.filled_shape = p.kind = p.filled_kind = {3, 3};
  p.hidden = p.scalar = {0, 0};
  return p;
}

FlowPeak peak_of(FlowPart whole) { return FlowPeak(std::move(whole), {0}, {3}, 256); }

}  // namespace

TEST(two_values_of_a_chain_are_alive_at_a_time) {
  const FlowNeeds found = peak_of(chain()).needs({});
  CHECK_EQ(found.peak, 2 * 3072 + 256);
  CHECK_EQ(found.live, 2 * 3072);
  CHECK_EQ(found.node, 1);
  CHECK_EQ(found.flops, 60.0);
}

TEST(a_part_stands_in_the_place_of_a_job) {
  const FlowPart part = halves();
  const FlowChange change{1, 1, &part};
  const FlowNeeds found = peak_of(chain()).needs({&change, 1});
  CHECK_EQ(found.live, 3072 + 2 * 1536);  // the halves beside what they are made of, then beside what joins them
  CHECK_EQ(found.moved, 3000);
  CHECK_EQ(found.jobs, 5);
  CHECK_EQ(found.flops, 60.0);
}

TEST(a_value_in_blocks_gets_a_plain_copy_for_who_cannot_read_it) {
  FlowPart p = chain();
  p.layout = {static_cast<int32_t>(FlowLayout::kMakes), 0, 0};
  p.filled_bytes = {1000, 4000, 3000, 100};
  p.filled_shape = p.filled_kind = {0, 5, 1, 2};
  const FlowNeeds found = peak_of(p).needs({});
  CHECK_EQ(found.jobs, 4);
  CHECK_EQ(found.moved, 3000);
  CHECK_EQ(found.live, 4096 + 3072);
}

TEST(what_is_hidden_takes_over_no_buffer) {
  FlowPart p = chain();  // b takes over a's buffer where the runtime knows both sizes
  p.reuse_begin = {0, 0, 1, 1};
  p.reuse_input = p.reuse_output = {0};
  CHECK_EQ(peak_of(p).needs({}).live, 3072 + 256);
  p.hidden = {1, 0, 0, 0};
  CHECK_EQ(peak_of(p).needs({}).live, 2 * 3072);
}
