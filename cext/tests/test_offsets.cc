// Packings by hand; random ones are checked, and compared with enumeration, in tests/footprint.
#include "rlflow/offsets.h"
#include "testing.h"

using namespace rlflow;

TEST(buffers_that_are_never_alive_together_share_a_place) {
  const Packing p = pack_buffers({{0, 2, 8}, {2, 4, 8}, {4, 5, 3}}, 8, 100);
  CHECK(p.offsets.has_value());
  CHECK_EQ(*p.offsets, (std::vector<int64_t>{0, 0, 0}));
}

TEST(the_long_one_goes_below_or_above_both_others) {
  const Packing p = pack_buffers({{0, 2, 4}, {1, 3, 4}, {0, 3, 2}}, 10, 1000);
  CHECK(p.offsets.has_value());
  const std::vector<int64_t>& at = *p.offsets;
  CHECK(at[0] + 4 <= at[1] || at[1] + 4 <= at[0]);
  for (int b : {0, 1}) CHECK(at[b] + 4 <= at[2] || at[2] + 2 <= at[b]);
}

TEST(a_block_that_is_too_small_is_known_to_be) {
  const Packing p = pack_buffers({{0, 2, 4}, {1, 3, 4}}, 7, 1000);
  CHECK(!p.offsets.has_value());
  CHECK(p.exhausted);
}

TEST(a_search_that_may_not_look_far_says_so) {
  const Packing p = pack_buffers({{0, 2, 4}, {1, 3, 4}, {0, 3, 4}}, 12, 1);
  CHECK(!p.offsets.has_value());
  CHECK(!p.exhausted);
}

TEST(bad_buffers_are_refused) {
  CHECK_THROWS(pack_buffers({{0, 0, 4}}, 8, 10), "buffer 0 has no size, or no lifetime");
  CHECK_THROWS(pack_buffers({{0, 1, 4}, {0, 1, 0}}, 8, 10), "buffer 1");
  CHECK_THROWS(pack_buffers({}, 8, 0), "nothing may be tried");
}
