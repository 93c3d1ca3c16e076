// Which value lies in which buffer, and the buffers in one block, by ONNX Runtime's rules; rlflow/footprint/lifetimes.py says them in words.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "rlflow/order_peak.h"

namespace rlflow {

// Buffers side by side: each takes the gap that fits it best, of which the room up to the end of the block so far is one; else it makes
// the block longer.
class Block {
 public:
  int64_t size() const { return size_; }

  void take(int32_t value, int64_t bytes) {
    size_t index = held_.size();
    bool fits = false;
    int64_t waste = 0, offset = 0, end = 0;
    for (size_t i = 0; i < held_.size(); ++i) {
      const int64_t gap = held_[i].offset - end;
      if (gap >= bytes && (!fits || gap - bytes < waste)) {
        fits = true;
        index = i;
        waste = gap - bytes;
        offset = end;
      }
      end = held_[i].offset + held_[i].bytes;
    }
    const int64_t behind = size_ - end - bytes;  // what would be left up to the end of the block
    if (!fits || (behind >= 0 && behind < waste)) {
      index = held_.size();
      offset = end;
    }
    held_.insert(held_.begin() + index, {offset, bytes, value});
    size_ = std::max(size_, offset + bytes);
  }

  void give(int32_t value) {
    held_.erase(std::find_if(held_.begin(), held_.end(), [value](const Held& h) { return h.value == value; }));
  }

 private:
  struct Held {
    int64_t offset, bytes;
    int32_t value;
  };
  int64_t size_ = 0;
  std::vector<Held> held_;  // by their places
};

// Which value lies in which buffer, for one order.
class Buffers {
 public:
  Buffers(const OrderJobs& j, std::span<const int32_t> order)
      : j_(j), home_(j.values, -1), last_(j.values, -1), uses_(j.uses), begun_(order.size()), ended_(order.size()) {
    for (int32_t kind : j.kind) kinds_ = std::max(kinds_, kind + 1);
    free_.resize(kinds_);
    for (size_t place = 0; place < order.size(); ++place) run(order[place], static_cast<int32_t>(place));
    for (const std::vector<int32_t>& made : begun_)
      for (int32_t buffer : made)
        if (last_[buffer] >= 0) ended_[last_[buffer]].push_back(buffer);
  }

  // The buffers that are got before a place, and those that are given back after it.
  const std::vector<int32_t>& begun(size_t place) const { return begun_[place]; }
  const std::vector<int32_t>& ended(size_t place) const { return ended_[place]; }

 private:
  void run(int32_t job, int32_t place) {
    for (int32_t o = j_.output_begin[job]; o < j_.output_begin[job + 1]; ++o) {
      const int32_t value = j_.output[o];
      if (j_.kept[value]) continue;
      const int32_t found = taken_over(job, o, value);
      home_[value] = found < 0 ? value : buffer_of(found);
      if (found < 0) begun_[place].push_back(value);
      else uses_[home_[value]] += uses_[value];
    }
    for (int32_t i = j_.input_begin[job]; i < j_.input_begin[job + 1]; ++i) {
      last_[buffer_of(j_.input[i])] = place;
      use(j_.input[i]);
    }
    for (int32_t o = j_.output_begin[job]; o < j_.output_begin[job + 1]; ++o) use(j_.output[o]);
  }

  int32_t buffer_of(int32_t value) const { return home_[value] < 0 ? value : home_[value]; }

  // The value whose buffer an output takes over: an input's, or the one of its kind that was freed last; -1: none.
  int32_t taken_over(int32_t job, int32_t output, int32_t value) {
    for (int32_t c = j_.candidate_begin[output]; c < j_.candidate_begin[output + 1]; ++c)
      if (j_.alias[job] || uses_[buffer_of(j_.candidate[c])] == 1) return j_.candidate[c];
    if (j_.kind[value] < 0 || free_[j_.kind[value]].empty()) return -1;
    const int32_t found = free_[j_.kind[value]].back();
    free_[j_.kind[value]].pop_back();
    return found;
  }

  void use(int32_t value) {
    const int32_t buffer = buffer_of(value);
    if (--uses_[buffer] == 0 && home_[value] >= 0 && j_.kind[buffer] >= 0) free_[j_.kind[buffer]].push_back(buffer);
  }

  const OrderJobs& j_;
  int32_t kinds_ = 0;
  std::vector<int32_t> home_;                 // [values]: the value that the buffer was made for; -1: in none of the block
  std::vector<int32_t> last_;                 // [values]: the last place that reads a buffer; -1: none
  std::vector<int32_t> uses_;
  std::vector<std::vector<int32_t>> free_;    // by kind; the one that was freed last comes last
  std::vector<std::vector<int32_t>> begun_, ended_;
};

}  // namespace rlflow
