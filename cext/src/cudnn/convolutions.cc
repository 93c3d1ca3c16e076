// Convolutions in cuDNN, with what they take along: a bias for each channel, a residual sum, an activation.
#include <algorithm>
#include <limits>

#include "routines.h"

namespace rlflow::gpu {

// One convolution as cuDNN is asked for it, with two spatial axes at least.
struct Planner::Convolution {
  NodeId node = 0;
  int type = kF32;
  size_t space = 2;                          // spatial axes in the graph
  DnnConvolution how;
  std::string name;
};

// What the routine takes along, and what is left for a kernel behind it.
struct Planner::ConvolutionTail {
  Ref bias = kNoRef, residual = kNoRef;
  std::vector<Activation> activation;
  ValueId last = 0;
  std::set<ValueId> ready;
  std::vector<NodeId> rest;
};

void Planner::plan_convolution(NodeId n, const std::vector<NodeId>& tail, ValueId vx, const IntVec& pads) {
  Convolution c = convolution_at(n, tail, vx, pads);
  ConvolutionTail bare;
  bare.last = g_.node(n).out_begin;
  bare.ready = {bare.last};
  bare.rest = tail;
  if (g_.inputs(n).size() > 2 && g_.inputs(n)[2] != kNoValue) bare.bias = of(g_.inputs(n)[2]);
  ConvolutionTail whole = convolution_tail(c, tail, bare);
  std::string why_not;
  for (bool channels_last : {false, true}) {
    if (channels_last && c.type == kF64) continue;
    if (whole.last != bare.last) offer_convolution(c, whole, vx, channels_last, &why_not);
    offer_convolution(c, bare, vx, channels_last, &why_not);
  }
  if (plan_.stages.back().alternatives.empty()) refuse(n, why_not);
}

// Checks the operands and opens the stage.
Planner::Convolution Planner::convolution_at(NodeId n, const std::vector<NodeId>& tail, ValueId vx, const IntVec& pads) {
  ValueId vw = g_.inputs(n)[1], y = g_.node(n).out_begin;
  const AttrSet& attrs = g_.attrs(n);
  Convolution c;
  c.node = n;
  c.type = dtype(y);
  c.space = dims(vx).size() - 2;
  DnnConvolution& how = c.how;
  how.x = dims(vx), how.w = dims(vw), how.y = dims(y);
  if (!is_real(c.type) || dtype(vx) != c.type || dtype(vw) != c.type)
    refuse(n, "its operands have the types " + type_text(g_.type(vx)) + " and " + type_text(g_.type(vw)));
  if (c.space < 1 || c.space > 3) refuse(n, "it has " + std::to_string(c.space) + " spatial axes, expected 1 to 3");
  if (pads.size() != 2 * c.space) refuse(n, "its padding is not known");
  if (count_of(how.x) == 0 || count_of(how.y) == 0) refuse(n, "an operand is empty");
  IntVec strides = attrs.find_ints("strides") ? attrs.get_ints("strides") : IntVec(c.space, 1);
  IntVec dilations = attrs.find_ints("dilations") ? attrs.get_ints("dilations") : IntVec(c.space, 1);
  const int64_t group = attrs.get_int("group", 1);
  auto half = pads.begin() + static_cast<std::ptrdiff_t>(c.space);
  how.before.assign(pads.begin(), half), how.after.assign(half, pads.end());
  how.stride.assign(strides.begin(), strides.end()), how.dilation.assign(dilations.begin(), dilations.end());
  how.type = dnn_type(c.type);
  how.exact = c.type == kF32 && plan_.settings.precision == Precision::kFloat32;
  begin("conv " + dims_text(how.x) + dims_text(how.w) + dims_text({pads.begin(), pads.end()}) + dims_text(how.stride) + dims_text(how.dilation) +
        std::to_string(group) + "," + std::to_string(c.type) + names(tail));
  c.name = "convolution " + dims_text(how.w) + (group > 1 ? " in " + std::to_string(group) + " groups" : "");
  if (c.space == 1) {  // cuDNN's convolutions have two axes or three
    for (Dims* extents : {&how.x, &how.w, &how.y}) extents->insert(extents->begin() + 2, 1);
    for (Dims* padding : {&how.before, &how.after}) padding->insert(padding->begin(), 0);
    how.stride.insert(how.stride.begin(), 1), how.dilation.insert(how.dilation.begin(), 1);
  }
  return c;
}

// A pointwise node as an activation of cuDNN's.
std::optional<Activation> Planner::activation_of(NodeId n) const {
  const std::string& op = g_.op(n).name;
  const AttrSet& attrs = g_.attrs(n);
  Activation a;
  a.name = op;
  if (op == "Relu") return a;
  if (op == "Sigmoid" || op == "Tanh") return a.mode = op == "Tanh" ? kModeTanh : kModeSigmoid, a;
  if (op == "Gelu") return a.mode = attrs.get_string("approximate") == "tanh" ? kModeGeluTanh : kModeGelu, a;
  if (op == "LeakyRelu") return a.slope = attrs.get_float("alpha"), a;
  if (op == "Elu") return a.mode = kModeElu, a.alpha = attrs.get_float("alpha"), a;
  auto in = g_.inputs(n);
  if (op != "Clip" || in.size() != 3 || in[1] == kNoValue || in[2] == kNoValue) return std::nullopt;
  std::optional<double> low = number(in[1]), high = number(in[2]);
  if (!low || !high) return std::nullopt;
  return a.lower = *low, a.upper = *high, a.clipped = true, a;
}

Planner::ConvolutionTail Planner::convolution_tail(const Convolution& c, const std::vector<NodeId>& tail, const ConvolutionTail& bare) {
  const ValueId y = bare.last;
  ConvolutionTail taken = bare;
  Tail walk(g_, tail, y, c.type != kF64);
  auto channelwise = [&](ValueId v) {
    const Dims& d = dims(v);
    return d.size() >= c.space + 1 && d.size() <= c.space + 2 && d[d.size() - c.space - 1] == c.how.y[1] && count_of(d) == c.how.y[1] &&
           dtype(v) == c.type;
  };
  auto like_result = [&](ValueId v) { return v != walk.last() && dims(v) == dims(y) && dtype(v) == c.type; };
  while (walk.follows("Add")) {
    const ValueId other = walk.other_operand();
    if (taken.bias == kNoRef && channelwise(other)) taken.bias = of(other);
    else if (taken.residual == kNoRef && like_result(other)) taken.residual = of(other);
    else break;
    walk.take();
  }
  if (walk.follows_any())
    if (std::optional<Activation> a = activation_of(walk.node())) {
      taken.activation.push_back(*a);
      walk.take();
    }
  taken.last = walk.last();
  taken.ready = walk.ready();
  taken.rest = walk.rest();
  return taken;
}

// The same tensor with its channels last, made by a step, or beforehand where it is a constant.
Ref Planner::turned(Ref from, const Dims& size, int type, std::vector<Step>& steps) {
  const int64_t plane = count_of(size) / (size[0] * size[1]);
  if (plane == 1 || size[1] == 1) return from;
  if (auto known = turned_.find(plan_.root(from)); known != turned_.end()) return read(known->second);
  auto content = std::find_if(plan_.contents.begin(), plan_.contents.end(), [&](const auto& kept) { return kept.first == plan_.root(from); });
  if (content != plan_.contents.end()) {
    const size_t item = item_bytes(type), channels = static_cast<size_t>(size[1]), elements = static_cast<size_t>(plane);
    std::string moved(content->second.size(), '\0');
    for (size_t i = 0; i < moved.size() / item; ++i) {
      const size_t image = i / (channels * elements), channel = i / elements % channels, place = i % elements;
      std::copy_n(content->second.begin() + static_cast<std::ptrdiff_t>(i * item), item,
                  moved.begin() + static_cast<std::ptrdiff_t>(((image * elements + place) * channels + channel) * item));
    }
    plan_.turned_bytes += moved.size();
    return read(turned_[plan_.root(from)] = constant(type, size, std::move(moved)));
  }
  Ref to = temporary(type, size);
  steps.push_back(turn(from, to, type, size[0], size[1], plane));
  return to;
}
Step Planner::turn(Ref from, Ref to, int type, int64_t batch, int64_t rows, int64_t columns) {
  const kernels::Transposition f{static_cast<long long>(item_bytes(type)), kernels::kGiven, kernels::kGiven, kernels::kGiven};
  return launch(f, {from}, {to}, batch * ((rows + 31) / 32) * ((columns + 31) / 32), 256, {batch, rows, columns});
}

// The plans of one form of it, each an alternative of the stage. With channels last, what changes the layout is part of the price.
void Planner::offer_convolution(const Convolution& c, const ConvolutionTail& taken, ValueId vx, bool channels_last, std::string* why_not) {
  DnnConvolution how = c.how;
  Ref bias = taken.bias;
  how.channels_last = channels_last;
  how.activation = taken.activation;
  how.residual = taken.residual != kNoRef;
  if (bias == kNoRef && (how.residual || !how.activation.empty()))  // most routines that take something along insist on one
    bias = constant(c.type, {how.y[1]}, std::string(static_cast<size_t>(how.y[1]) * item_bytes(c.type), '\0'));
  how.bias = bias != kNoRef;
  const std::vector<DnnPlan> plans = plans_for(device_.dnn(), how, plan_.settings.workspace, kTactics, why_not);
  if (plans.empty()) return;
  std::vector<Step> before, after;
  auto operand = [&](Ref r, const Dims& size) { return channels_last ? turned(r, size, c.type, before) : r; };
  std::vector<std::pair<Operand, Ref>> refs = {{Operand::kX, read(operand(of(vx), how.x))},
                                               {Operand::kW, read(operand(of(g_.inputs(c.node)[1]), how.w))}};
  if (how.residual) refs.emplace_back(Operand::kResidual, read(operand(taken.residual, how.y)));
  if (how.bias) refs.emplace_back(Operand::kBias, read(bias));
  const int64_t plane = count_of(how.y) / (how.y[0] * how.y[1]);
  const bool turns = channels_last && plane > 1 && how.y[1] > 1;
  Ref result = written(turns ? temporary(c.type, how.y) : of(taken.last));
  refs.emplace_back(Operand::kY, result);
  if (turns) after.push_back(turn(result, of(taken.last), c.type, how.y[0], plane, how.y[1]));
  if (!taken.rest.empty())
    for (Step& s : group_steps(taken.rest, taken.ready)) after.push_back(std::move(s));
  std::string what = c.name + (taken.bias != kNoRef ? " with bias" : how.bias ? " with" : "") + (how.residual ? ", residual" : "");
  for (const Activation& a : how.activation) what += (taken.bias != kNoRef || how.residual ? ", " : " ") + a.name;
  what += std::string(taken.rest.empty() ? "" : ", then a kernel for the rest") + (channels_last ? ", channels last" : "");
  for (size_t i = 0; i < plans.size(); ++i) {
    want_workspace(plans[i].workspace);
    std::vector<Step> steps = before;
    steps.push_back([refs, plan = plans[i]](const Plan& where, int copy) {
      std::vector<std::pair<Operand, void*>> pointers;
      for (const auto& [id, r] : refs) pointers.emplace_back(id, where.pointer(r, copy));
      plan.execute(where.device->dnn(), pointers, where.scratch());
    });
    steps.insert(steps.end(), after.begin(), after.end());
    offer(what + ", plan " + std::to_string(i) + " of engine " + std::to_string(plans[i].engine), std::move(steps));
  }
}

}  // namespace rlflow::gpu
