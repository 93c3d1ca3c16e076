// Choices by hand; random ones are compared with enumeration in tests/placement.
#include "rlflow/choices.h"
#include "testing.h"

using namespace rlflow;

namespace {

// Two nodes of two choices: dear and small, or free and large. Different choices cost one more.
ChoiceGraph pair_of(int64_t end_of_first) {
  ChoiceGraph g;
  g.choice_begin = {0, 2, 4};
  g.cost = {5, 0, 5, 0};
  g.usage = {0, 4, 0, 4};
  g.begin = {0, 2};
  g.end = {end_of_first, 4};
  g.first = {0};
  g.second = {1};
  g.table_begin = {0, 4};
  g.table = {0, 1, 1, 0};
  g.limit = 4;
  return g;
}

}  // namespace

TEST(both_are_free_where_they_are_never_alive_together) {
  const Chosen found = choose(pair_of(2), 0, 5, 0);
  CHECK_EQ(found.choice, (std::vector<int32_t>{1, 1}));
  CHECK_EQ(found.cost, 0.0);
  CHECK_EQ(found.bound, 0.0);
}

TEST(one_is_dear_where_both_do_not_fit) {
  const Chosen found = choose(pair_of(3), 0, 20, 0);
  CHECK_EQ(found.choice[0] + found.choice[1], 1);
  CHECK_EQ(found.cost, 6.0);
  CHECK(found.bound <= 6.0);
}

TEST(a_limit_that_nothing_keeps_gives_no_choices) {
  ChoiceGraph g = pair_of(3);
  g.usage = {5, 5, 0, 0};
  CHECK(choose(g, 0, 3, 0).choice.empty());
}

TEST(tables_that_do_not_fit_are_refused) {
  ChoiceGraph g = pair_of(3);
  g.table_begin = {0, 3};
  CHECK_THROWS(choose(g, 0, 1, 0), "edge 0 has a table of another size");
  g = pair_of(3);
  g.second = {0};
  CHECK_THROWS(choose(g, 0, 1, 0), "edge 0 joins no two nodes");
  g = pair_of(3);
  g.end.pop_back();
  CHECK_THROWS(choose(g, 0, 1, 0), "different lengths");
}
