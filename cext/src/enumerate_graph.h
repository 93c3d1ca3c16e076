// Small graphs as lists of steps: order of terms, normal forms.
#pragma once
#include "rlflow/enumerate.h"

namespace rlflow::enumeration {

// A total order of terms by structure; 0 for equal terms. Inputs come first, then operators by code and operands. It depends on the terms
// alone, not on where they stand in the list.
int compare_terms(int a, int b, const Step* steps, const Space& space);

// Whether a reader of the term, left to right, meets the inputs of each family in order. `seen`: those met before, and after.
bool inputs_in_order(const Space& space, const Record& r, int value, uint64_t& seen);

// Fills `canonical` and `size` of a record.
void describe(const Space& space, Record& r);

// The graph with the inputs of each family in order of first use, as far as the order of commutative operands lets that be.
Record renamed(const Space& space, const Record& r);

// Whether left and right are the same term.
bool same_term(const Record& left, const Record& right);

// A graph being put together, with equal operators merged.
class Builder {
 public:
  explicit Builder(const Space& space) : space_(space), inputs_(static_cast<int>(space.inputs.size())) {}
  int add(const Step& s);                         // the first output's index
  int copy(const Record& r, int value);           // a value of `r`, with all it is made of
  int ops() const { return static_cast<int>(steps_.size()); }
  Record finish(int root) const;                  // the operators that `root` needs, in the walk's order; ops is 0xff where they are too many

 private:
  void order(int value, std::vector<int>& out) const;
  const Space& space_;
  int inputs_;
  std::vector<Step> steps_;
};

}  // namespace rlflow::enumeration
