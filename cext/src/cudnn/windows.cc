// Pools, reductions, softmax and normalisations: cuDNN's routines where they fit, our own kernels beside them; the faster one is taken.
#include <algorithm>
#include <cstring>

#include "routines.h"

namespace rlflow::gpu {

void merge_axes(Dims& extent, std::vector<Dims>& strides);   // pointwise.cc

void Planner::plan_pool(NodeId n) {
  ValueId x = g_.inputs(n)[0], y = g_.node(n).out_begin;
  if (g_.node(n).out_count > 1 && used_at_all(y + 1)) refuse(n, "the positions of its maxima are asked for");
  const AttrSet& attrs = g_.attrs(n);
  if (!attrs.find_ints("pads") || !attrs.find_ints("kernel_shape")) refuse(n, "its padding is not known");
  size_t space = dims(x).size() - 2;
  if (space < 1 || space > 3) refuse(n, "it has " + std::to_string(space) + " spatial axes, expected 1 to 3");
  if (!is_real(dtype(x))) refuse(n, "its operand has the type " + std::string(dtype_name(dtype(x))));
  const IntVec &pads = attrs.get_ints("pads"), &kernel = attrs.get_ints("kernel_shape");
  bool even = true;
  const kernels::Pooling f = pooling_at(n, even);
  begin("pool " + dims_text(dims(x)) + dims_text({kernel.begin(), kernel.end()}) + dims_text(dims(y)) + dims_text({pads.begin(), pads.end()}) +
        std::to_string(dtype(x)) + std::to_string(f.maximum) + std::to_string(f.with_pad));
  offer("pool, own kernel", {launch(f, {of(x)}, {y}, blocks_for(f.count))});
  if (even) offer("pool, cuDNN", {library_pool(n, f)});
}

// The pool with three spatial axes, the first ones of extent 1 where it has fewer. `even`: cuDNN's routine, which pads both ends alike, does it.
kernels::Pooling Planner::pooling_at(NodeId n, bool& even) const {
  ValueId x = g_.inputs(n)[0], y = g_.node(n).out_begin;
  const AttrSet& attrs = g_.attrs(n);
  const IntVec &pads = attrs.get_ints("pads"), &kernel = attrs.get_ints("kernel_shape");
  const IntVec *strides = attrs.find_ints("strides"), *dilations = attrs.find_ints("dilations");
  size_t space = dims(x).size() - 2;
  kernels::Pooling f{};
  f.dtype = dtype(x);
  f.maximum = g_.op(n).name == "MaxPool";
  f.with_pad = !f.maximum && attrs.get_int("count_include_pad", 0) != 0;
  f.planes = dims(x)[0] * dims(x)[1];
  f.count = count_of(dims(y));
  for (size_t d = 0; d < 3; ++d) {
    f.in[d] = f.out[d] = f.window[d] = f.stride[d] = f.dilation[d] = f.limit[d] = 1;
    if (d < 3 - space) continue;
    size_t k = d - (3 - space);
    f.in[d] = dims(x)[2 + k];
    f.out[d] = dims(y)[2 + k];
    f.window[d] = kernel[k];
    f.stride[d] = strides ? (*strides)[k] : 1;
    f.dilation[d] = dilations ? (*dilations)[k] : 1;
    f.pad[d] = pads[k];
    f.limit[d] = f.in[d] + pads[space + k];
    even = even && pads[k] == pads[space + k] && f.dilation[d] == 1 && pads[k] < kernel[k] &&
           (f.in[d] + 2 * pads[k] - f.window[d]) / f.stride[d] + 1 == f.out[d];
  }
  return f;
}

Step Planner::library_pool(NodeId n, const kernels::Pooling& f) {
  ValueId x = g_.inputs(n)[0], y = g_.node(n).out_begin;
  int rank = dims(x).size() == 5 ? 3 : 2;
  int window[3], pad[3], stride[3];
  for (int d = 0; d < rank; ++d) {
    window[d] = static_cast<int>(f.window[3 - rank + d]);
    pad[d] = static_cast<int>(f.pad[3 - rank + d]);
    stride[d] = static_cast<int>(f.stride[3 - rank + d]);
  }
  auto extents = [&](const Dims& full, const long long* size) {
    Dims out{full[0], full[1]};
    for (int d = 3 - rank; d < 3; ++d) out.push_back(size[d]);
    return out;
  };
  void* raw = nullptr;
  const Api& api = device_.api();
  device_.check_cudnn(api.cudnnCreatePoolingDescriptor(&raw), "describing a pool");
  std::shared_ptr<void> pool(raw, [&api](void* d) { api.cudnnDestroyPoolingDescriptor(d); });
  int mode = f.maximum ? kDnnPoolMax : f.with_pad ? kDnnPoolAverageWithPad : kDnnPoolAverage;
  device_.check_cudnn(api.cudnnSetPoolingNdDescriptor(raw, mode, kDnnPropagateNan, rank, window, pad, stride), "describing a pool");
  auto from = tensor_descriptor(dtype(x), extents(dims(x), f.in)), to = tensor_descriptor(dtype(y), extents(dims(y), f.out));
  Ref in = read(of(x)), out = written(y);
  Scales s = scales(1, 0, dtype(x) == kF64);
  return [=](const Plan& plan, int copy) {
    const Device& d = *plan.device;
    d.check_cudnn(
        d.api().cudnnPoolingForward(d.cudnn(), pool.get(), s[0], from.get(), plan.pointer(in, copy), s[1], to.get(), plan.pointer(out, copy)),
        "pooling");
  };
}

namespace {
const std::map<std::string, kernels::Reduction> kReductions = {
    {"ReduceSum", kernels::kSum},
    {"ReduceMean", kernels::kMean},
    {"ReduceMax", kernels::kMaximum},
    {"ReduceMin", kernels::kMinimum},
    {"ReduceProd", kernels::kProduct},
    {"ReduceL1", kernels::kL1},
    {"ReduceL2", kernels::kL2},
    {"ReduceLogSum", kernels::kLogSum},
    {"ReduceLogSumExp", kernels::kLogSumExp},
    {"ReduceSumSquare", kernels::kSumSquare},
    {"GlobalAveragePool", kernels::kMean},
    {"GlobalMaxPool", kernels::kMaximum},
    {"ArgMax", kernels::kArgMax},
    {"ArgMin", kernels::kArgMin},
};
}  // namespace

std::set<int64_t> Planner::reduced_axes(NodeId n) const {
  const std::string& op = g_.op(n).name;
  const AttrSet& attrs = g_.attrs(n);
  const int64_t rank = static_cast<int64_t>(dims(g_.inputs(n)[0]).size());
  std::set<int64_t> axes;
  if (op.starts_with("Global")) {
    for (int64_t d = 2; d < rank; ++d) axes.insert(d);
    return axes;
  }
  if (op.starts_with("Arg")) return {attrs.get_int("axis")};
  const IntVec* given = attrs.find_ints("axes");
  if (!given && g_.inputs(n).size() > 1 && g_.inputs(n)[1] != kNoValue) {
    given = g_.data(g_.inputs(n)[1]);
    if (!given) refuse(n, "its axes are computed while the graph runs");
  }
  for (Int a : given ? *given : IntVec{}) axes.insert(a < 0 ? a + rank : a);
  if (axes.empty()) {
    if (attrs.get_int("noop_with_empty_axes", 0) != 0) refuse(n, "it reduces over no axis");
    for (int64_t d = 0; d < rank; ++d) axes.insert(d);
  }
  return axes;
}

void Planner::plan_reduce(NodeId n) {
  const std::string& op = g_.op(n).name;
  ValueId x = g_.inputs(n)[0], y = g_.node(n).out_begin;
  const std::set<int64_t> axes = reduced_axes(n);
  kernels::Reducing f{};
  f.kind = kReductions.at(op);
  if (op.starts_with("Arg") && g_.attrs(n).get_int("select_last_index")) f.kind += 2;
  f.dtype = dtype(x);
  f.out_dtype = dtype(y);
  f.wide = f.dtype == kF64 || dtype_is_int(dtype(x));
  Dims plain = strides_of(dims(x)), kept, reduced;
  std::vector<Dims> kept_strides(1), reduced_strides(1);
  for (size_t d = 0; d < dims(x).size(); ++d) {
    const bool gone = axes.contains(static_cast<int64_t>(d));
    (gone ? reduced : kept).push_back(dims(x)[d]);
    (gone ? reduced_strides : kept_strides)[0].push_back(plain[d]);
  }
  merge_axes(kept, kept_strides);
  merge_axes(reduced, reduced_strides);
  if (kept.size() > kernels::kMaxDims || reduced.size() > kernels::kMaxDims) refuse(n, "its axes are too scattered");
  f.outputs = count_of(kept);
  f.count = count_of(reduced);
  f.kept = static_cast<long long>(kept.size());
  f.reduced = static_cast<long long>(reduced.size());
  std::copy(kept.begin(), kept.end(), f.kept_extent);
  std::copy(kept_strides[0].begin(), kept_strides[0].end(), f.kept_stride);
  std::copy(reduced.begin(), reduced.end(), f.reduced_extent);
  std::copy(reduced_strides[0].begin(), reduced_strides[0].end(), f.reduced_stride);
  begin("reduce " + op + dims_text(dims(x)) + dims_text({axes.begin(), axes.end()}) + std::to_string(f.dtype));
  bool alone = f.kind == kernels::kProduct || f.kind == kernels::kLogSumExp || f.kind >= kernels::kArgMax;
  if (!alone && f.count > 8 && f.count <= 2048) {
    f.together = 32;
    offer("reduction, a warp each", {launch(f, {of(x)}, {y}, blocks_for(f.outputs * 32, 128), 128)});
  }
  if (!alone && f.count > 128) {
    f.together = kernels::kGiven;
    offer("reduction, a block each", {launch(f, {of(x)}, {y}, f.outputs, f.count >= 1024 ? 256 : 128)});
  }
  f.together = 1;
  offer("reduction, a thread each", {launch(f, {of(x)}, {y}, blocks_for(f.outputs, 128), 128)});
}

void Planner::plan_softmax(NodeId n) {
  ValueId x = g_.inputs(n)[0], y = g_.node(n).out_begin;
  const Dims& a = dims(x);
  size_t axis = static_cast<size_t>(g_.attrs(n).get_int("axis"));
  bool log = g_.op(n).name == "LogSoftmax", doubles = dtype(x) == kF64;
  int64_t outer = count_of({a.begin(), a.begin() + static_cast<std::ptrdiff_t>(axis)}), extent = a[axis],
          inner = count_of({a.begin() + static_cast<std::ptrdiff_t>(axis) + 1, a.end()});
  begin("softmax " + dims_text({outer, extent, inner}) + std::to_string(dtype(x)) + std::to_string(log));
  if (!doubles) {
    kernels::Softening f{dtype(x), outer * inner, extent, inner, log, 1};
    if (extent <= 1024) offer("softmax, a warp a row", {launch(f, {of(x)}, {y}, blocks_for(f.rows * 32, 128), 128)});
    f.by_warp = 0;
    if (extent > 256) offer("softmax, a block a row", {launch(f, {of(x)}, {y}, f.rows, extent >= 512 ? 256 : 128)});
  }
  auto d = tensor_descriptor(dtype(x), {outer, extent, inner, 1});
  Ref in = read(of(x)), out = written(y);
  Scales s = scales(1, 0, doubles);
  offer("softmax, cuDNN", {[=](const Plan& plan, int copy) {
          const Device& dev = *plan.device;
          dev.check_cudnn(dev.api().cudnnSoftmaxForward(dev.cudnn(), log ? kDnnSoftmaxLog : kDnnSoftmaxAccurate, kDnnSoftmaxChannel, s[0], d.get(),
                                                        plan.pointer(in, copy), s[1], d.get(), plan.pointer(out, copy)),
                          "taking a softmax");
        }});
}

void Planner::plan_normalise(NodeId n) {
  const std::string& op = g_.op(n).name;
  auto in = g_.inputs(n);
  ValueId x = in[0], y = g_.node(n).out_begin;
  for (uint32_t o = 1; o < g_.node(n).out_count; ++o)
    if (used_at_all(y + o)) refuse(n, "its mean or deviation is asked for too");
  if (dtype(x) == kF64) refuse(n, "there is no kernel for float64");
  const AttrSet& attrs = g_.attrs(n);
  const Dims& a = dims(x);
  kernels::Normalising f{};
  double epsilon = attrs.get_float("epsilon", 1e-5);
  std::memcpy(&f.epsilon, &epsilon, sizeof epsilon);
  f.dtype = dtype(x);
  f.centred = op != "RMSNormalization";
  f.channels = 1;
  int64_t axis = op == "InstanceNormalization" ? 2 : attrs.get_int("axis", -1);
  if (axis < 0) axis += static_cast<int64_t>(a.size());
  f.extent = count_of({a.begin() + axis, a.end()});
  f.rows = count_of(a) / std::max<int64_t>(f.extent, 1);
  if (op == "InstanceNormalization") {
    f.by_row = 1;
    f.channels = a[1];
  }
  std::vector<Ref> operands{of(x)};
  for (size_t i = 1; i < 3; ++i) {
    bool given = i < in.size() && in[i] != kNoValue;
    (i == 1 ? f.scaled : f.shifted) = given;
    if (!given) {
      operands.push_back(of(x));
      continue;
    }
    if (dtype(in[i]) != dtype(x) || count_of(dims(in[i])) != (f.by_row ? f.channels : f.extent))
      refuse(n, "its scale or shift has the type " + type_text(g_.type(in[i])) + ", expected one number for each element that it normalises");
    operands.push_back(of(in[i]));
  }
  single("normalisation", [&] { return launch(f, operands, {y}, f.rows, f.extent >= 512 ? 256 : f.extent >= 128 ? 128 : 32); });
}

}  // namespace rlflow::gpu
