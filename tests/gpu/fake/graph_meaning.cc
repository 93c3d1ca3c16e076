// What the stand-in's descriptors mean: their rules, the engines for them, and their arithmetic.
#include <cmath>
#include <limits>
#include <numeric>

#include "graphs.h"

namespace fake {
namespace {

std::string text(int64_t n) { return std::to_string(n); }
int64_t bytes_of(int type) { return type == kDnnDouble ? 8 : type == kDnnFloat ? 4 : type == kDnnHalf || type == kDnnBFloat16 ? 2 : 0; }
const std::set<int> kModes = {kModeAdd, kModeRelu, kModeTanh, kModeSigmoid, kModeElu, kModeGelu, kModeGeluTanh};

Shape shape_of(const Described& d) {
  Shape s;
  s.id = d.ints(kTensorId).at(0);
  s.type = d.number(kTensorType);
  s.is_virtual = d.has(kTensorVirtual) && d.all<bool>(kTensorVirtual).at(0);
  s.dims = d.ints(kTensorDims), s.strides = d.ints(kTensorStrides);
  return s;
}
bool channels_last(const Shape& s) {
  return std::all_of(s.dims.begin() + 2, s.dims.end(), [](int64_t n) { return n == 1; }) || s.dims[1] == 1 ? false : s.strides[1] == 1;
}
bool either_layout(const Shape& s) {
  return std::all_of(s.dims.begin() + 2, s.dims.end(), [](int64_t n) { return n == 1; }) || s.dims[1] == 1;
}
bool same(const Shape& a, const Shape& b) { return a.type == b.type && a.is_virtual == b.is_virtual && a.dims == b.dims && a.strides == b.strides; }

}  // namespace

int64_t Shape::count() const { return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()); }
int64_t Shape::offset(int64_t element) const {
  int64_t at = 0;
  for (size_t d = dims.size(); d-- > 0;) {
    at += element % dims[d] * strides[d];
    element /= dims[d];
  }
  return at;
}

std::string wrong_tensor(const Described& d) {
  const Shape s = shape_of(d);
  const int64_t alignment = d.ints(kTensorAlignment).at(0), item = bytes_of(s.type);
  if (!item) return "a tensor has the unknown type " + text(s.type);
  if (s.dims.size() != s.strides.size()) return "a tensor has " + text(s.dims.size()) + " dims and " + text(s.strides.size()) + " strides";
  if (s.dims.size() < 4 || s.dims.size() > 5) return "a tensor has " + text(s.dims.size()) + " dims, expected 4 or 5";
  for (size_t i = 0; i < s.dims.size(); ++i)
    if (s.dims[i] < 1 || s.strides[i] < 1) return "a tensor has a dim or a stride below 1";
  if (alignment < item || alignment % item) return "a tensor of items of " + text(item) + " bytes is aligned to " + text(alignment);
  // Packed in some order: sorted by stride, each is the product of those below.
  std::vector<size_t> order(s.dims.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return std::pair(s.strides[a], s.dims[a]) < std::pair(s.strides[b], s.dims[b]); });
  int64_t step = 1;
  for (size_t i : order) {
    if (s.dims[i] != 1 && s.strides[i] != step) return "a tensor's strides leave gaps or overlap";
    step *= s.dims[i];
  }
  return "";
}

std::string wrong_convolution(const Described& d) {
  const auto axes = static_cast<size_t>(d.ints(kConvolutionAxes).at(0));
  for (int attribute : {kConvolutionDilations, kConvolutionStrides, kConvolutionPaddingBefore, kConvolutionPaddingAfter}) {
    const std::vector<int64_t> values = d.ints(attribute);
    const int64_t least = attribute == kConvolutionDilations || attribute == kConvolutionStrides ? 1 : 0;
    if (values.size() != axes)
      return "a convolution of " + text(static_cast<int64_t>(axes)) + " axes has " + text(static_cast<int64_t>(values.size())) +
             " numbers in attribute " + text(attribute);
    for (int64_t v : values)
      if (v < least) return "a convolution has " + text(v) + " in attribute " + text(attribute);
  }
  if (d.number(kConvolutionMode) != kDnnCrossCorrelation) return "a convolution turns its filter around";
  if (int compute = d.number(kConvolutionCompute); compute != kDnnFloat && compute != kDnnDouble)
    return "a convolution sums in type " + text(compute);
  return "";
}

