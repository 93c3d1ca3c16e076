// How a graph becomes steps on a GPU (private to the back end).
#pragma once
#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device.h"
#include "rlflow/cost.h"
#include "rlflow/gpu.h"

namespace rlflow::gpu {

using Dims = std::vector<int64_t>;
using Ref = uint32_t;                        // a tensor: first the graph's values, then temporaries
inline constexpr Ref kNoRef = UINT32_MAX;

struct Tensor {
  enum class Place : uint8_t { kNowhere, kConstant, kArena };
  int dtype = 0;                             // as stored
  Dims dims;
  size_t bytes = 0;
  Place place = Place::kNowhere;
  Ref alias = kNoRef;                        // another name of that tensor
  size_t offset = 0;                         // in the arena, or in a copy of the constants
  int first = INT32_MAX, last = -1;          // stages that touch it
};

struct Plan;
using Step = std::function<void(const Plan&, int copy)>;
struct Alternative {
  std::string what;
  std::vector<Step> steps;
  bool works = true;
};
struct Stage {                               // work that is tuned as one
  std::string key;                           // the same key, the same choice; empty: nothing to choose
  std::vector<Alternative> alternatives;
  size_t chosen = 0;
};

struct Plan {
  std::shared_ptr<Device> device;
  GraphPtr graph;
  Settings settings;
  std::deque<Tensor> tensors;               // a deque, so that references to members stay good
  std::vector<Stage> stages;
  std::vector<std::pair<Ref, std::string>> contents;            // of constants
  size_t workspace_bytes = 0, arena_bytes = 0, constant_bytes = 0;
  size_t turned_bytes = 0;                   // of constants that are there in a second layout
  int copies = 1;
  Memory arena, constants, workspace;

  Ref root(Ref r) const {
    while (tensors[r].alias != kNoRef) r = tensors[r].alias;
    return r;
  }
  DevicePtr address(Ref r, int copy) const;
  void* pointer(Ref r, int copy) const { return reinterpret_cast<void*>(static_cast<uintptr_t>(address(r, copy))); }
  void* scratch() const { return reinterpret_cast<void*>(static_cast<uintptr_t>(workspace.at())); }
};

int64_t count_of(const Dims& dims);
Dims strides_of(const Dims& dims);           // row-major
size_t item_bytes(int dtype);
bool is_real(int dtype);                     // of a type that cuDNN and cuBLAS compute in
std::string dims_text(const Dims& dims);

// Fills a plan, one region of the fusion table after another.
class Planner {
 public:
  explicit Planner(Plan& plan) : plan_(plan), g_(*plan.graph), device_(*plan.device) {}
  void run(const std::vector<std::pair<ValueId, std::string>>& constants);

 private:
  friend class Fuser;
  // A product's operands, behind the transposes of the last two axes and the scales that it does itself; a convolution's padding.
  struct ProductOperands {
    ValueId a, b;
    bool turned_a = false, turned_b = false;
    double alpha = 1;
    IntVec pads;
  };

  // plan.cc
  void place_values(const std::vector<std::pair<ValueId, std::string>>& constants);
  void plan_region(const std::vector<NodeId>& nodes);
  ValueId behind(ValueId v, const std::vector<NodeId>& nodes, bool& turned, double& alpha, std::set<NodeId>& taken) const;
  bool swaps_last_axes(NodeId n) const;
  bool scales_by_number(NodeId n, ValueId& operand, double& alpha) const;
  ValueId behind_padding(NodeId conv, const std::vector<NodeId>& nodes, IntVec& pads, std::set<NodeId>& taken) const;
  void plan_node(NodeId n);
  void plan_view(NodeId n);
  bool is_known(NodeId n) const;             // all outputs are known already: a computed shape
  Ref of(ValueId v) const { return plan_.root(v); }
  const Dims& dims(ValueId v) const { return plan_.tensors[v].dims; }
  int dtype(ValueId v) const { return plan_.tensors[v].dtype; }
  Ref temporary(int dtype, const Dims& dims);
  Ref constant(int dtype, const Dims& dims, std::string content);
  Ref read(Ref r);                           // notes that the stage at hand touches it
  Ref written(Ref r);
  void want_workspace(size_t bytes) { plan_.workspace_bytes = std::max(plan_.workspace_bytes, bytes); }
  void begin(std::string key) { plan_.stages.push_back({std::move(key), {}, 0}); }
  void offer(std::string what, std::vector<Step> steps) { plan_.stages.back().alternatives.push_back({std::move(what), std::move(steps), true}); }
  template <class Make>
  void single(std::string what, Make make) {  // `make` is called when the stage has begun, so that it notes what the stage touches
    begin("");
    offer(std::move(what), {make()});
  }
  [[noreturn]] void refuse(NodeId n, const std::string& why) const;
  bool used_once(ValueId v) const { return g_.users(v).size() == 1 && g_.output_uses(v) == 0; }
  bool used_at_all(ValueId v) const { return !g_.users(v).empty() || g_.output_uses(v) > 0; }
  std::optional<double> number(ValueId v) const;                // a constant with one known element

