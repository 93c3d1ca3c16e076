// Products in cuBLASLt, convolutions in cuDNN, with what they take along: a bias, a residual sum, an activation.
#include <algorithm>
#include <array>
#include <bit>

#include "plan.h"

namespace rlflow::gpu {
namespace {

constexpr int kTactics = 5;                  // alternatives of one kind that are timed

struct Scales {                              // alpha and beta as the routine wants them
  float f[2];
  double d[2];
  bool doubles;
  const void* operator[](int i) const { return doubles ? static_cast<const void*>(&d[i]) : &f[i]; }
};
Scales scales(double alpha, double beta, bool doubles) { return {{static_cast<float>(alpha), static_cast<float>(beta)}, {alpha, beta}, doubles}; }

}  // namespace

int Planner::blas_type(int dtype) const {
  return dtype == kF64 ? kBlasDouble : dtype == kF16 ? kBlasHalf : dtype == kBF16 ? kBlasBFloat16 : kBlasFloat;
}
int Planner::dnn_type(int dtype) const { return dtype == kF64 ? kDnnDouble : dtype == kF16 ? kDnnHalf : dtype == kBF16 ? kDnnBFloat16 : kDnnFloat; }

std::shared_ptr<void> Planner::tensor_descriptor(int dtype, const Dims& dims) {
  void* raw = nullptr;
  const Api& api = device_.api();
  device_.check_cudnn(api.cudnnCreateTensorDescriptor(&raw), "describing a tensor");
  std::shared_ptr<void> owned(raw, [&api](void* d) { api.cudnnDestroyTensorDescriptor(d); });
  Dims strides = strides_of(dims);
  std::vector<int> size(dims.begin(), dims.end()), step(strides.begin(), strides.end());
  device_.check_cudnn(api.cudnnSetTensorNdDescriptor(raw, dnn_type(dtype), static_cast<int>(size.size()), size.data(), step.data()),
                      "describing a tensor");
  return owned;
}

// d[i] = alpha * a[i] b[i] + bias, over a batch; matrices are row-major, `turned` ones are stored transposed.
struct Planner::Product {
  int dtype = kF32;
  Ref a, b, d, bias = kNoRef;
  bool turned_a = false, turned_b = false, relu = false;
  int64_t m = 1, n = 1, k = 1;
  Dims batch, step_a, step_b;                // extents of the batch axes, and how far the operands move along each (0: broadcast)
  double alpha = 1;
};

namespace {

struct Layouts {
  std::shared_ptr<void> descriptor, a, b, d;
};

// cuBLASLt thinks in columns: the row-major d = a b is, column by column, d' = b' a'.
std::shared_ptr<void> layout(const Device& device, int type, int64_t rows, int64_t columns, int64_t batch, int64_t step) {
  void* raw = nullptr;
  const Api& api = device.api();
  device.check_cublas(
      api.cublasLtMatrixLayoutCreate(&raw, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), std::max<int64_t>(rows, 1)),
      "describing a matrix");
  std::shared_ptr<void> owned(raw, [&api](void* l) { api.cublasLtMatrixLayoutDestroy(l); });
  int32_t count = static_cast<int32_t>(batch);
  if (batch > 1) {
    device.check_cublas(api.cublasLtMatrixLayoutSetAttribute(raw, kBlasBatchCount, &count, sizeof count), "describing a batch");
    device.check_cublas(api.cublasLtMatrixLayoutSetAttribute(raw, kBlasBatchStride, &step, sizeof step), "describing a batch");
  }
  return owned;
}

}  // namespace

