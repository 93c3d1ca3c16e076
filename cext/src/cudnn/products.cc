// Products in cuBLASLt, with what they take along: a row that is added, a Relu.
#include <algorithm>
#include <array>
#include <bit>

#include "routines.h"

namespace rlflow::gpu {

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
using Offsets = std::vector<std::array<int64_t, 3>>;  // bytes into a, b and d

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

// The innermost batch axis is a strided batch, further ones are loops: where each of their products starts.
Offsets offsets_of(const Dims& batch, const Dims& step_a, const Dims& step_b, int64_t size_d, int64_t item) {
  size_t axes = batch.size();
  int64_t inner = axes ? batch.back() : 1, outer = axes ? count_of(batch) / std::max<int64_t>(inner, 1) : 1;
  Offsets offsets;
  for (int64_t o = 0; o < outer; ++o) {
    int64_t rest = o, at_a = 0, at_b = 0;
    for (size_t i = axes > 0 ? axes - 1 : 0; i-- > 0;) {
      at_a += rest % batch[i] * step_a[i];
      at_b += rest % batch[i] * step_b[i];
      rest /= batch[i];
    }
    offsets.push_back({at_a * item, at_b * item, o * inner * size_d * item});
  }
  return offsets;
}

// The routines that cuBLASLt's heuristic proposes, the most promising first.
std::vector<MatmulHeuristic> routines_for(const Device& device, const Layouts& l, const Offsets& offsets, uint64_t workspace) {
  constexpr const char* kDoing = "describing a preference";
  const Api& api = device.api();
  void* raw = nullptr;
  device.check_cublas(api.cublasLtMatmulPreferenceCreate(&raw), kDoing);
  std::shared_ptr<void> preference(raw, [&api](void* d) { api.cublasLtMatmulPreferenceDestroy(d); });
  device.check_cublas(api.cublasLtMatmulPreferenceSetAttribute(raw, kBlasMaxWorkspace, &workspace, sizeof workspace), kDoing);
  // A loop over a batch starts in the middle of its tensors; routines must not count on more alignment than there is.
  uint32_t aligned[3] = {256, 256, 256};
  for (const auto& at : offsets)
    for (size_t i = 0; i < 3; ++i)
      while (at[i] % aligned[i] != 0) aligned[i] /= 2;
  const std::pair<int, uint32_t> alignments[] = {
      {kBlasAlignFirst, aligned[1]}, {kBlasAlignSecond, aligned[0]}, {kBlasAlignAddend, aligned[2]}, {kBlasAlignResult, aligned[2]}};
  for (const auto& [attribute, least] : alignments)
    device.check_cublas(api.cublasLtMatmulPreferenceSetAttribute(raw, attribute, &least, sizeof least), kDoing);
  std::vector<MatmulHeuristic> found(kProductTactics);
  int count = 0;
  device.check_cublas(api.cublasLtMatmulAlgoGetHeuristic(device.cublas(), l.descriptor.get(), l.b.get(), l.a.get(), l.d.get(), l.d.get(), raw,
                                                         kProductTactics, found.data(), &count),
                      "looking for a routine for a product");
  found.resize(static_cast<size_t>(count));
  return found;
}

}  // namespace

struct Planner::ProductLayouts : Layouts {};

Planner::ProductLayouts Planner::describe(const Product& p) {
  const Api& api = device_.api();
  bool doubles = p.dtype == kF64;
  int type = blas_type(p.dtype);
  int compute = doubles ? kBlasCompute64 : p.dtype == kF32 && plan_.settings.precision == Precision::kTf32 ? kBlasComputeTf32 : kBlasCompute32;
  ProductLayouts l;
  void* raw = nullptr;
  device_.check_cublas(api.cublasLtMatmulDescCreate(&raw, compute, doubles ? kBlasDouble : kBlasFloat), "describing a product");
  l.descriptor = std::shared_ptr<void>(raw, [&api](void* d) { api.cublasLtMatmulDescDestroy(d); });
  auto set = [&](int attribute, int32_t value) {
    device_.check_cublas(api.cublasLtMatmulDescSetAttribute(l.descriptor.get(), attribute, &value, sizeof value), "describing a product");
  };
  set(kBlasTransA, p.turned_b ? kBlasOpT : kBlasOpN);
  set(kBlasTransB, p.turned_a ? kBlasOpT : kBlasOpN);
  bool biased = p.bias != kNoRef;
  set(kBlasEpilogue, biased ? (p.relu ? kBlasEpilogueReluBias : kBlasEpilogueBias) : p.relu ? kBlasEpilogueRelu : kBlasEpilogueNone);
  size_t axes = p.batch.size();
  int64_t inner = axes ? p.batch.back() : 1, step_a = axes ? p.step_a.back() : 0, step_b = axes ? p.step_b.back() : 0;
  l.b = p.turned_b ? layout(device_, type, p.k, p.n, inner, step_b) : layout(device_, type, p.n, p.k, inner, step_b);
  l.a = p.turned_a ? layout(device_, type, p.m, p.k, inner, step_a) : layout(device_, type, p.k, p.m, inner, step_a);
  l.d = layout(device_, type, p.n, p.m, inner, p.m * p.n);
  return l;
}

