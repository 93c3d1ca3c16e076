// Convolutions in cuDNN, with what they take along: a bias for each channel, a residual sum, a Relu.
#include <algorithm>

#include "routines.h"

namespace rlflow::gpu {

// One convolution as cuDNN is asked for it.
struct Planner::Convolution {
  NodeId node = 0;
  int type = kF32, group = 1;
  size_t space = 2;                          // spatial axes in the graph
  Dims x, w, out;                            // extents, with two spatial axes at least
  std::vector<int> pad, stride, dilation;
  Ref source = kNoRef;                       // what it reads: the operand, or a padded copy
  std::vector<Step> before;                  // makes that copy
  std::shared_ptr<void> filter, descriptor, from, to;
  std::vector<std::pair<int, size_t>> routines;                 // with the bytes of workspace that each needs
  std::string name;
  Ref x_ref = kNoRef, w_ref = kNoRef;
};

// What the fused routine takes along.
struct Planner::ConvolutionTail {
  Ref bias = kNoRef, residual = kNoRef;
  bool relu = false;
  ValueId last = 0;
  std::set<ValueId> ready;
  std::vector<NodeId> rest;
  bool any() const { return bias != kNoRef || residual != kNoRef || relu; }
};

void Planner::plan_convolution(NodeId n, const std::vector<NodeId>& tail, ValueId vx, const IntVec& pads) {
  Convolution c = convolution_at(n, tail, vx, pads);
  pad_evenly(c, pads);
  if (c.space == 1) {  // cuDNN's convolutions have two axes or three
    for (Dims* extents : {&c.x, &c.w, &c.out}) extents->insert(extents->begin() + 2, 1);
    c.pad.insert(c.pad.begin(), 0), c.stride.insert(c.stride.begin(), 1), c.dilation.insert(c.dilation.begin(), 1);
  }
  describe(c);
  find_routines(c);
  ConvolutionTail taken = convolution_tail(c, tail);
  c.name = "convolution " + dims_text(c.w) + (c.group > 1 ? " in " + std::to_string(c.group) + " groups" : "");
  c.x_ref = read(c.source), c.w_ref = read(of(g_.inputs(n)[1]));
  if (c.type != kF64 && taken.any()) offer_fused(c, taken);
  offer_bare(c, tail);
}

// Checks the operands and opens the stage.
Planner::Convolution Planner::convolution_at(NodeId n, const std::vector<NodeId>& tail, ValueId vx, const IntVec& pads) {
  ValueId vw = g_.inputs(n)[1], y = g_.node(n).out_begin;
  const AttrSet& attrs = g_.attrs(n);
  Convolution c;
  c.node = n;
  c.x = dims(vx), c.w = dims(vw), c.out = dims(y);
  c.space = c.x.size() - 2;
  c.type = dtype(y);
  if (!is_real(c.type) || dtype(vx) != c.type || dtype(vw) != c.type)
    refuse(n, "its operands have the types " + type_text(g_.type(vx)) + " and " + type_text(g_.type(vw)));
  if (c.space < 1 || c.space > 3) refuse(n, "it has " + std::to_string(c.space) + " spatial axes, expected 1 to 3");
  if (pads.size() != 2 * c.space) refuse(n, "its padding is not known");
  if (count_of(c.x) == 0 || count_of(c.out) == 0) refuse(n, "an operand is empty");
  IntVec strides = attrs.find_ints("strides") ? attrs.get_ints("strides") : IntVec(c.space, 1);
  IntVec dilations = attrs.find_ints("dilations") ? attrs.get_ints("dilations") : IntVec(c.space, 1);
  c.group = static_cast<int>(attrs.get_int("group", 1));
  c.pad.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(c.space));
  c.stride.assign(strides.begin(), strides.end());
  c.dilation.assign(dilations.begin(), dilations.end());
  c.source = of(vx);
  begin("conv " + dims_text(c.x) + dims_text(c.w) + dims_text({pads.begin(), pads.end()}) + dims_text({strides.begin(), strides.end()}) +
        dims_text({dilations.begin(), dilations.end()}) + std::to_string(c.group) + "," + std::to_string(c.type) + names(tail));
  return c;
}

// cuDNN pads both ends alike; other padding is done by a copy in front.
void Planner::pad_evenly(Convolution& c, const IntVec& pads) {
  auto half = pads.begin() + static_cast<std::ptrdiff_t>(c.space);
  if (std::equal(pads.begin(), half, half)) return;
  std::vector<std::vector<int64_t>> index(2 + c.space);
  for (size_t d = 0; d < 2 + c.space; ++d) {
    int64_t low = d < 2 ? 0 : pads[d - 2], high = d < 2 ? 0 : pads[d - 2 + c.space];
    for (int64_t i = -low; i < c.x[d] + high; ++i) index[d].push_back(i >= 0 && i < c.x[d] ? i : -1);
    c.x[d] += low + high;
  }
  Ref wider = temporary(c.type, c.x);
  plan_.tensors[wider].place = Tensor::Place::kArena;
  c.before.push_back(remap_step(c.source, wider, index, 0));
  c.source = wider;
  std::fill(c.pad.begin(), c.pad.end(), 0);
}

