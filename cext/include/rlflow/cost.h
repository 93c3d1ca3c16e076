// Price of a graph (DESIGN C5): which nodes a runtime runs as one kernel, what such a region is called, what it costs.
//
// The partition is local. Every node that does work has at most one `next`: the node into whose region it is fused. `next` follows from
// the operator of the node and of its consumer, from types and attributes, from who else reads the value, and from a small state that flows
// along the data (what the chain holds so far; whether its tensor is in the runtime's blocked layout). A region is a tree of `next` links;
// its *head* is the node at the end, whose outputs leave the region. Table and evidence: fusion_rules.cc.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rlflow/graph.h"

namespace rlflow {

// Prices are whole picoseconds inside, so that sums do not depend on their order and a delta is exact.
using Picoseconds = int64_t;
inline constexpr Picoseconds kNoPrice = std::numeric_limits<Picoseconds>::min();
inline constexpr double kMsPerPicosecond = 1e-9;
inline constexpr double to_ms(Picoseconds p) noexcept { return static_cast<double>(p) * kMsPerPicosecond; }
Picoseconds from_ms(double ms);             // throws Error(kUsage) unless finite and within +-1e9 ms

// One machine, by a roofline over fused regions. The defaults stand for one core of a generic server CPU with 256-bit vectors.
struct AnalyticDevice {
  double gflops = 60;                       // dense products: MatMul, Gemm, Conv, ...
  double vector_gflops = 6;                 // everything else
  double gbps = 12;                         // bytes between a region and memory
  double overhead_us = 2;                   // per region
  double view_us = 0.5;                     // per region that only renames a tensor (Reshape, Squeeze, ...)
};

struct FusionRules;                         // data per runtime (fusion_rules.cc)
// "onnxruntime" (CPU, all optimisations), "none" (every node alone), "generic" (what any serious runtime fuses). `block` is the runtime's
// channel block: 16 with 512-bit vectors, 8 with 256-bit ones, 0 where the runtime has no blocked layout.
std::shared_ptr<const FusionRules> fusion_rules(std::string_view name, int block);   // throws Error(kUsage) for an unknown name

struct RegionMap {
  std::vector<NodeId> head;                 // by node id; kNoNode for dead, constant and source nodes
  std::vector<uint16_t> state;              // by node id; internal to the pricer
  std::vector<Picoseconds> price;           // by head; kNoPrice where not known (other entries mean nothing)
  std::vector<Hash128> signature;           // by head; empty for an analytic pricer, which needs none
  Picoseconds known = 0;                    // sum over priced regions
  uint32_t regions = 0;
  uint32_t unknown = 0;                     // regions without a price
  uint32_t unpriced = 0;                    // opaque nodes: counted as zero, and said
  int64_t weight_bytes = 0;                 // of constant values that work reads, each once
  double known_ms() const { return to_ms(known); }
};

// What one rewrite changes. known/unknown/unpriced/weight_bytes are those of map(child); the rest compares child and parent.
struct DeltaPrice {
  Picoseconds delta = 0;                    // known(child) - known(parent)
  uint32_t unknown = 0;                     // regions of the child without a price
  uint32_t unknown_new = 0;                 // of those, regions that the rewrite made or changed
  uint32_t unknown_gone = 0;                // regions of the parent without a price that are gone: with either of the two not 0,
                                            // `delta` says nothing about the rewrite
  uint32_t unpriced = 0;
  int64_t weight_bytes = 0;
  double known_ms_delta() const { return to_ms(delta); }
};

// One region, for people and for measuring.
struct Region {
  NodeId head = kNoNode;
  std::vector<NodeId> nodes;                // producers before consumers, head last
  std::vector<ValueId> inputs;              // read from outside, each once, in order of first use (constants included)
  std::vector<ValueId> outputs;             // read outside, or outputs of the graph (all of a node's when none is)
  Hash128 signature;                        // with layout context
  Hash128 base_signature;                   // without it: what a stand-alone measurement of the region depends on
  Picoseconds price = kNoPrice;
  double flops = 0, bytes = 0;              // float operations; bytes across the region's border
  bool view = false;                        // only renames its tensor
  bool opaque = false;                      // holds a node that the operator table does not know
  bool blocked = false;                     // runs in the blocked layout ...
  uint32_t reorder_inputs = 0;              // ... and reads so many tensors that are not,
  bool reorder_output = false;              // ... and is read by something that does not
  std::string_view kind;                    // what the runtime makes of it: "Conv", "MatMul", "LayerNormalization", "" for a lone node
};

// Working memory of delta(); reuse it, one per thread.
class DeltaScratch {
 public:
  DeltaScratch();
  ~DeltaScratch();
  DeltaScratch(DeltaScratch&&) noexcept;
  DeltaScratch& operator=(DeltaScratch&&) noexcept;

 private:
  friend class Pricer;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Const methods may run in parallel; set_price must not run beside them.
class Pricer {
 public:
  static Pricer analytic(const AnalyticDevice& device, std::shared_ptr<const FusionRules> rules);
  static Pricer table(std::shared_ptr<const FusionRules> rules);

  bool is_table() const { return table_; }
  const AnalyticDevice& device() const { return device_; }
  std::string_view fusion() const;
  int block() const;
  // Values that symbolic dims have when work is counted (others count as 1). Set before use.
  void bind(std::vector<std::pair<std::string, Int>> values);
  void set_price(const Hash128& signature, double ms);
  void set_view_price(double ms);           // table only: what a region of views costs (dispatch, no copy)
  double find_price(const Hash128& signature) const;             // ms; NaN if not known
  size_t price_count() const { return prices_.size(); }
  uint64_t revision() const { return revision_; }                // changes whenever a price is set

  // Needs order(). Linear.
  RegionMap map(const Graph& g) const;
  // `child` differs from `parent` by a rewrite: `changed` = new nodes, nodes with a redirected input, nodes that died, nodes whose users (or
  // uses as graph output) changed; ids persist. `pm` = map(parent). Reads nodes, inputs, users(), output_uses() and types of the child, never
  // its order. `unknown_signatures`, if given, receives the signatures behind unknown_new (repeats possible).
  DeltaPrice delta(const Graph& parent, const RegionMap& pm, const Graph& child, std::span<const NodeId> changed,
                   std::vector<Hash128>* unknown_signatures, DeltaScratch& scratch) const;
  // In canonical order of the heads.
  std::vector<Region> regions(const Graph& g) const;

 private:
  Pricer() = default;
  template <class View> Picoseconds price_region(const View& view, const std::vector<NodeId>& members, Hash128* signature) const;
  static int64_t weight_change(const Graph& parent, const Graph& child, std::span<const NodeId> changed, DeltaScratch& scratch);
  bool table_ = false;
  AnalyticDevice device_;
  Picoseconds view_price_ = 0;
  uint64_t revision_ = 0;
  std::vector<std::pair<std::string, Int>> bindings_;
  std::shared_ptr<const FusionRules> rules_;
  std::unordered_map<Hash128, Picoseconds, Hash128Hasher> prices_;
};

}  // namespace rlflow