// One sequence of steps for each tactic of cuBLASLt's heuristic, the most promising first.
std::vector<std::vector<Step>> Planner::product_steps(const Product& p) {
  const Layouts l = describe(p);
  const Offsets offsets = offsets_of(p.batch, p.step_a, p.step_b, p.m * p.n, static_cast<int64_t>(item_bytes(p.dtype)));
  const std::vector<MatmulHeuristic> found = routines_for(device_, l, offsets, plan_.settings.workspace);
  const std::string what = "routine for a product " + dims_text({p.m, p.k}) + " by " + dims_text({p.k, p.n}) + ".";
  if (found.empty()) throw Failure("cuBLASLt knows no " + what);
  const bool biased = p.bias != kNoRef;
  Ref a = read(p.a), b = read(p.b), d = written(p.d), bias = biased ? read(p.bias) : kNoRef;
  Scales s = scales(p.alpha, 0, p.dtype == kF64);
  std::vector<std::vector<Step>> all;
  for (const MatmulHeuristic& h : found) {
    if (h.state != 0) continue;
    want_workspace(h.workspace_size);
    all.push_back({[=](const Plan& plan, int copy) {
      const Device& dev = *plan.device;
      if (biased) {
        void* at = plan.pointer(bias, copy);
        dev.check_cublas(dev.api().cublasLtMatmulDescSetAttribute(l.descriptor.get(), kBlasBiasPointer, static_cast<const void*>(&at), sizeof at),
                         "giving a product its bias");
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
  if (all.empty()) throw Failure("cuBLASLt has no working " + what);
  return all;
}

// The extents of a product and how its operands lie.
Planner::Product Planner::product_at(NodeId n, const ProductOperands& o) {
  Dims a = dims(o.a), b = dims(o.b);
  bool turned_a = o.turned_a, turned_b = o.turned_b;
  Product p;
  p.dtype = dtype(g_.node(n).out_begin);
  if (!is_real(p.dtype) || dtype(o.a) != p.dtype || dtype(o.b) != p.dtype)
    refuse(n, "its operands have the types " + type_text(g_.type(o.a)) + " and " + type_text(g_.type(o.b)));
  p.alpha = o.alpha;
  if (g_.op(n).name == "Gemm") {
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
  p.a = of(o.a);
  p.b = of(o.b);
  set_batch(p, a, b);
  return p;
}

// The batch axes, broadcast to each other; neighbouring ones along which both operands move alike become one.
void Planner::set_batch(Product& p, const Dims& a, const Dims& b) {
  size_t ra = a.size(), rb = b.size(), batch = std::max(ra, rb) - 2;
  Dims sa = strides_of(a), sb = strides_of(b), extent(batch), step_a(batch, 0), step_b(batch, 0);
  for (size_t i = 0; i < batch; ++i) {
    int64_t ea = i + ra >= batch + 2 ? a[i + ra - 2 - batch] : 1, eb = i + rb >= batch + 2 ? b[i + rb - 2 - batch] : 1;
    extent[i] = std::max(ea, eb);
    if (ea > 1) step_a[i] = sa[i + ra - 2 - batch];
    if (eb > 1) step_b[i] = sb[i + rb - 2 - batch];
  }
  // Many products with one matrix are one product with more rows.
  int64_t together = count_of(extent);
  bool one_b = std::all_of(step_b.begin(), step_b.end(), [](int64_t s) { return s == 0; });
  bool dense_a = together == count_of({a.begin(), a.end() - 2});
  if (batch > 0 && one_b && !p.turned_a && dense_a) {
    p.m *= together;
    return;
  }
  for (size_t i = 0; i < batch; ++i) {
    if (extent[i] == 1) continue;
    if (!p.batch.empty() && p.step_a.back() == step_a[i] * extent[i] && p.step_b.back() == step_b[i] * extent[i]) {
      p.batch.back() *= extent[i];
      p.step_a.back() = step_a[i], p.step_b.back() = step_b[i];
    } else {
      p.batch.push_back(extent[i]);
      p.step_a.push_back(step_a[i]), p.step_b.push_back(step_b[i]);
    }
  }
}

void Planner::plan_matmul(NodeId n, const std::vector<NodeId>& tail, const ProductOperands& o) {
  ValueId y = g_.node(n).out_begin;
  Product p = product_at(n, o);
  begin("matmul " + dims_text({p.m, p.n, p.k, p.turned_a, p.turned_b}) + dims_text(p.batch) + dims_text(p.step_a) + dims_text(p.step_b) +
        std::to_string(p.dtype) + " " + g_.op(n).name + names(tail));
  auto row = [&](ValueId v) { return !dims(v).empty() && dims(v).back() == p.n && count_of(dims(v)) == p.n && dtype(v) == p.dtype; };
  bool addend = g_.op(n).name == "Gemm" && g_.inputs(n).size() > 2 && g_.inputs(n)[2] != kNoValue;
  Ref raw = y;
  if (addend && g_.attrs(n).get_float("beta") == 1.0 && row(g_.inputs(n)[2]) && dims(y).back() == p.n) {
    p.bias = of(g_.inputs(n)[2]);
  } else if (addend) {
    raw = temporary(p.dtype, dims(y));
  }
  // What the routine takes along: a row that is added, then a Relu.
  Tail walk(g_, tail, y, p.dtype != kF64 && (!addend || p.bias != kNoRef));
  if (p.bias == kNoRef && walk.follows("Add")) {
    ValueId other = walk.other_operand();
    if (other != walk.last() && row(other) && dims(g_.node(walk.node()).out_begin) == dims(y)) {
      p.bias = of(other);
      walk.take();
    }
  }
  p.relu = walk.take_relu();
  p.d = raw != y ? raw : walk.last();
  // Products first: what they write is read by the steps behind them.
  std::vector<std::vector<Step>> products = product_steps(p);
  std::vector<Step> after;
  if (raw != y) after.push_back(addend_step(n, raw));
  if (raw != y || !walk.rest().empty())
    for (Step& s : group_steps(walk.rest(), walk.ready())) after.push_back(std::move(s));
  std::string what = "product ";
  if (raw == y) {
    what += dims_text({p.m, p.k, p.n}) + (p.bias != kNoRef ? " + bias" : "") + (p.relu ? " + Relu" : "");
    what += (walk.rest().empty() ? "" : "," + names(walk.rest())) + ", tactic ";
  }
  for (size_t i = 0; i < products.size(); ++i) {
    products[i].insert(products[i].end(), after.begin(), after.end());
    offer(what + std::to_string(i), std::move(products[i]));
  }
}

// y = product + beta c of a Gemm, by a kernel of our own.
Step Planner::addend_step(NodeId n, Ref product) {
  const ValueId y = g_.node(n).out_begin, addend = g_.inputs(n)[2];
  const int type = dtype(y);
  kernels::Pointwise f{};
  Dims size = dims(y), straight = strides_of(size), c = dims(addend), own = strides_of(c), spread(size.size(), 0);
  for (size_t i = 0; i < c.size(); ++i)
    if (c[i] != 1) spread[size.size() - c.size() + i] = own[i];
  f.count = count_of(size);
  f.dims = static_cast<long long>(size.size());
  std::copy(size.begin(), size.end(), f.extent);
  f.ins = 2, f.outs = 1, f.steps = 3, f.wide = type == kF64;
  f.in[0].dtype = f.in[1].dtype = f.out[0].dtype = type;
  std::copy(straight.begin(), straight.end(), f.in[0].stride);
  std::copy(straight.begin(), straight.end(), f.out[0].stride);
  std::copy(spread.begin(), spread.end(), f.in[1].stride);
  f.code[0] = {kernels::kConst, 0, 0, 0, std::bit_cast<long long>(g_.attrs(n).get_float("beta"))};
  f.code[1] = {kernels::kMul, 1, 2, 0, 0};
  f.code[2] = {kernels::kAdd, 0, 3, 0, 0};
  f.result[0] = 4;
  return launch_pointwise(f, {product, of(addend)}, {y});
}

}  // namespace rlflow::gpu