void Planner::describe(Convolution& c) {
  constexpr const char* kDoing = "describing a convolution";
  const Api& api = device_.api();
  void* raw = nullptr;
  auto own = [&](int status, int (*destroy)(void*)) {
    device_.check_cudnn(status, kDoing);
    return std::shared_ptr<void>(raw, [destroy](void* d) { destroy(d); });
  };
  int made = api.cudnnCreateFilterDescriptor(&raw);
  c.filter = own(made, api.cudnnDestroyFilterDescriptor);
  std::vector<int> size(c.w.begin(), c.w.end());
  device_.check_cudnn(api.cudnnSetFilterNdDescriptor(raw, dnn_type(c.type), kDnnNchw, static_cast<int>(size.size()), size.data()), kDoing);
  made = api.cudnnCreateConvolutionDescriptor(&raw);
  c.descriptor = own(made, api.cudnnDestroyConvolutionDescriptor);
  int compute = c.type == kF64 ? kDnnDouble : kDnnFloat;
  device_.check_cudnn(api.cudnnSetConvolutionNdDescriptor(raw, static_cast<int>(c.pad.size()), c.pad.data(), c.stride.data(), c.dilation.data(),
                                                          kDnnCrossCorrelation, compute),
                      kDoing);
  device_.check_cudnn(api.cudnnSetConvolutionGroupCount(raw, c.group), kDoing);
  bool exact = c.type == kF32 && plan_.settings.precision == Precision::kFloat32;
  device_.check_cudnn(api.cudnnSetConvolutionMathType(raw, exact || c.type == kF64 ? kDnnFmaMath : kDnnTensorMath), kDoing);
  c.from = tensor_descriptor(c.type, c.x), c.to = tensor_descriptor(c.type, c.out);
}

// The most promising routines that fit into the workspace.
void Planner::find_routines(Convolution& c) {
  const Api& api = device_.api();
  std::vector<ConvolutionPerf> found(10);
  int count = 0;
  device_.check_cudnn(api.cudnnGetConvolutionForwardAlgorithm_v7(device_.cudnn(), c.from.get(), c.filter.get(), c.descriptor.get(), c.to.get(),
                                                                 static_cast<int>(found.size()), &count, found.data()),
                      "looking for a routine for a convolution");
  for (int i = 0; i < count && c.routines.size() < kTactics; ++i) {
    const ConvolutionPerf& f = found[static_cast<size_t>(i)];
    size_t bytes = 0;
    bool usable = f.status == 0 && std::none_of(c.routines.begin(), c.routines.end(), [&](const auto& r) { return r.first == f.algo; }) &&
                  api.cudnnGetConvolutionForwardWorkspaceSize(device_.cudnn(), c.from.get(), c.filter.get(), c.descriptor.get(), c.to.get(), f.algo,
                                                              &bytes) == 0 &&
                  bytes <= plan_.settings.workspace;
    if (usable) c.routines.emplace_back(f.algo, bytes);
  }
  if (c.routines.empty()) refuse(c.node, "cuDNN has no routine for it within " + std::to_string(plan_.settings.workspace >> 20) + " MB of workspace");
  for (const auto& [algo, bytes] : c.routines) want_workspace(bytes);
}

Planner::ConvolutionTail Planner::convolution_tail(const Convolution& c, const std::vector<NodeId>& tail) {
  auto in = g_.inputs(c.node);
  const ValueId y = g_.node(c.node).out_begin;
  bool own_bias = in.size() > 2 && in[2] != kNoValue;
  ConvolutionTail taken;
  if (own_bias) taken.bias = of(in[2]);
  Tail walk(g_, tail, y, c.type != kF64);
  auto channelwise = [&](ValueId v) {
    const Dims& d = dims(v);
    return d.size() >= c.space + 1 && d.size() <= c.space + 2 && d[d.size() - c.space - 1] == c.out[1] && count_of(d) == c.out[1] &&
           dtype(v) == c.type;
  };
  auto like_result = [&](ValueId v) { return v != walk.last() && dims(v) == dims(y) && dtype(v) == c.type; };
  if (!own_bias && walk.follows("Add") && channelwise(walk.other_operand())) {
    taken.bias = of(walk.other_operand());
    walk.take();
  }
  if (walk.follows("Add") && like_result(walk.other_operand())) {
    taken.residual = of(walk.other_operand());
    walk.take();
  }
  taken.relu = walk.take_relu();
  taken.last = walk.last();
  taken.ready = walk.ready();
  taken.rest = walk.rest();
  return taken;
}