// One sequence of steps for each tactic of cuBLASLt's heuristic, the most promising first.
std::vector<std::vector<Step>> Planner::product_steps(const Product& p) {
  const Api& api = device_.api();
  // The innermost batch axis is a strided batch; further ones are loops.
  size_t axes = p.batch.size();
  int64_t inner = axes ? p.batch.back() : 1, outer = axes ? count_of(p.batch) / std::max<int64_t>(inner, 1) : 1;
  bool doubles = p.dtype == kF64;
  int type = blas_type(p.dtype);
  int compute = doubles ? kBlasCompute64 : p.dtype == kF32 && plan_.settings.precision == Precision::kTf32 ? kBlasComputeTf32 : kBlasCompute32;
  Layouts l;
  void* raw = nullptr;
  device_.check_cublas(api.cublasLtMatmulDescCreate(&raw, compute, doubles ? kBlasDouble : kBlasFloat), "describing a product");
  l.descriptor = std::shared_ptr<void>(raw, [&api](void* d) { api.cublasLtMatmulDescDestroy(d); });
  auto set = [&](int attribute, const auto& value) {
    device_.check_cublas(api.cublasLtMatmulDescSetAttribute(l.descriptor.get(), attribute, &value, sizeof value), "describing a product");
  };
  int32_t first = p.turned_b ? kBlasOpT : kBlasOpN, second = p.turned_a ? kBlasOpT : kBlasOpN;
  set(kBlasTransA, first);
  set(kBlasTransB, second);
  bool biased = p.bias != kNoRef;
  int32_t epilogue = biased ? (p.relu ? kBlasEpilogueReluBias : kBlasEpilogueBias) : p.relu ? kBlasEpilogueRelu : kBlasEpilogueNone;
  set(kBlasEpilogue, epilogue);
  l.b = p.turned_b ? layout(device_, type, p.k, p.n, inner, axes ? p.step_b.back() : 0)
                   : layout(device_, type, p.n, p.k, inner, axes ? p.step_b.back() : 0);
  l.a = p.turned_a ? layout(device_, type, p.m, p.k, inner, axes ? p.step_a.back() : 0)
                   : layout(device_, type, p.k, p.m, inner, axes ? p.step_a.back() : 0);
  l.d = layout(device_, type, p.n, p.m, inner, p.m * p.n);
  device_.check_cublas(api.cublasLtMatmulPreferenceCreate(&raw), "describing a preference");
  std::shared_ptr<void> preference(raw, [&api](void* d) { api.cublasLtMatmulPreferenceDestroy(d); });
  uint64_t most = plan_.settings.workspace;
  device_.check_cublas(api.cublasLtMatmulPreferenceSetAttribute(raw, kBlasMaxWorkspace, &most, sizeof most), "describing a preference");
  int64_t item = static_cast<int64_t>(item_bytes(p.dtype));
  std::vector<std::array<int64_t, 3>> offsets;
  for (int64_t o = 0; o < outer; ++o) {
    int64_t rest = o, at_a = 0, at_b = 0;
    for (size_t i = axes > 0 ? axes - 1 : 0; i-- > 0;) {
      at_a += rest % p.batch[i] * p.step_a[i];
      at_b += rest % p.batch[i] * p.step_b[i];
      rest /= p.batch[i];
    }
    offsets.push_back({at_a * item, at_b * item, o * inner * p.m * p.n * item});
  }
  // A loop over a batch starts in the middle of its tensors; routines must not count on more alignment than there is.
  uint32_t aligned[3] = {256, 256, 256};
  for (const auto& at : offsets)
    for (size_t i = 0; i < 3; ++i)
      while (at[i] % aligned[i] != 0) aligned[i] /= 2;
  const std::pair<int, uint32_t> alignments[] = {
      {kBlasAlignFirst, aligned[1]}, {kBlasAlignSecond, aligned[0]}, {kBlasAlignAddend, aligned[2]}, {kBlasAlignResult, aligned[2]}};
  for (const auto& [attribute, least] : alignments)
    device_.check_cublas(api.cublasLtMatmulPreferenceSetAttribute(raw, attribute, &least, sizeof least), "describing a preference");
  std::vector<MatmulHeuristic> found(kTactics);
  int count = 0;
  device_.check_cublas(api.cublasLtMatmulAlgoGetHeuristic(device_.cublas(), l.descriptor.get(), l.b.get(), l.a.get(), l.d.get(), l.d.get(), raw,
                                                          kTactics, found.data(), &count),
                       "looking for a routine for a product");
  if (count == 0) throw Failure("cuBLASLt knows no routine for a product " + dims_text({p.m, p.k}) + " by " + dims_text({p.k, p.n}) + ".");
  Ref a = read(p.a), b = read(p.b), d = written(p.d), bias = biased ? read(p.bias) : kNoRef;
  Scales s = scales(p.alpha, 0, doubles);
  std::vector<std::vector<Step>> all;
  for (int t = 0; t < count; ++t) {
    if (found[static_cast<size_t>(t)].state != 0) continue;
    MatmulHeuristic h = found[static_cast<size_t>(t)];
    want_workspace(h.workspace_size);
    all.push_back({[=](const Plan& plan, int copy) {
      const Device& dev = *plan.device;
      if (biased) {
        void* at = plan.pointer(bias, copy);
        dev.check_cublas(dev.api().cublasLtMatmulDescSetAttribute(l.descriptor.get(), kBlasBiasPointer, &at, sizeof at), "giving a product its bias");
      }
      for (const auto& [at_a, at_b, at_d] : offsets) {
        char* result = static_cast<char*>(plan.pointer(d, copy)) + at_d;
        dev.check_cublas(dev.api().cublasLtMatmul(dev.cublas(), l.descriptor.get(), s[0], static_cast<char*>(plan.pointer(b, copy)) + at_b, l.b.get(),
                                                  static_cast<char*>(plan.pointer(a, copy)) + at_a, l.a.get(), s[1], result, l.d.get(), result,
                                                  l.d.get(), &h.algo, plan.scratch(), h.workspace_size, dev.stream()),
                         "multiplying");
      }
    }});
  }
  if (all.empty()) throw Failure("cuBLASLt has no working routine for a product " + dims_text({p.m, p.k}) + " by " + dims_text({p.k, p.n}) + ".");
  return all;
}