std::string wrong_pointwise(const Described& d) {
  const int mode = d.number(kPointwiseMode);
  if (!kModes.contains(mode)) return "there is no pointwise mode " + text(mode);
  for (int attribute : {kPointwiseLowerClip, kPointwiseUpperClip, kPointwiseLowerSlope})
    if (d.has(attribute) && mode != kModeRelu) return "attribute " + text(attribute) + " is for Relu alone";
  if (d.has(kPointwiseEluAlpha) && mode != kModeElu) return "an alpha is for Elu alone";
  return "";
}

std::string wrong_convolve(const Described& d) {
  const Described& how = *d.one(kConvolveHow);
  const Shape x = shape_of(*d.one(kConvolveX)), w = shape_of(*d.one(kConvolveW)), y = shape_of(*d.one(kConvolveY));
  const std::vector<int64_t> before = how.ints(kConvolutionPaddingBefore), after = how.ints(kConvolutionPaddingAfter);
  const std::vector<int64_t> stride = how.ints(kConvolutionStrides), dilation = how.ints(kConvolutionDilations);
  const size_t rank = before.size() + 2;
  if (x.dims.size() != rank || w.dims.size() != rank || y.dims.size() != rank) return "a convolution's tensors have other axes than it has";
  const bool doubles = how.number(kConvolutionCompute) == kDnnDouble;
  for (int attribute : {kConvolveAlpha, kConvolveBeta})
    if ((d.values.at(attribute).type == kTypeDouble) != doubles) return "a convolution's scales are of another type than its sums";
  if (x.is_virtual || w.is_virtual) return "a convolution reads a virtual tensor";
  if (x.type != w.type || (x.type == kDnnDouble) != doubles) return "a convolution's operands are of other types than its sums";
  if (x.dims[1] % w.dims[1] || w.dims[0] % (x.dims[1] / w.dims[1])) return "a convolution's channels are not those of whole groups";
  if (y.dims[0] != x.dims[0] || y.dims[1] != w.dims[0]) return "a convolution's result has other images or channels";
  for (size_t i = 0; i < before.size(); ++i) {
    const int64_t extent = (x.dims[2 + i] + before[i] + after[i] - ((w.dims[2 + i] - 1) * dilation[i] + 1)) / stride[i] + 1;
    if (y.dims[2 + i] != extent) return "a convolution's result has the extent " + text(y.dims[2 + i]) + ", expected " + text(extent);
  }
  std::set<bool> layouts;
  for (const Shape& s : {x, w, y})
    if (!either_layout(s)) layouts.insert(channels_last(s));
  if (layouts.size() > 1) return "a convolution's tensors have two layouts";
  return "";
}

std::string wrong_apply(const Described& d) {
  const Shape x = shape_of(*d.one(kApplyX)), y = shape_of(*d.one(kApplyY));
  const bool binary = d.one(kApplyHow)->number(kPointwiseMode) == kModeAdd;
  if (binary != d.has(kApplyB)) return binary ? "an addition has one operand" : "an activation has two operands";
  if (x.dims != y.dims || x.strides != y.strides) return "a pointwise operation's result has other dims or strides than its operand";
  if (!binary) return "";
  const Shape b = shape_of(*d.one(kApplyB));
  if (b.dims.size() != y.dims.size()) return "a pointwise operation's operands have other axes";
  for (size_t i = 0; i < b.dims.size(); ++i)
    if (b.dims[i] != 1 && b.dims[i] != y.dims[i]) return "a pointwise operation's operands cannot be broadcast";
  if (b.dims == y.dims && b.strides != y.strides) return "a pointwise operation's operands have two layouts";
  return "";
}

std::string wrong_graph(const Described& d) {
  std::map<int64_t, Shape> seen;
  std::set<int64_t> made, read;
  for (const Call& call : calls_of(d)) {
    std::vector<Shape> ins = {call.x};
    if (call.convolves) ins.push_back(call.w);
    if (call.has_b) ins.push_back(call.b);
    for (const Shape& s : ins) {
      if (s.is_virtual && !made.contains(s.id)) return "the virtual tensor " + text(s.id) + " is read before it is made";
      read.insert(s.id);
    }
    ins.push_back(call.y);
    for (const Shape& s : ins)
      if (auto [at, fresh] = seen.try_emplace(s.id, s); !fresh && !same(at->second, s))
        return "the identity " + text(s.id) + " is that of two tensors";
    if (!made.insert(call.y.id).second) return "the tensor " + text(call.y.id) + " is made twice";
  }
  int64_t stored = 0;
  for (int64_t id : made) {
    if (seen[id].is_virtual && !read.contains(id)) return "nothing reads the virtual tensor " + text(id);
    stored += !seen[id].is_virtual;
  }
  return stored == 1 ? "" : "a graph stores " + text(stored) + " results, expected one";
}

