// The hash join behind egraph_match.h's join().
#pragma once
#include <algorithm>
#include <unordered_map>

#include "rlflow/egraph_match.h"
#include "rlflow/hash.h"

namespace rlflow::egraph {

// Classes are compared as the search saw them, so that unions made while the join runs do not change its result.

// For one input of a join: rows by the values of the variables that earlier inputs have bound.
struct JoinIndex {
  std::vector<int> shared;                  // positions among the pattern's variables
  std::unordered_map<uint64_t, std::vector<uint32_t>> rows;      // by hash; checked again when used
  static uint64_t key(std::span<const ClassId> values) {
    uint64_t h = 0x243f6a8885a308d3ULL;
    for (const ClassId v : values) h = fold_multiply(h ^ v, 0x9e3779b97f4a7c15ULL) + v;
    return h;
  }
};

std::vector<JoinIndex> index_joins(std::span<const JoinInput> inputs, int rule_variables);

template <class Yield>
class JoinRun {
 public:
  JoinRun(const EGraph& g, std::span<const JoinInput> inputs, int rule_variables, bool unordered, Yield& yield)
      : g_(g),
        inputs_(inputs),
        unordered_(unordered),
        yield_(yield),
        index_(index_joins(inputs, rule_variables)),
        bound_(rule_variables, kNone),
        row_(inputs.size()) {}

  bool run(size_t k) {
    if (k == inputs_.size()) return yield_(std::span<const uint32_t>(row_), std::span<const ClassId>(bound_));
    if (k == 0) {
      for (uint32_t r = 0; r < inputs_[0].matches->size(); ++r)
        if (!take(0, r)) return false;
      return true;
    }
    values_.clear();
    for (const int v : index_[k].shared) values_.push_back(bound_[inputs_[k].variable[v]]);
    const auto found = index_[k].rows.find(JoinIndex::key(values_));
    if (found == index_[k].rows.end()) return true;
    for (const uint32_t r : found->second)
      if (!take(k, r)) return false;
    return true;
  }

 private:
  bool take(size_t k, uint32_t r) {
    const Matches& m = *inputs_[k].matches;
    const ClassId root = g_.find(m.root(r));
    for (size_t j = 0; j < k; ++j) {
      const ClassId other = g_.find(inputs_[j].matches->root(row_[j]));
      if (other == root) return true;
      if (unordered_ && inputs_[j].matches == &m && inputs_[j].matches->root(row_[j]) > m.root(r)) return true;
    }
    const auto values = m.bound(r);
    std::vector<int> fresh;
    bool agrees = true;
    for (size_t v = 0; v < values.size() && agrees; ++v) {
      ClassId& slot = bound_[inputs_[k].variable[v]];
      if (slot == kNone) {
        slot = values[v];
        fresh.push_back(inputs_[k].variable[v]);
      } else {
        agrees = slot == values[v];
      }
    }
    row_[k] = r;
    const bool go_on = !agrees || run(k + 1);
    for (const int v : fresh) bound_[v] = kNone;
    return go_on;
  }

  const EGraph& g_;
  std::span<const JoinInput> inputs_;
  bool unordered_;
  Yield& yield_;
  std::vector<JoinIndex> index_;
  std::vector<ClassId> bound_, values_;
  std::vector<uint32_t> row_;
};

template <class Yield>
void join(const EGraph& g, std::span<const JoinInput> inputs, int rule_variables, bool unordered, Yield yield) {
  JoinRun<Yield>(g, inputs, rule_variables, unordered, yield).run(0);
}

}  // namespace rlflow::egraph
