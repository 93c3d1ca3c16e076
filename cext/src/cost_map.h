// What map() and delta() of the pricer share (private to the core).
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "cost_regions.h"
#include "rlflow/cost.h"

namespace rlflow {
namespace detail {

// The states of a graph that was mapped as a whole.
struct MapView {
  const Graph& g;
  const FusionRules& rules;
  const uint16_t* states;
  State state(NodeId n) const { return states[n]; }
};

inline bool is_opaque(const Graph& g, NodeId head) { return g.op(head).fusion == FusionClass::kOpaque; }

inline int64_t bytes_of_value(const Graph& g, ValueId v) {
  const TensorType& t = type_at(g, v);
  auto count = t.rank < 0 ? std::nullopt : element_count(t);
  return count ? static_cast<int64_t>(std::ceil(static_cast<double>(*count) * dtype_bytes(t.dtype))) : 0;
}

struct Working {  // the nodes of one region, and room to sort them
  std::vector<NodeId> members, order;
};

}  // namespace detail

template <class View>
Picoseconds Pricer::price_region(const View& view, const std::vector<NodeId>& members, Hash128* signature) const {
  using namespace detail;
  NodeId head = members.back();
  if (is_opaque(view.g, head)) {
    if (table_) *signature = base_signature(view.g, members);
    return 0;
  }
  if (table_) {
    *signature = with_context(base_signature(view.g, members), context_of(view, members));
    if (chain_of(view.state(head)) == Chain::kView) return view_price_;
    auto it = prices_.find(*signature);
    return it == prices_.end() ? kNoPrice : it->second;
  }
  if (chain_of(view.state(head)) == Chain::kView) return view_price_;
  Work work = work_of(view.g, members, bindings_);
  double compute = work.flops / device_.gflops + work.vector_flops / device_.vector_gflops;   // ns
  double memory = work.bytes / device_.gbps;                                                  // ns
  return std::llround((std::max(compute, memory) + device_.overhead_us * 1e3) * 1e3);
}

}  // namespace rlflow