std::string wrong_pack(const Described& d) {
  const std::vector<int64_t> ids = d.ints(kPackIds);
  if (ids.size() != d.pointers(kPackPointers).size()) return "a pack has other pointers than identities";
  if (std::set<int64_t>(ids.begin(), ids.end()).size() != ids.size()) return "a pack names an operand twice";
  return "";
}

std::vector<Call> calls_of(const Described& graph) {
  std::vector<Call> calls;
  for (const Described* d : graph.all<const Described*>(kGraphOperations)) {
    Call c;
    c.convolves = d->kind == kDescribeConvolve;
    c.x = shape_of(*d->one(c.convolves ? kConvolveX : kApplyX));
    c.y = shape_of(*d->one(c.convolves ? kConvolveY : kApplyY));
    const Described& how = *d->one(c.convolves ? kConvolveHow : kApplyHow);
    if (c.convolves) {
      c.w = shape_of(*d->one(kConvolveW));
      c.before = how.ints(kConvolutionPaddingBefore), c.stride = how.ints(kConvolutionStrides), c.dilation = how.ints(kConvolutionDilations);
      c.alpha = d->real(kConvolveAlpha, 1), c.beta = d->real(kConvolveBeta, 0);
    } else {
      c.mode = how.number(kPointwiseMode);
      c.has_b = d->has(kApplyB);
      if (c.has_b) c.b = shape_of(*d->one(kApplyB));
      c.lower = how.real(kPointwiseLowerClip, 0), c.upper = how.real(kPointwiseUpperClip, std::numeric_limits<double>::max());
      c.slope = how.real(kPointwiseLowerSlope, 0), c.elu = how.real(kPointwiseEluAlpha, 1);
    }
    calls.push_back(c);
  }
  return calls;
}

// As in life: the fast engines take a residual sum and a Relu along if there is a bias too, and the residual comes first. Sigmoid, Tanh
// and Elu have a slow engine alone; Gelu and a Relu with a slope have one that is compiled, with channels last. One engine wants too much
// workspace, one fails, and float32 is multiplied in tensor cores by some.
std::vector<std::shared_ptr<const Engine>> engines_for(const Described& graph, int mode) {
  const std::vector<Call> calls = calls_of(graph);
  const Call &first = calls.at(0), &end = calls.back();
  std::string form;
  for (size_t i = 1; i < calls.size(); ++i) form += !calls[i].has_b ? 'a' : calls[i].b.dims == calls[i].y.dims ? 'r' : 'b';
  const std::set<std::string> kForms = {"", "b", "rb", "ba", "rba"};
  std::vector<std::shared_ptr<const Engine>> found;
  if (!first.convolves || !kForms.contains(form)) return found;
  const bool ends = !form.empty() && form.back() == 'a', relu = !ends || (end.mode == kModeRelu && end.slope == 0);
  const bool compiles = ends && (end.mode == kModeGelu || end.mode == kModeGeluTanh || end.slope != 0);
  const bool last = channels_last(first.y), fast = mode == kHeuristicBest && relu && first.x.type != kDnnDouble;
  const double more = static_cast<double>(form.size());
  auto add = [&](int64_t index, int64_t workspace, double us, std::vector<int> notes, bool fails = false, std::vector<int> behaviour = {}) {
    found.push_back(std::make_shared<Engine>(Engine{index, workspace, us + more, fails, std::move(notes), std::move(behaviour)}));
  };
  if (compiles) {
    for (int i = 0; last && mode == kHeuristicBest && i < 2; ++i) add(7 + i, 0, 5, {}, false, {kNoteCompiles});
    return found;
  }
  if (fast) {
    add(2, int64_t{2} << 30, 5, {kNoteTensorCore});
    add(3, 0, last ? 7 : 14, {kNoteTensorCore});
    add(5, 0, 5, {}, true);
    add(1, 4096, last ? 19 : 20, {});
  }
  if (fast || mode == kHeuristicFallback) add(0, 0, 30, {});
  return found;
}

