// What a reduction takes out, by hand; whole problems are compared with enumeration in tests/placement.
#include <limits>

#include "../src/choice_reduce.h"
#include "testing.h"

using namespace rlflow;

namespace {

constexpr double kNever = 1e18;

// Nodes of so many choices that cost and use nothing, alive all the time.
ChoiceGraph nodes_of(const std::vector<int32_t>& counts) {
  ChoiceGraph g;
  g.choice_begin = {0};
  for (int32_t count : counts) g.choice_begin.push_back(g.choice_begin.back() + count);
  g.cost.assign(g.choice_begin.back(), 0.0);
  g.usage = g.cost;
  g.begin.assign(counts.size(), 0);
  g.end.assign(counts.size(), 9);
  g.table_begin = {0};
  g.limit = 10;
  return g;
}

void join(ChoiceGraph& g, int32_t a, int32_t b, const std::vector<double>& table) {
  g.first.push_back(a);
  g.second.push_back(b);
  g.table.insert(g.table.end(), table.begin(), table.end());
  g.table_begin.push_back(static_cast<int64_t>(g.table.size()));
}

}  // namespace

TEST(a_node_that_its_neighbour_decides_is_merged_with_its_use) {
  ChoiceGraph g = nodes_of({3, 2});
  join(g, 0, 1, {0, kNever, kNever, 1, kNever, 1});
  g.usage = {12, 5, 0, 0, 4};
  g.cost = {0, 3, 5, 1, 2};
  ChoiceReduction reduction(g, 1e15);
  const ChoiceCore core = reduction.core();
  CHECK_EQ(core.size(), 1);
  CHECK_EQ(core.cost, (std::vector<double>{1, 6, 8}));
  CHECK_EQ(core.use, (std::vector<double>{8, 5, 0}));  // 12, 9 and 4, of which 4 in any case
  CHECK_EQ(core.room, (std::vector<double>{6}));
  CHECK_EQ(reduction.expand({0}), (std::vector<int32_t>{0, 0}));
  CHECK_EQ(reduction.expand({2}), (std::vector<int32_t>{2, 1}));
}

TEST(what_a_limit_cannot_stop_is_decided_at_once) {
  ChoiceGraph g = nodes_of({2, 2, 2});
  g.limit = std::numeric_limits<double>::infinity();
  join(g, 0, 1, {0, 2, 2, 0});
  join(g, 1, 2, {0, 2, 2, 0});
  join(g, 0, 2, {3, 0, 0, 3});
  g.cost = {1, 0, 0, 1, 0, 0};
  ChoiceReduction reduction(g, 1e15);
  const ChoiceCore core = reduction.core();
  CHECK_EQ(core.size(), 0);
  CHECK_EQ(core.decided, 2.0);
  CHECK_EQ(reduction.expand({}), (std::vector<int32_t>{1, 0, 0}));
}

TEST(a_choice_that_costs_and_uses_no_less_goes_and_one_that_uses_less_stays) {
  ChoiceGraph g = nodes_of({3, 2});
  join(g, 0, 1, {1, 5, 2, 6, 1, 5});
  g.cost = {0, 0, 9, 0, 1};
  g.usage = {6, 6, 5, 6, 0};
  const ChoiceCore core = ChoiceReduction(g, 1e15).core();
  CHECK_EQ(core.size(), 2);
  CHECK_EQ(core.count(0), 2);
}

TEST(sections_in_which_all_fits_are_left_out) {
  ChoiceGraph g = nodes_of({2, 2});
  g.begin = {0, 4};
  g.end = {6, 8};
  g.cost = {0, 1, 0, 1};
  g.usage = {7, 0, 7, 0};
  const ChoiceCore core = ChoiceReduction(g, 1e15).core();
  CHECK_EQ(core.room, (std::vector<double>{10}));  // only while both are alive
  CHECK_EQ(core.from, (std::vector<int32_t>{0, 0}));
  CHECK_EQ(core.to, (std::vector<int32_t>{1, 1}));
}

TEST(a_node_whose_use_always_fits_is_decided) {
  ChoiceGraph g = nodes_of({2, 2});
  g.begin = {0, 7};
  g.end = {6, 9};
  g.cost = {0, 1, 0, 1};
  g.usage = {7, 0, 11, 0};
  ChoiceReduction reduction(g, 1e15);
  CHECK_EQ(reduction.core().size(), 1);
  CHECK_EQ(reduction.expand({1}), (std::vector<int32_t>{0, 1}));
}

TEST(where_every_pair_is_forbidden_nothing_is_possible) {
  ChoiceGraph g = nodes_of({2, 1});
  join(g, 0, 1, {kNever, kNever});
  CHECK(!ChoiceReduction(g, 1e15).core().possible);
  CHECK(ChoiceReduction(g, std::numeric_limits<double>::infinity()).core().possible);
}
