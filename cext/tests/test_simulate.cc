// Schedules by hand; random ones are compared with plain Python in tests/placement.
#include <limits>

#include "rlflow/simulate.h"
#include "testing.h"

using namespace rlflow;

namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// Two tasks in a chain on two equal devices; one value of 10 bytes between them, one of 20 that stays.
TaskGraph chain() {
  TaskGraph g;
  g.tasks = 2;
  g.devices = 2;
  g.seconds = {1, 1, 2, 2};
  g.maker = {0, 1};
  g.bytes = {10, 20};
  g.kept = {0, 1};
  g.reader_begin = {0, 1, 1};
  g.reader = {1};
  g.weight_begin = {0, 1, 2};
  g.weight = {0, 0};
  g.weight_bytes = {100};
  g.latency = {0, 0.5, 0.5, 0};
  g.per_byte = {0, 0.1, 0.1, 0};
  g.memory = {kNoLimit, kNoLimit};
  return g;
}

}  // namespace

TEST(a_chain_on_one_device_pays_for_no_transfer) {
  const std::vector<int32_t> device = {1, 1};
  const Schedule s = Simulator(chain()).run(device, {});
  CHECK_EQ(s.makespan, 3.0);
  CHECK_EQ(s.peak, (std::vector<double>{0, 130}));
  CHECK_EQ(s.busy, (std::vector<double>{0, 3}));
  CHECK_EQ(s.overflow, 0.0);
}

TEST(a_chain_on_two_devices_waits_for_its_value_and_holds_weights_twice) {
  const std::vector<int32_t> device = {0, 1};
  const Schedule s = Simulator(chain()).run(device, {});
  CHECK_EQ(s.start, (std::vector<double>{0, 2.5}));
  CHECK_EQ(s.finish, (std::vector<double>{1, 4.5}));
  CHECK_EQ(s.peak, (std::vector<double>{110, 130}));
}

TEST(what_does_not_fit_is_measured_against_the_limit) {
  TaskGraph g = chain();
  g.memory = {100, 65};
  const std::vector<int32_t> device = {1, 1};
  CHECK_EQ(Simulator(g).run(device, {}).overflow, 1.0);
}

TEST(priorities_decide_among_ready_tasks) {
  TaskGraph g = chain();
  g.reader_begin = {0, 0, 0};
  g.reader = {};
  const std::vector<int32_t> device = {0, 0};
  const std::vector<double> priority = {1, 2};
  CHECK_EQ(Simulator(g).run(device, {}).start, (std::vector<double>{0, 1}));
  CHECK_EQ(Simulator(g).run(device, priority).start, (std::vector<double>{2, 0}));
}

TEST(arrays_that_do_not_fit_are_refused) {
  TaskGraph g = chain();
  g.bytes.pop_back();
  CHECK_THROWS(Simulator(g), "bytes has 1 entries; expected 2");
  g = chain();
  g.reader = {2};
  CHECK_THROWS(Simulator(g), "reader holds 2");
  g = chain();
  g.reader_begin = {0, 2, 1};
  CHECK_THROWS(Simulator(g), "does not ascend");
  g = chain();
  g.seconds[0] = -1;
  CHECK_THROWS(Simulator(g), "below zero");
  g = chain();
  g.reader_begin = {0, 1, 2};
  g.reader = {1, 0};
  CHECK_THROWS(Simulator(g), "cycle");
  const std::vector<int32_t> device = {0, 2};
  CHECK_THROWS(Simulator(chain()).run(device, {}), "device 2 of 2");
}
