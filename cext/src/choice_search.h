// The search for cheap choices of what a reduction left.
#pragma once
#include <random>
#include <vector>

#include "choice_field.h"

namespace rlflow {

class ChoiceSearch {
 public:
  ChoiceSearch(const ChoiceCore& core, uint64_t seed);
  Chosen run(double seconds, int64_t rounds);  // the choices are the core's

 private:
  bool late() const;
  void relax();
  bool enter();
  bool repair();
  bool step_back(int32_t s);
  void descend();
  void around();
  bool improve(const std::vector<int32_t>& part);
  bool push(double worth);
  std::vector<int32_t> part_of();
  std::vector<int32_t> alive_at(int32_t s) const;
  void grow(std::vector<int32_t>& part, size_t most);
  void record();
  void raise(double now);

  ChoiceField f_;
  ChoiceMessages messages_;
  ChoiceBuckets buckets_;
  std::mt19937_64 random_;
  std::vector<int32_t> mark_, all_;
  std::vector<double> top_price_;  // the prices of the best bound since they were nothing
  double end_ = 0;  // in seconds of processor time; infinite where rounds are counted
  int every_;       // of so many rounds, one looks for choices within the limit from what is relaxed
  int warm_ = 0;   // rounds since the prices were nothing
  double top_ = -ChoiceField::kInfinite;  // that bound
  int stale_ = 0;  // rounds without a better bound
  Chosen result_;
};

}  // namespace rlflow