void Planner::offer_fused(const Convolution& c, const ConvolutionTail& taken) {
  const Api& api = device_.api();
  Ref bias = taken.bias;
  if (bias == kNoRef) {  // the routine insists on one
    bias = constant(c.type, {c.out[1]}, std::string(static_cast<size_t>(c.out[1]) * item_bytes(c.type), '\0'));
  }
  Dims along(c.out.size(), 1);
  along[1] = c.out[1];
  auto bias_shape = tensor_descriptor(c.type, along);
  void* raw = nullptr;
  device_.check_cudnn(api.cudnnCreateActivationDescriptor(&raw), "describing a convolution");
  std::shared_ptr<void> activation(raw, [&api](void* d) { api.cudnnDestroyActivationDescriptor(d); });
  device_.check_cudnn(api.cudnnSetActivationDescriptor(raw, taken.relu ? kDnnRelu : kDnnIdentity, kDnnIgnoreNan, 0.0), "describing an activation");
  const bool summed = taken.residual != kNoRef;
  Ref b_ref = read(bias), z_ref = summed ? read(taken.residual) : kNoRef, d_ref = written(taken.last);
  std::vector<Step> after = taken.rest.empty() ? std::vector<Step>{} : group_steps(taken.rest, taken.ready);
  Scales s = scales(1, summed ? 1 : 0, false);
  const std::string what = c.name + " with bias" + (summed ? ", residual" : "") + (taken.relu ? ", Relu" : "") + ", routine ";
  for (const auto& [chosen, bytes] : c.routines) {
    if (!taken.relu && chosen != kDnnPrecompGemm) continue;  // the only routine that takes a bias without an activation
    std::vector<Step> steps = c.before;
    steps.push_back([=, x = c.x_ref, w = c.w_ref, from = c.from, to = c.to, filter = c.filter, conv = c.descriptor, algo = chosen,
                     space_bytes = bytes](const Plan& plan, int copy) {
      const Device& dev = *plan.device;
      void* result = plan.pointer(d_ref, copy);
      const void* z = z_ref != kNoRef ? plan.pointer(z_ref, copy) : result;
      dev.check_cudnn(dev.api().cudnnConvolutionBiasActivationForward(
                          dev.cudnn(), s[0], from.get(), plan.pointer(x, copy), filter.get(), plan.pointer(w, copy), conv.get(), algo, plan.scratch(),
                          space_bytes, s[1], to.get(), z, bias_shape.get(), plan.pointer(b_ref, copy), activation.get(), to.get(), result),
                      "convolving");
    });
    steps.insert(steps.end(), after.begin(), after.end());
    offer(what + std::to_string(chosen), std::move(steps));
  }
}

// y = bare + bias, by a kernel of our own.
Step Planner::bias_step(const Convolution& c, Ref bare) {
  const ValueId y = g_.node(c.node).out_begin;
  const Dims& size = dims(y);
  kernels::Pointwise f{};
  f.count = count_of(size);
  Dims extent{size[0], size[1], count_of(size) / (size[0] * size[1])}, plain = strides_of(extent);
  f.dims = 3, f.ins = 2, f.outs = 1, f.steps = 1, f.wide = c.type == kF64;
  std::copy(extent.begin(), extent.end(), f.extent);
  f.in[0].dtype = f.in[1].dtype = f.out[0].dtype = c.type;
  std::copy(plain.begin(), plain.end(), f.in[0].stride);
  std::copy(plain.begin(), plain.end(), f.out[0].stride);
  f.in[1].stride[1] = 1;
  f.code[0] = {kernels::kAdd, 0, 1, 0, 0};
  f.result[0] = 2;
  return launch(f, {bare, of(g_.inputs(c.node)[2])}, {y}, blocks_for(f.count));
}

// The routine alone, and one kernel for all that follows.
void Planner::offer_bare(const Convolution& c, const std::vector<NodeId>& tail) {
  auto in = g_.inputs(c.node);
  const ValueId y = g_.node(c.node).out_begin;
  bool own_bias = in.size() > 2 && in[2] != kNoValue;
  Ref bare = own_bias ? temporary(c.type, dims(y)) : y;
  Ref d_ref = written(bare);
  std::vector<Step> after;
  if (own_bias) after.push_back(bias_step(c, bare));
  if (!tail.empty())
    for (Step& s : group_steps(tail, {y})) after.push_back(std::move(s));
  Scales s = scales(1, 0, c.type == kF64);
  const std::string what = c.name + (own_bias || !tail.empty() ? ", then a kernel for the rest" : "") + ", routine ";
  for (const auto& [chosen, bytes] : c.routines) {
    std::vector<Step> steps = c.before;
    steps.push_back([=, x = c.x_ref, w = c.w_ref, from = c.from, to = c.to, filter = c.filter, conv = c.descriptor, algo = chosen,
                     space_bytes = bytes](const Plan& plan, int copy) {
      const Device& dev = *plan.device;
      dev.check_cudnn(dev.api().cudnnConvolutionForward(dev.cudnn(), s[0], from.get(), plan.pointer(x, copy), filter.get(), plan.pointer(w, copy),
                                                        conv.get(), algo, plan.scratch(), space_bytes, s[1], to.get(), plan.pointer(d_ref, copy)),
                      "convolving");
    });
    steps.insert(steps.end(), after.begin(), after.end());
    offer(what + std::to_string(chosen), std::move(steps));
  }
}

}  // namespace rlflow::gpu