  // pointwise.cc
  static bool is_pointwise(const Graph& g, NodeId n);
  void plan_group(const std::vector<NodeId>& group);
  std::vector<Step> group_steps(const std::vector<NodeId>& group, const std::set<ValueId>& ready);
  std::vector<ValueId> leaving(const std::vector<NodeId>& group) const;
  std::string names(const std::vector<NodeId>& group) const;

  // products.cc
  struct Product;
  struct ProductLayouts;
  void plan_matmul(NodeId n, const std::vector<NodeId>& tail, const ProductOperands& o);
  Product product_at(NodeId n, const ProductOperands& o);
  static void set_batch(Product& p, const Dims& a, const Dims& b);
  ProductLayouts describe(const Product& p);
  std::vector<std::vector<Step>> product_steps(const Product& p);
  Step addend_step(NodeId n, Ref product);
  int blas_type(int dtype) const;
  int dnn_type(int dtype) const;
  std::shared_ptr<void> tensor_descriptor(int dtype, const Dims& dims);

  // convolutions.cc
  struct Convolution;
  struct ConvolutionTail;
  void plan_convolution(NodeId n, const std::vector<NodeId>& tail, ValueId x, const IntVec& pads);
  Convolution convolution_at(NodeId n, const std::vector<NodeId>& tail, ValueId x, const IntVec& pads);
  std::optional<Activation> activation_of(NodeId n) const;
  ConvolutionTail convolution_tail(const Convolution& c, const std::vector<NodeId>& tail, const ConvolutionTail& bare);
  Ref turned(Ref from, const Dims& size, int type, std::vector<Step>& steps);
  Step turn(Ref from, Ref to, int type, int64_t batch, int64_t rows, int64_t columns);
  void offer_convolution(const Convolution& c, const ConvolutionTail& taken, ValueId x, bool channels_last, std::string* why_not);

  // movement.cc
  Step copy_step(Ref from, int64_t from_offset, const Dims& from_strides, Ref to, int64_t to_offset, const Dims& to_strides, const Dims& extent);
  std::optional<Step> join_step(Ref whole, const std::vector<std::pair<Ref, int64_t>>& parts, int64_t outer, bool apart);
  Step remap_step(Ref from, Ref to, const std::vector<std::vector<int64_t>>& index, double fill);
  void plan_transpose(NodeId n);
  void plan_concat(NodeId n);
  void plan_split(NodeId n);
  void plan_slice(NodeId n);
  void plan_expand(NodeId n);
  void plan_tile(NodeId n);
  void plan_blocks(NodeId n);
  void plan_pad(NodeId n);
  void plan_resize(NodeId n);
  void plan_gather(NodeId n);

  // windows.cc
  void plan_pool(NodeId n);
  kernels::Pooling pooling_at(NodeId n, bool& even) const;
  Step library_pool(NodeId n, const kernels::Pooling& f);
  void plan_reduce(NodeId n);
  std::set<int64_t> reduced_axes(NodeId n) const;
  void plan_softmax(NodeId n);
  void plan_normalise(NodeId n);

  template <class Fixed>
  Step launch(const Fixed& fixed, std::vector<Ref> in, std::vector<Ref> out, int64_t blocks, int threads = 256, const Dims& sizes = {});
  Step launch_pointwise(kernels::Pointwise f, const std::vector<Ref>& in, const std::vector<Ref>& out);

  Plan& plan_;
  const Graph& g_;
  Device& device_;
  std::map<Ref, Ref> turned_;                // constants, and their copies with channels last
};

// One kernel; blocks beyond what fills the GPU a few times are folded into loops. It is compiled with the others of the plan. `sizes`: what
// is kGiven in `fixed`.
template <class Fixed>
Step Planner::launch(const Fixed& fixed, std::vector<Ref> in, std::vector<Ref> out, int64_t blocks, int threads, const Dims& sizes) {
  static_assert(sizeof(Fixed) % sizeof(long long) == 0);
  auto kept = std::make_shared<Fixed>(fixed);
  const Kernel* kernel = device_.kernel(kernel_name<Fixed>(), reinterpret_cast<const long long*>(kept.get()), sizeof(Fixed) / sizeof(long long));
  for (Ref& r : in) r = read(r);
  for (Ref& r : out) r = written(r);
  int64_t most = static_cast<int64_t>(device_.facts().processors) * 64;
  unsigned grid = static_cast<unsigned>(std::max<int64_t>(1, std::min(blocks, most)));
  return [=](const Plan& plan, int copy) {
    kernels::Pointers pointers{};
    for (size_t i = 0; i < in.size(); ++i) pointers.in[i] = plan.pointer(in[i], copy);
    for (size_t i = 0; i < out.size(); ++i) pointers.out[i] = plan.pointer(out[i], copy);
    std::copy(sizes.begin(), sizes.end(), pointers.size);
    void* arguments[] = {&pointers, kept.get()};  // the second is there for kernels whose constants are not compiled in (tests)
    const Device& d = *plan.device;
    d.check(d.api().cuLaunchKernel(kernel->function, grid, 1, 1, static_cast<unsigned>(threads), 1, 1, 0, d.stream(), arguments, nullptr),
            "starting a kernel");
  };
}

inline int64_t blocks_for(int64_t items, int threads = 256) { return (items + threads - 1) / threads; }

}  // namespace rlflow::gpu