std::string bind(const Described& graph, const Described& pack, Operands& operands) {
  const std::vector<int64_t> ids = pack.ints(kPackIds);
  const std::vector<void*> pointers = pack.pointers(kPackPointers);
  std::set<int64_t> wanted;
  for (const Call& call : calls_of(graph))
    for (const Shape* s : {&call.x, &call.y, call.convolves ? &call.w : call.has_b ? &call.b : &call.x})
      if (!s->is_virtual) wanted.insert(s->id);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!wanted.contains(ids[i])) return "a pack names the tensor " + text(ids[i]) + ", which the graph does not store";
    if (!pointers[i]) return "the tensor " + text(ids[i]) + " has no pointer";
    if (reinterpret_cast<uintptr_t>(pointers[i]) % 16) return "the tensor " + text(ids[i]) + " is not aligned as it was described";
    operands[ids[i]] = pointers[i];
  }
  for (int64_t id : wanted)
    if (!operands.contains(id)) return "a pack does not name the tensor " + text(id);
  return "";
}

namespace {

double activated(const Call& c, double v) {
  if (c.mode == kModeRelu) return v > c.upper ? c.upper : v < c.lower ? c.lower + c.slope * (v - c.lower) : v;
  if (c.mode == kModeTanh) return std::tanh(v);
  if (c.mode == kModeSigmoid) return 1 / (1 + std::exp(-v));
  if (c.mode == kModeElu) return v < 0 ? c.elu * (std::exp(v) - 1) : v;
  if (c.mode == kModeGelu) return v / 2 * (1 + std::erf(v / std::sqrt(2.0)));
  return v / 2 * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
}

double convolved(const Call& c, const void* x, const void* w, int64_t element) {
  const size_t axes = c.before.size();
  std::vector<int64_t> at(axes);
  for (size_t d = axes; d-- > 0;) at[d] = element % c.y.dims[2 + d], element /= c.y.dims[2 + d];
  const int64_t out = element % c.y.dims[1], image = element / c.y.dims[1];
  const int64_t channels = c.w.dims[1], group = out / (c.w.dims[0] / (c.x.dims[1] / channels));
  const int64_t window = c.w.count() / (c.w.dims[0] * channels);
  double sum = 0;
  for (int64_t k = 0; k < window; ++k) {
    int64_t rest = k, from = image * c.x.strides[0], tap = out * c.w.strides[0];
    bool inside = true;
    for (size_t d = axes; d-- > 0;) {
      const int64_t step = rest % c.w.dims[2 + d], place = at[d] * c.stride[d] - c.before[d] + step * c.dilation[d];
      rest /= c.w.dims[2 + d];
      inside = inside && place >= 0 && place < c.x.dims[2 + d];
      from += place * c.x.strides[2 + d], tap += step * c.w.strides[2 + d];
    }
    for (int64_t i = 0; inside && i < channels; ++i)
      sum += get(x, c.x.type, from + (group * channels + i) * c.x.strides[1]) * get(w, c.w.type, tap + i * c.w.strides[1]);
  }
  return sum;
}

}  // namespace

void compute(const std::vector<Call>& calls, const Operands& operands) {
  std::vector<double> values;                // of the tensor made last, in the order of its dims
  for (const Call& c : calls) {
    const int64_t count = c.y.count();
    std::vector<double> next(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      double& v = next[static_cast<size_t>(i)];
      if (c.convolves) {
        v = c.alpha * convolved(c, operands.at(c.x.id), operands.at(c.w.id), i);
        if (c.beta != 0) v += c.beta * get(operands.at(c.y.id), c.y.type, c.y.offset(i));
        continue;
      }
      v = c.x.is_virtual ? values[static_cast<size_t>(i)] : get(operands.at(c.x.id), c.x.type, c.x.offset(i));
      if (!c.has_b) {
        v = activated(c, v);
        continue;
      }
      int64_t rest = i, at = 0;
      for (size_t d = c.b.dims.size(); d-- > 0;) {
        if (c.b.dims[d] != 1) at += rest % c.y.dims[d] * c.b.strides[d];
        rest /= c.y.dims[d];
      }
      v += get(operands.at(c.b.id), c.b.type, at);
    }
    values = std::move(next);
    if (c.y.is_virtual) continue;
    for (int64_t i = 0; i < count; ++i) put(operands.at(c.y.id), c.y.type, c.y.offset(i), values[static_cast<size_t>(i)]);
  }
}

}  // namespace fake
