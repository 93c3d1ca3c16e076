// Values of the enumerator's operators: exact in the field, with a real number beside each element for order (see enumerate.h).
#include <algorithm>
#include <cmath>

#include "enumerate_field.h"

namespace rlflow::enumeration {

namespace {

// One operand in one world.
struct View {
  const Shape* shape;
  const uint64_t* residue;
  const double* real;
  Element at(int64_t k) const { return {residue[k], real[k]}; }
};
struct Sink {
  const Shape* shape;
  uint64_t* residue;
  double* real;
  void put(int64_t k, Element e) const { residue[k] = e.residue, real[k] = e.real; }
};
using Strides = std::array<int64_t, kMaxRank>;

Strides strides_of(const Shape& s) {
  Strides out{};
  int64_t step = 1;
  for (int k = s.rank - 1; k >= 0; --k) out[k] = step, step *= s.extent[k];
  return out;
}

// Visits the elements of `out` in order, with the offset that `strides` (one an axis of `out`) lead to in an operand.
template <class F>
void each(const Shape& out, const Strides& strides, int64_t start, F&& f) {
  std::array<int32_t, kMaxRank> at{};
  int64_t offset = start, n = out.count();
  for (int64_t k = 0; k < n; ++k) {
    f(k, offset);
    for (int d = out.rank - 1; d >= 0; --d) {
      offset += strides[d];
      if (++at[d] < out.extent[d]) break;
      offset -= strides[d] * out.extent[d];
      at[d] = 0;
    }
  }
}

Strides broadcast_strides(const Shape& x, const Shape& out) {
  Strides own = strides_of(x), s{};
  for (int k = 1; k <= x.rank; ++k) s[out.rank - k] = x.extent[x.rank - k] == 1 ? 0 : own[x.rank - k];
  return s;
}

const uint64_t kOneOverZero = 807653012915723019ULL;  // the one of synthesis.domains; no identity may rely on it

// count is small: the extents of a window or of a tensor.
Element divided(Element a, int64_t count) {
  static const std::array<uint64_t, 64> kInverse = [] {
    std::array<uint64_t, 64> out{};
    for (uint64_t k = 1; k < out.size(); ++k) out[k] = inverse(k);
    return out;
  }();
  uint64_t n = static_cast<uint64_t>(count);
  return {times(a.residue, n < kInverse.size() ? kInverse[n] : inverse(n)), a.real / static_cast<double>(count)};
}

Element combine(Kind kind, Element a, Element b) {
  switch (kind) {
    case Kind::kAdd: return {plus(a.residue, b.residue), a.real + b.real};
    case Kind::kSub: return {minus(a.residue, b.residue), a.real - b.real};
    case Kind::kMul: return {times(a.residue, b.residue), a.real * b.real};
    case Kind::kDiv: return {times(a.residue, b.residue ? inverse(b.residue) : kOneOverZero), a.real / b.real};
    case Kind::kMax: return less(a, b) ? b : a;
    default: return less(b, a) ? b : a;  // Min
  }
}

void binary(Kind kind, View a, View b, Sink out) {
  Strides sb = broadcast_strides(*b.shape, *out.shape);
  std::array<int64_t, 4096> at;  // max_elements is checked against it by the Enumerator
  each(*out.shape, sb, 0, [&](int64_t k, int64_t offset) { at[k] = offset; });
  each(*out.shape, broadcast_strides(*a.shape, *out.shape), 0,
       [&](int64_t k, int64_t offset) { out.put(k, combine(kind, a.at(offset), b.at(at[k]))); });
}

Element pointwise(const Template& t, int64_t zero, Element a) {
  if (t.kind == Kind::kNeg) return {minus(0, a.residue), -a.real};
  if (t.kind == Kind::kRelu) return a.real < 0 || a.residue == 0 ? Element{0, 0.0} : a;
  // As odd (Tanh), or as symmetric about a half (Sigmoid), as the prover knows them: rlflow.synthesis.domains.
  auto value = [&](uint64_t x) { return zero && x == 0 ? 0 : reduce(keyed(mix(t.key), x, 0)); };
  uint64_t odd = minus(value(a.residue), value(minus(0, a.residue)));
  if (zero) return {odd, std::tanh(a.real)};
  return {plus((kPrime + 1) / 2, odd), 1.0 / (1.0 + std::exp(-a.real))};
}

void matmul(View a, View b, Sink out) {
  const Shape &x = *a.shape, &y = *b.shape, &o = *out.shape;
  int64_t rows = x.extent[x.rank - 2], inner = x.extent[x.rank - 1], columns = y.extent[y.rank - 1];
  Shape lead = o, lead_a = x, lead_b = y;
  lead.rank -= 2, lead_a.rank -= 2, lead_b.rank -= 2;
  std::array<int64_t, 4096> at;
  each(lead, broadcast_strides(lead_b, lead), 0, [&](int64_t k, int64_t offset) { at[k] = offset; });
  each(lead, broadcast_strides(lead_a, lead), 0, [&](int64_t k, int64_t offset) {
    int64_t pa = offset * rows * inner, pb = at[k] * inner * columns, po = k * rows * columns;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        uint64_t sum = 0;
        double real = 0;
        for (int64_t m = 0; m < inner; ++m) {
          sum = plus(sum, times(a.residue[pa + i * inner + m], b.residue[pb + m * columns + j]));
          real += a.real[pa + i * inner + m] * b.real[pb + m * columns + j];
        }
        out.put(po + i * columns + j, {sum, real});
      }
  });
}

// The operand offsets under a window, for one output position; `f(tap, offset)` for those inside.
template <class F>
void taps(const Shape& x, const int64_t* w, int64_t row, int64_t column, F&& f) {
  for (int64_t i = 0; i < w[0]; ++i)
    for (int64_t j = 0; j < w[1]; ++j) {
      int64_t r = row * w[6] + i - w[2], c = column * w[7] + j - w[3];
      if (r >= 0 && r < x.extent[2] && c >= 0 && c < x.extent[3]) f(i * w[1] + j, r * x.extent[3] + c);
    }
}

template <class F>
void planes(const Shape& o, F&& f) {  // f(batch, channel, row, column, index)
  int64_t index = 0;
  for (int n = 0; n < o.extent[0]; ++n)
    for (int c = 0; c < o.extent[1]; ++c)
      for (int r = 0; r < o.extent[2]; ++r)
        for (int s = 0; s < o.extent[3]; ++s) f(n, c, r, s, index++);
}

void convolution(View x, View k, const int64_t* a, Sink out) {
  const Shape &xs = *x.shape, &ks = *k.shape;
  int64_t area = int64_t{xs.extent[2]} * xs.extent[3], taps_count = a[1] * a[2], inner = ks.extent[1], per_group = ks.extent[0] / a[0];
  planes(*out.shape, [&](int n, int c, int r, int s, int64_t index) {
    uint64_t sum = 0;
    double real = 0;
    int64_t first = n * xs.extent[1] + c / per_group * inner;
    taps(xs, a + 1, r, s, [&](int64_t tap, int64_t offset) {
      for (int64_t m = 0; m < inner; ++m) {
        int64_t px = (first + m) * area + offset, pk = (c * inner + m) * taps_count + tap;
        sum = plus(sum, times(x.residue[px], k.residue[pk]));
        real += x.real[px] * k.real[pk];
      }
    });
    out.put(index, {sum, real});
  });
}

void pool(const Template& t, View x, const int64_t* a, Sink out) {
  const Shape& xs = *x.shape;
  int64_t area = int64_t{xs.extent[2]} * xs.extent[3];
  planes(*out.shape, [&](int n, int c, int r, int s, int64_t index) {
    Element best{0, 0};
    int64_t count = 0;
    taps(xs, a, r, s, [&](int64_t, int64_t offset) {
      Element e = x.at((int64_t{n} * xs.extent[1] + c) * area + offset);
      best = !count ? e : combine(t.kind == Kind::kMaxPool ? Kind::kMax : Kind::kAdd, best, e);
      ++count;
    });
    if (t.kind == Kind::kAveragePool) {
      if (a[8]) count = a[0] * a[1];
      best = divided(best, std::max<int64_t>(count, 1));
    }
    out.put(index, best);
  });
}

void concat(View x, View y, int64_t axis, Sink out) {
  Strides so = strides_of(*out.shape);
  each(*x.shape, so, 0, [&](int64_t k, int64_t offset) { out.put(offset, x.at(k)); });
  each(*y.shape, so, so[axis] * x.shape->extent[axis], [&](int64_t k, int64_t offset) { out.put(offset, y.at(k)); });
}

void move(const Template& t, View x, const std::vector<int64_t>& a, Sink out) {
  Strides sx = strides_of(*x.shape), s = sx;
  int64_t start = 0;
  if (t.kind == Kind::kTranspose)
    for (int k = 0; k < x.shape->rank; ++k) s[k] = sx[a[k]];
  if (t.kind == Kind::kSlice) start = sx[a[0]] * a[1];
  each(*out.shape, s, start, [&](int64_t k, int64_t offset) { out.put(k, x.at(offset)); });
}

void pad(View x, const std::vector<int64_t>& a, Sink out) {
  Strides so = strides_of(*out.shape);
  int64_t n = out.shape->count(), start = 0;
  for (int64_t k = 0; k < n; ++k) out.put(k, {0, 0.0});
  for (int k = 0; k < x.shape->rank; ++k) start += so[k] * a[k];
  each(*x.shape, so, start, [&](int64_t k, int64_t offset) { out.put(offset, x.at(k)); });
}

void upsample(View x, const std::vector<int64_t>& a, Sink out) {
  Strides sx = strides_of(*x.shape), so = strides_of(*out.shape);
  int64_t n = out.shape->count();
  for (int64_t k = 0; k < n; ++k) {
    int64_t offset = 0, rest = k;
    for (int d = 0; d < out.shape->rank; ++d) offset += rest / so[d] / a[d] * sx[d], rest %= so[d];
    out.put(k, x.at(offset));
  }
}

void reduction(const Template& t, View x, const std::vector<int64_t>& a, Sink out) {
  Shape kept = *x.shape, inside = *x.shape;
  for (int k = 0; k < inside.rank; ++k) inside.extent[k] = 1;
  for (size_t k = 1; k < a.size(); ++k) inside.extent[a[k]] = x.shape->extent[a[k]], kept.extent[a[k]] = 1;
  Strides sx = strides_of(*x.shape);
  int64_t count = inside.count();
  each(kept, sx, 0, [&](int64_t k, int64_t base) {
    Element total = x.at(base);
    each(inside, sx, base, [&](int64_t j, int64_t offset) {
      if (j) total = combine(t.kind == Kind::kReduceMax ? Kind::kMax : Kind::kAdd, total, x.at(offset));
    });
    if (t.kind == Kind::kReduceMean) total = divided(total, count);
    out.put(k, total);
  });
}

// An arbitrary function of each row and the position in it; the real part is softmax.
void rows(const Template& t, View x, int64_t axis, Sink out) {
  Shape others = *x.shape;
  int64_t length = others.extent[axis], step = strides_of(*x.shape)[axis];
  others.extent[axis] = 1;
  each(others, strides_of(*x.shape), 0, [&](int64_t, int64_t base) {
    uint64_t state = mix(t.key);
    double total = 0;
    for (int64_t j = 0; j < length; ++j) {
      state = mix(state * 0x2545F4914F6CDD1DULL ^ mix(x.residue[base + j * step]));
      total += std::exp(x.real[base + j * step]);
    }
    state = mix(state ^ static_cast<uint64_t>(length));
    for (int64_t j = 0; j < length; ++j)
      out.put(base + j * step, {reduce(keyed(keyed(mix(t.key), state, 0), static_cast<uint64_t>(j), 1)), std::exp(x.real[base + j * step]) / total});
  });
}

void compute_one(const Template& t, const View* x, const std::vector<int64_t>& a, Sink out, Sink second) {
  switch (t.kind) {
    case Kind::kMatMul: return matmul(x[0], x[1], out);
    case Kind::kAdd:
    case Kind::kSub:
    case Kind::kMul:
    case Kind::kDiv:
    case Kind::kMax:
    case Kind::kMin: return binary(t.kind, x[0], x[1], out);
    case Kind::kNeg:
    case Kind::kRelu:
    case Kind::kUnary: {
      int64_t n = out.shape->count();
      for (int64_t k = 0; k < n; ++k) out.put(k, pointwise(t, t.kind == Kind::kUnary && a[0], x[0].at(k)));
      return;
    }
    case Kind::kConv: return convolution(x[0], x[1], a.data(), out);
    case Kind::kAveragePool:
    case Kind::kMaxPool: return pool(t, x[0], a.data(), out);
    case Kind::kConcat: return concat(x[0], x[1], a[0], out);
    case Kind::kSplit: {
      Strides s = strides_of(*x[0].shape);
      each(*out.shape, s, 0, [&](int64_t k, int64_t offset) { out.put(k, x[0].at(offset)); });
      each(*out.shape, s, s[a[0]] * out.shape->extent[a[0]], [&](int64_t k, int64_t offset) { second.put(k, x[0].at(offset)); });
      return;
    }
    case Kind::kPad: return pad(x[0], a, out);
    case Kind::kUpsample: return upsample(x[0], a, out);
    case Kind::kReduceSum:
    case Kind::kReduceMean:
    case Kind::kReduceMax: return reduction(t, x[0], a, out);
    case Kind::kRows: return rows(t, x[0], a[0], out);
    case Kind::kScaledRows: {
      rows(t, x[0], a[0], out);
      int64_t n = out.shape->count(), length = x[1].shape->count();
      for (int64_t k = 0; k < n; ++k) out.put(k, combine(Kind::kMul, {out.residue[k], out.real[k]}, x[1].at(k % length)));
      return;
    }
    default: return move(t, x[0], a, out);
  }
}

Sink sink(Value& v, int w) { return {&v.shape[w], v.residue.data() + v.begin[w], v.real.data() + v.begin[w]}; }

}  // namespace