void Planner::plan_matmul(NodeId n, const std::vector<NodeId>& tail, ValueId va, ValueId vb, bool turned_a, bool turned_b, double alpha) {
  Dims a = dims(va), b = dims(vb);
  bool gemm = g_.op(n).name == "Gemm";
  ValueId y = g_.node(n).out_begin;
  Product p;
  p.dtype = dtype(y);
  if (!is_real(p.dtype) || dtype(va) != p.dtype || dtype(vb) != p.dtype)
    refuse(n, "its operands have the types " + type_text(g_.type(va)) + " and " + type_text(g_.type(vb)));
  p.alpha = alpha;
  if (gemm) {
    turned_a = turned_a != (g_.attrs(n).get_int("transA") != 0);
    turned_b = turned_b != (g_.attrs(n).get_int("transB") != 0);
    p.alpha *= g_.attrs(n).get_float("alpha");
  }
  if (a.size() == 1) a = {1, a[0]}, turned_a = false;
  if (b.size() == 1) b = {b[0], 1}, turned_b = false;
  size_t ra = a.size(), rb = b.size();
  p.m = turned_a ? a[ra - 1] : a[ra - 2];
  p.k = turned_a ? a[ra - 2] : a[ra - 1];
  p.n = turned_b ? b[rb - 2] : b[rb - 1];
  p.turned_a = turned_a;
  p.turned_b = turned_b;
  if (p.m * p.n * p.k == 0) refuse(n, "an operand is empty");
  // The batch axes, broadcast to each other.
  size_t batch = std::max(ra, rb) - 2;
  Dims sa = strides_of(a), sb = strides_of(b), extent(batch);
  std::vector<Dims> steps(2, Dims(batch, 0));
  for (size_t i = 0; i < batch; ++i) {
    int64_t ea = i + ra >= batch + 2 ? a[i + ra - 2 - batch] : 1, eb = i + rb >= batch + 2 ? b[i + rb - 2 - batch] : 1;
    extent[i] = std::max(ea, eb);
    if (ea > 1) steps[0][i] = sa[i + ra - 2 - batch];
    if (eb > 1) steps[1][i] = sb[i + rb - 2 - batch];
  }
  // Many products with one matrix are one product with more rows.
  int64_t together = count_of(extent);
  bool one_b = std::all_of(steps[1].begin(), steps[1].end(), [](int64_t s) { return s == 0; });
  bool dense_a = together == count_of({a.begin(), a.end() - 2});
  if (batch > 0 && one_b && !turned_a && dense_a) {
    p.m *= together;
  } else {
    Dims size;
    std::vector<Dims> moved(2);
    for (size_t i = 0; i < batch; ++i) {
      if (extent[i] == 1) continue;
      if (!size.empty() && moved[0].back() == steps[0][i] * extent[i] && moved[1].back() == steps[1][i] * extent[i]) {
        size.back() *= extent[i];
        moved[0].back() = steps[0][i], moved[1].back() = steps[1][i];
      } else {
        size.push_back(extent[i]);
        moved[0].push_back(steps[0][i]), moved[1].push_back(steps[1][i]);
      }
    }
    p.batch = size;
    p.step_a = moved[0];
    p.step_b = moved[1];
  }
  p.a = of(va);
  p.b = of(vb);
  begin("matmul " + dims_text({p.m, p.n, p.k, p.turned_a, p.turned_b}) + dims_text(p.batch) + dims_text(p.step_a) + dims_text(p.step_b) +
        std::to_string(p.dtype) + " " + g_.op(n).name + names(tail));
  // What the routine takes along: a row that is added, then a Relu.
  std::set<ValueId> ready;
  ValueId last = y;
  size_t next = 0;
  auto row = [&](ValueId v) { return !dims(v).empty() && dims(v).back() == p.n && count_of(dims(v)) == p.n && dtype(v) == p.dtype; };
  std::vector<Step> after;
  Ref raw = y;
  bool addend = gemm && g_.inputs(n).size() > 2 && g_.inputs(n)[2] != kNoValue;
  if (addend && g_.attrs(n).get_float("beta") == 1.0 && row(g_.inputs(n)[2]) && dims(y).back() == p.n) {
    p.bias = of(g_.inputs(n)[2]);
  } else if (addend) {
    raw = temporary(p.dtype, dims(y));
  }
  bool plain = p.dtype != kF64 && (!addend || p.bias != kNoRef);
  auto follows = [&](const char* op) {
    return plain && next < tail.size() && g_.op(tail[next]).name == op && used_once(last) && g_.users(last)[0].node == tail[next];
  };
  if (p.bias == kNoRef && follows("Add")) {
    auto in = g_.inputs(tail[next]);
    ValueId other = in[0] == last ? in[1] : in[0];
    if (other != last && row(other) && dims(g_.node(tail[next]).out_begin) == dims(y)) {
      p.bias = of(other);
      ready.insert(last);
      last = g_.node(tail[next++]).out_begin;
    }
  }
  if (follows("Relu")) {
    p.relu = true;
    ready.insert(last);
    last = g_.node(tail[next++]).out_begin;
  }
  std::vector<NodeId> rest(tail.begin() + static_cast<std::ptrdiff_t>(next), tail.end());
  p.d = raw != y ? raw : last;
  ready.insert(last);
  if (raw != y) {  // d + beta c, by a kernel of our own
    kernels::Pointwise f{};
    Dims size = dims(y), c = dims(g_.inputs(n)[2]), own = strides_of(c), spread(size.size(), 0);
    for (size_t i = 0; i < c.size(); ++i)
      if (c[i] != 1) spread[size.size() - c.size() + i] = own[i];
    double beta = g_.attrs(n).get_float("beta");
    f.count = count_of(size);
    f.dims = static_cast<long long>(size.size());
    std::copy(size.begin(), size.end(), f.extent);
    f.ins = 2, f.outs = 1, f.steps = 3, f.wide = p.dtype == kF64;
    f.in[0].dtype = f.in[1].dtype = f.out[0].dtype = p.dtype;
    Dims straight = strides_of(size);
    std::copy(straight.begin(), straight.end(), f.in[0].stride);
    std::copy(straight.begin(), straight.end(), f.out[0].stride);
    std::copy(spread.begin(), spread.end(), f.in[1].stride);
    f.code[0] = {kernels::kConst, 0, 0, 0, std::bit_cast<long long>(beta)};
    f.code[1] = {kernels::kMul, 1, 2, 0, 0};
    f.code[2] = {kernels::kAdd, 0, 3, 0, 0};
    f.result[0] = 4;
    // The temporary must be written before it is read, so the product's steps are made first.
    std::vector<std::vector<Step>> products = product_steps(p);
    after.push_back(launch(f, {raw, of(g_.inputs(n)[2])}, {y}, blocks_for(f.count)));
    for (Step& s : group_steps(rest, ready)) after.push_back(std::move(s));
    for (size_t i = 0; i < products.size(); ++i) {
      products[i].insert(products[i].end(), after.begin(), after.end());
      offer("product " + std::to_string(i), std::move(products[i]));
    }
    return;
  }
  std::vector<std::vector<Step>> products = product_steps(p);
  if (!rest.empty()) after = group_steps(rest, ready);
  std::string what = "product " + dims_text({p.m, p.k, p.n}) + (p.bias != kNoRef ? " + bias" : "") + (p.relu ? " + Relu" : "");
  if (!rest.empty()) what += "," + names(rest);
  for (size_t i = 0; i < products.size(); ++i) {
    products[i].insert(products[i].end(), after.begin(), after.end());
    offer(what + ", tactic " + std::to_string(i), std::move(products[i]));
  }
}

