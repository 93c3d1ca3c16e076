// The loops, written once; a file per instruction set includes this inside a namespace of its own, after it has switched the instruction set
// on. So nothing here may call a library's template or inline function: the linker would keep one instance of it for all.
//
// The includer defines RLFLOW_POLICY_ROWS: how many rows' sums one inner loop keeps in registers.

#define RLFLOW_INLINE inline __attribute__((always_inline))

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), may_alias));
typedef float Unaligned __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

RLFLOW_INLINE Vector load(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
RLFLOW_INLINE void store(float* to, const Vector& value) { *reinterpret_cast<Unaligned*>(to) = value; }

RLFLOW_INLINE float total(const Vector& value) {
  float sum = 0;
  for (int64_t j = 0; j < kLanes; ++j) sum += value[j];
  return sum;
}

template <int ROWS>
RLFLOW_INLINE void product_rows(const Product& p, int64_t row) {
  const float* x = p.x + row * p.ldx;
  float* y = p.y + row * p.ldy;
  for (int64_t o = 0; o < p.out; o += kLanes) {
    const Vector bias = load(p.bias + o);
    Vector sums[ROWS];
    for (int r = 0; r < ROWS; ++r) sums[r] = p.add ? bias + load(y + r * p.ldy + o) : bias;
    for (int64_t i = 0; i < p.in; ++i) {
      const Vector w = load(p.weight + i * p.out + o);
      for (int r = 0; r < ROWS; ++r) sums[r] += w * x[r * p.ldx + i];
    }
    for (int r = 0; r < ROWS; ++r) store(y + r * p.ldy + o, sums[r]);
  }
}

void product(const Product& p) {
  int64_t row = 0;
  for (; row + RLFLOW_POLICY_ROWS <= p.rows; row += RLFLOW_POLICY_ROWS) product_rows<RLFLOW_POLICY_ROWS>(p, row);
  for (; row < p.rows; ++row) product_rows<1>(p, row);
  if (!p.relu) return;
  for (row = 0; row < p.rows; ++row) {
    float* y = p.y + row * p.ldy;
    for (int64_t o = 0; o < p.out; ++o) y[o] = y[o] > 0.0f ? y[o] : 0.0f;
  }
}

void normalise(const Normalisation& n) {
  const float count = static_cast<float>(n.width);
  for (int64_t row = 0; row < n.rows; ++row) {
    const float* x = n.x + row * n.ldx;
    float* y = n.y + row * n.ldy;
    Vector sum = {}, squares = {};
    for (int64_t j = 0; j < n.stride; j += kLanes) sum += load(x + j);
    const float mean = total(sum) / count;
    for (int64_t j = 0; j < n.stride; j += kLanes) {
      const Vector off = (load(x + j) - mean) * load(n.mask + j);
      squares += off * off;
    }
    const float scale = 1.0f / __builtin_sqrtf(total(squares) / count + 1e-5f);
    for (int64_t j = 0; j < n.stride; j += kLanes) store(y + j, (load(x + j) - mean) * scale * load(n.weight + j) + load(n.bias + j));
  }
}

void attend(const Edges& e, const float* score, float* scores, float* scratch) {
  for (int64_t k = 0; k < e.count; ++k) {
    const float* sent = e.sent + e.sender[k] * e.ld;
    const float* received = e.received + e.receiver[k] * e.ld;
    const float* along = e.along + k * e.ld_along;
    for (int64_t j = 0; j < e.stride; j += kLanes) {
      const Vector heard = load(sent + j) + load(received + j) + load(along + j), low = heard * 0.2f;
      store(scratch + j, (heard > low ? heard : low) * load(score + j));
    }
    const float* part = scratch;
    for (int64_t head = 0; head < e.heads; ++head, part += e.head_size) {
      float sum = 0;
      for (int64_t j = 0; j < e.head_size; ++j) sum += part[j];
      scores[k * e.heads + head] = sum;
    }
  }
}

void gather(const Edges& e, const float* weights, float* out, int64_t ld_out, float* scratch) {
  for (int64_t j = 0; j < e.stride; ++j) scratch[j] = 0;
  for (int64_t k = 0; k < e.count; ++k) {
    const float* sent = e.sent + e.sender[k] * e.ld;
    const float* along = e.along + k * e.ld_along;
    float* to = out + e.receiver[k] * ld_out;
    float* part = scratch;
    for (int64_t head = 0; head < e.heads; ++head, part += e.head_size)
      for (int64_t j = 0; j < e.head_size; ++j) part[j] = weights[k * e.heads + head];
    for (int64_t j = 0; j < e.stride; j += kLanes) store(to + j, load(to + j) + load(scratch + j) * (load(sent + j) + load(along + j)));
  }
}

void hear(const Edges& e, float* out, int64_t ld_out) {
  for (int64_t k = 0; k < e.count; ++k) {
    const float* sent = e.sent + e.sender[k] * e.ld;
    const float* received = e.received + e.receiver[k] * e.ld;
    const float* along = e.along + k * e.ld_along;
    float* to = out + e.receiver[k] * ld_out;
    for (int64_t j = 0; j < e.stride; j += kLanes) {
      const Vector heard = load(sent + j) + load(received + j) + load(along + j), nothing = {};
      store(to + j, load(to + j) + (heard > nothing ? heard : nothing));
    }
  }
}

constexpr Kernels kTable = {product, normalise, attend, gather, hear};