void compute(const Template& t, const Value* const* operands, int worlds, Value* outputs) {
  for (int j = 0; j < t.outputs; ++j) {
    outputs[j].residue.resize(outputs[j].begin[worlds]);
    outputs[j].real.resize(outputs[j].begin[worlds]);
  }
  for (int w = 0; w < worlds; ++w) {
    View views[kMaxOperands];
    for (int k = 0; k < t.arity; ++k) {
      const Value& v = *operands[k];
      views[k] = {&v.shape[w], v.residue.data() + v.begin[w], v.real.data() + v.begin[w]};
    }
    compute_one(t, views, t.attributes[w], sink(outputs[0], w), t.outputs == 2 ? sink(outputs[1], w) : Sink{});
  }
  for (int j = 0; j < t.outputs; ++j) fingerprint(outputs[j], worlds);
}

void fingerprint(Value& v, int worlds) {
  Hasher h(0x65);
  for (int w = 0; w < worlds; ++w) {
    h.add(v.shape[w].rank);
    for (int k = 0; k < v.shape[w].rank; ++k) h.add(static_cast<uint64_t>(v.shape[w].extent[k]));
  }
  for (uint32_t k = 0; k < v.begin[worlds]; ++k) h.add(v.residue[k]);
  v.print = h.finish();
}

}  // namespace rlflow::enumeration