void Planner::plan_convolution(NodeId n, const std::vector<NodeId>& tail, ValueId vx, const IntVec& pads) {
  auto in = g_.inputs(n);
  ValueId vw = in[1], y = g_.node(n).out_begin;
  const AttrSet& attrs = g_.attrs(n);
  const Api& api = device_.api();
  Dims x = dims(vx), w = dims(vw), out = dims(y);
  size_t space = x.size() - 2;
  int type = dtype(y);
  if (!is_real(type) || dtype(vx) != type || dtype(vw) != type)
    refuse(n, "its operands have the types " + type_text(g_.type(vx)) + " and " + type_text(g_.type(vw)));
  if (space < 1 || space > 3) refuse(n, "it has " + std::to_string(space) + " spatial axes, expected 1 to 3");
  if (pads.size() != 2 * space) refuse(n, "its padding is not known");
  if (count_of(x) == 0 || count_of(out) == 0) refuse(n, "an operand is empty");
  IntVec strides = attrs.find_ints("strides") ? attrs.get_ints("strides") : IntVec(space, 1);
  IntVec dilations = attrs.find_ints("dilations") ? attrs.get_ints("dilations") : IntVec(space, 1);
  int group = static_cast<int>(attrs.get_int("group", 1));
  begin("conv " + dims_text(x) + dims_text(w) + dims_text({pads.begin(), pads.end()}) + dims_text({strides.begin(), strides.end()}) +
        dims_text({dilations.begin(), dilations.end()}) + std::to_string(group) + "," + std::to_string(type) + names(tail));
  // cuDNN pads both ends alike; other padding is done by a copy in front.
  std::vector<Step> before;
  Ref source = of(vx);
  std::vector<int> pad(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(space)), stride(strides.begin(), strides.end()),
      dilation(dilations.begin(), dilations.end());
  if (!std::equal(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(space), pads.begin() + static_cast<std::ptrdiff_t>(space))) {
    std::vector<std::vector<int64_t>> index(2 + space);
    for (size_t d = 0; d < 2 + space; ++d) {
      int64_t low = d < 2 ? 0 : pads[d - 2], high = d < 2 ? 0 : pads[d - 2 + space];
      for (int64_t i = -low; i < x[d] + high; ++i) index[d].push_back(i >= 0 && i < x[d] ? i : -1);
      x[d] += low + high;
    }
    Ref wider = temporary(type, x);
    plan_.tensors[wider].place = Tensor::Place::kArena;
    before.push_back(remap_step(source, wider, index, 0));
    source = wider;
    std::fill(pad.begin(), pad.end(), 0);
  }
  if (space == 1) {  // cuDNN's convolutions have two axes or three
    x.insert(x.begin() + 2, 1), w.insert(w.begin() + 2, 1), out.insert(out.begin() + 2, 1);
    pad.insert(pad.begin(), 0), stride.insert(stride.begin(), 1), dilation.insert(dilation.begin(), 1);
  }
  auto own = [&](int status, void* raw, int (*destroy)(void*)) {
    device_.check_cudnn(status, "describing a convolution");
    return std::shared_ptr<void>(raw, [destroy](void* d) { destroy(d); });
  };
  void* raw = nullptr;
  int made = api.cudnnCreateFilterDescriptor(&raw);
  auto filter = own(made, raw, api.cudnnDestroyFilterDescriptor);
  std::vector<int> size(w.begin(), w.end());
  device_.check_cudnn(api.cudnnSetFilterNdDescriptor(raw, dnn_type(type), kDnnNchw, static_cast<int>(size.size()), size.data()),
                      "describing a convolution");
  made = api.cudnnCreateConvolutionDescriptor(&raw);
  auto conv = own(made, raw, api.cudnnDestroyConvolutionDescriptor);
  int compute = type == kF64 ? kDnnDouble : kDnnFloat;
  device_.check_cudnn(api.cudnnSetConvolutionNdDescriptor(raw, static_cast<int>(pad.size()), pad.data(), stride.data(), dilation.data(),
                                                          kDnnCrossCorrelation, compute),
                      "describing a convolution");
  device_.check_cudnn(api.cudnnSetConvolutionGroupCount(raw, group), "describing a convolution");
  bool exact = type == kF32 && plan_.settings.precision == Precision::kFloat32;
  device_.check_cudnn(api.cudnnSetConvolutionMathType(raw, exact || type == kF64 ? kDnnFmaMath : kDnnTensorMath), "describing a convolution");
  auto from = tensor_descriptor(type, x), to = tensor_descriptor(type, out);

  std::vector<ConvolutionPerf> found(10);
  int count = 0;
  device_.check_cudnn(api.cudnnGetConvolutionForwardAlgorithm_v7(device_.cudnn(), from.get(), filter.get(), conv.get(), to.get(),
                                                                 static_cast<int>(found.size()), &count, found.data()),
                      "looking for a routine for a convolution");
  std::vector<std::pair<int, size_t>> routines;
  for (int i = 0; i < count && routines.size() < kTactics; ++i) {
    const ConvolutionPerf& f = found[static_cast<size_t>(i)];
    size_t bytes = 0;
    bool usable = f.status == 0 && std::none_of(routines.begin(), routines.end(), [&](const auto& r) { return r.first == f.algo; }) &&
                  api.cudnnGetConvolutionForwardWorkspaceSize(device_.cudnn(), from.get(), filter.get(), conv.get(), to.get(), f.algo, &bytes) == 0 &&
                  bytes <= plan_.settings.workspace;
    if (usable) routines.emplace_back(f.algo, bytes);
  }
  if (routines.empty()) refuse(n, "cuDNN has no routine for it within " + std::to_string(plan_.settings.workspace >> 20) + " MB of workspace");
  for (const auto& [algo, bytes] : routines) want_workspace(bytes);

  // What the fused routine takes along: a bias for each channel, a residual, a Relu.
  bool own_bias = in.size() > 2 && in[2] != kNoValue;
  Ref bias = own_bias ? of(in[2]) : kNoRef, residual = kNoRef;
  std::set<ValueId> ready;
  ValueId last = y;
  size_t next = 0;
  bool relu = false, fusable = type != kF64;
  auto other_of = [&](NodeId t) { return g_.inputs(t)[0] == last ? g_.inputs(t)[1] : g_.inputs(t)[0]; };
  auto advance = [&] {
    ready.insert(last);
    last = g_.node(tail[next++]).out_begin;
  };
  auto follows = [&](const char* op) {
    return fusable && next < tail.size() && g_.op(tail[next]).name == op && used_once(last) && g_.users(last)[0].node == tail[next];
  };
  auto channelwise = [&](ValueId v) {
    const Dims& d = dims(v);
    return d.size() >= space + 1 && d.size() <= space + 2 && d[d.size() - space - 1] == out[1] && count_of(d) == out[1] && dtype(v) == type;
  };
  if (!own_bias && follows("Add") && channelwise(other_of(tail[next]))) {
    bias = of(other_of(tail[next]));
    advance();
  }
  if (follows("Add") && other_of(tail[next]) != last && dims(other_of(tail[next])) == dims(y) && dtype(other_of(tail[next])) == type) {
    residual = of(other_of(tail[next]));
    advance();
  }
  if (follows("Relu")) {
    relu = true;
    advance();
  }
  ready.insert(last);
  bool fused = fusable && (bias != kNoRef || residual != kNoRef || relu);
  std::vector<NodeId> rest(tail.begin() + static_cast<std::ptrdiff_t>(next), tail.end());
  std::string name = "convolution " + dims_text(w) + (group > 1 ? " in " + std::to_string(group) + " groups" : "");
  Ref x_ref = read(source), w_ref = read(of(vw));

  if (fused) {
    if (bias == kNoRef) {  // the routine insists on one
      bias = constant(type, {out[1]}, std::string(static_cast<size_t>(out[1]) * item_bytes(type), '\0'));
    }
    Dims along(out.size(), 1);
    along[1] = out[1];
    auto bias_shape = tensor_descriptor(type, along);
    made = api.cudnnCreateActivationDescriptor(&raw);
    auto activation = own(made, raw, api.cudnnDestroyActivationDescriptor);
    device_.check_cudnn(api.cudnnSetActivationDescriptor(raw, relu ? kDnnRelu : kDnnIdentity, kDnnIgnoreNan, 0.0), "describing an activation");
    Ref b_ref = read(bias), z_ref = residual != kNoRef ? read(residual) : kNoRef, d_ref = written(last);
    std::vector<Step> after = rest.empty() ? std::vector<Step>{} : group_steps(rest, ready);
    Scales s = scales(1, residual != kNoRef ? 1 : 0, false);
    for (const auto& [chosen, bytes] : routines) {
      if (!relu && chosen != kDnnPrecompGemm) continue;  // the only routine that takes a bias without an activation
      int algo = chosen;
      size_t space_bytes = bytes;
      std::vector<Step> steps = before;
      steps.push_back([=](const Plan& plan, int copy) {
        const Device& dev = *plan.device;
        void* result = plan.pointer(d_ref, copy);
        const void* z = z_ref != kNoRef ? plan.pointer(z_ref, copy) : result;
        dev.check_cudnn(
            dev.api().cudnnConvolutionBiasActivationForward(dev.cudnn(), s[0], from.get(), plan.pointer(x_ref, copy), filter.get(),
                                                            plan.pointer(w_ref, copy), conv.get(), algo, plan.scratch(), space_bytes, s[1], to.get(),
                                                            z, bias_shape.get(), plan.pointer(b_ref, copy), activation.get(), to.get(), result),
            "convolving");
      });
      steps.insert(steps.end(), after.begin(), after.end());
      offer(name + " with bias" + (residual != kNoRef ? ", residual" : "") + (relu ? ", Relu" : "") + ", routine " + std::to_string(algo),
            std::move(steps));
    }
  }
  // The routine alone, and one kernel for all that follows.
  bool more = own_bias || !tail.empty();
  Ref bare = own_bias ? temporary(type, dims(y)) : y;
  Ref d_ref = written(bare);
  std::vector<Step> after;
  if (own_bias) {
    kernels::Pointwise f{};
    f.count = count_of(dims(y));
    Dims extent{dims(y)[0], dims(y)[1], count_of(dims(y)) / (dims(y)[0] * dims(y)[1])}, plain = strides_of(extent);
    f.dims = 3, f.ins = 2, f.outs = 1, f.steps = 1, f.wide = type == kF64;
    std::copy(extent.begin(), extent.end(), f.extent);
    f.in[0].dtype = f.in[1].dtype = f.out[0].dtype = type;
    std::copy(plain.begin(), plain.end(), f.in[0].stride);
    std::copy(plain.begin(), plain.end(), f.out[0].stride);
    f.in[1].stride[1] = 1;
    f.code[0] = {kernels::kAdd, 0, 1, 0, 0};
    f.result[0] = 2;
    after.push_back(launch(f, {bare, of(in[2])}, {y}, blocks_for(f.count)));
  }
  if (!tail.empty())
    for (Step& s : group_steps(tail, {y})) after.push_back(std::move(s));
  Scales s = scales(1, 0, type == kF64);
  for (const auto& [chosen, bytes] : routines) {
    int algo = chosen;
    size_t space_bytes = bytes;
    std::vector<Step> steps = before;
    steps.push_back([=](const Plan& plan, int copy) {
      const Device& dev = *plan.device;
      dev.check_cudnn(
          dev.api().cudnnConvolutionForward(dev.cudnn(), s[0], from.get(), plan.pointer(x_ref, copy), filter.get(), plan.pointer(w_ref, copy),
                                            conv.get(), algo, plan.scratch(), space_bytes, s[1], to.get(), plan.pointer(d_ref, copy)),
          "convolving");
    });
    steps.insert(steps.end(), after.begin(), after.end());
    offer(name + (more ? ", then a kernel for the rest" : "") + ", routine " + std::to_string(algo), std::move(steps));
  }
}

}  // namespace rlflow::gpu
