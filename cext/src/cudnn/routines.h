// What the callers of NVIDIA's routines share: scales, and the pointwise nodes that a routine takes along (private to the back end).
#pragma once
#include "plan.h"

namespace rlflow::gpu {

inline constexpr int kTactics = 5;           // convolutions of one form that are timed
inline constexpr int kProductTactics = 12;   // products: trying one takes some milliseconds

struct Scales {                              // alpha and beta as the routine wants them
  float f[2];
  double d[2];
  bool doubles;
  const void* operator[](int i) const { return doubles ? static_cast<const void*>(&d[i]) : &f[i]; }
};
inline Scales scales(double alpha, double beta, bool doubles) {
  return {{static_cast<float>(alpha), static_cast<float>(beta)}, {alpha, beta}, doubles};
}

// Walks along the pointwise nodes behind a product, as far as its routine can do them itself.
class Tail {
 public:
  Tail(const Graph& g, const std::vector<NodeId>& nodes, ValueId first, bool fusable) : g_(g), nodes_(nodes), fusable_(fusable), last_(first) {}

  // Whether the next node is `op`, and alone reads what is there so far.
  bool follows(const char* op) const { return follows_any() && g_.op(node()).name == op; }
  bool follows_any() const {
    return fusable_ && next_ < nodes_.size() && g_.users(last_).size() == 1 && g_.output_uses(last_) == 0 && g_.users(last_)[0].node == node();
  }
  NodeId node() const { return nodes_[next_]; }
  ValueId other_operand() const { return g_.inputs(node())[0] == last_ ? g_.inputs(node())[1] : g_.inputs(node())[0]; }
  void take() {
    ready_.insert(last_);
    last_ = g_.node(nodes_[next_++]).out_begin;
  }
  bool take_relu() {
    bool relu = follows("Relu");
    if (relu) take();
    return relu;
  }

  ValueId last() const { return last_; }     // the result, with what was taken
  std::set<ValueId> ready() const {          // the values that are computed, or that nobody else reads
    std::set<ValueId> all = ready_;
    all.insert(last_);
    return all;
  }
  std::vector<NodeId> rest() const { return {nodes_.begin() + static_cast<std::ptrdiff_t>(next_), nodes_.end()}; }

 private:
  const Graph& g_;
  const std::vector<NodeId>& nodes_;
  bool fusable_;
  ValueId last_;
  size_t next_ = 0;
  std::set<ValueId> ready_;
};

}  // namespace rlflow::gpu
