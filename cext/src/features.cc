#include "rlflow/features.h"

#include <algorithm>
#include <cmath>

namespace rlflow {
namespace {

// clang-format off
enum NodeColumn { kDims = 0, kRank = 4, kElements, kOutputs, kOperands, kConstants, kConstantElements, kUsers, kIsOutput, kShare, kPrice, kIsHead, kNoPriceKnown, kAttributes };
// clang-format on
static_assert(kAttributes + kAttributeSlots == kNodeFeatures);

float log2_of(double v) { return static_cast<float>(std::log2(std::max(v, 1.0))); }
double plain(Int dim) { return is_plain(dim) && dim > 0 ? static_cast<double>(dim) : 1.0; }

// log2 of the last dims, the rank and log2 of the elements, each scaled to about one: kShapeDims + 2 numbers. Symbols count as 1.
void write_shape(const TensorType& type, float* out) {
  double elements = 1;
  for (Int dim : type.dims) elements *= plain(dim);
  const int shown = std::min<int>(kShapeDims, static_cast<int>(type.dims.size()));
  for (int i = 0; i < shown; ++i) out[kShapeDims - 1 - i] = log2_of(plain(type.dims[type.dims.size() - 1 - i])) / 8;
  out[kShapeDims] = static_cast<float>(type.rank) / 4;
  out[kShapeDims + 1] = log2_of(elements) / 16;
}

double elements_of(const TensorType& type) {
  double n = 1;
  for (Int dim : type.dims) n *= plain(dim);
  return n;
}

uint64_t fnv1a(std::string_view text, uint64_t h = 1469598103934665603ull) {
  for (unsigned char c : text) h = (h ^ c) * 1099511628211ull;
  return h;
}

void add_hashed(uint64_t h, double value, float* out) {
  h ^= h >> 29;
  h *= 0xbf58476d1ce4e5b9ull;
  h ^= h >> 32;
  const float size = log2_of(1 + std::fabs(value)) / 8, sign = (h >> 60 & 1) ? -1.0f : 1.0f;
  out[h % kAttributeSlots] += sign * (value < 0 ? -size : size);
}

// Every attribute at its hashed place, a list element by element; a word counts as one at the place of name and word.
void write_attributes(const AttrSet& attrs, float* out) {
  for (const auto& [name, value] : attrs.items) {
    const uint64_t h = fnv1a(name);
    if (const Int* i = std::get_if<Int>(&value)) add_hashed(h, is_plain(*i) ? static_cast<double>(*i) : 0.0, out);
    if (const double* d = std::get_if<double>(&value)) add_hashed(h, *d, out);
    if (const std::string* s = std::get_if<std::string>(&value)) add_hashed(fnv1a(*s, h), 1, out);
    if (const IntVec* v = std::get_if<IntVec>(&value))
      for (size_t k = 0; k < v->size(); ++k) add_hashed(h + 31 * (k + 1), is_plain((*v)[k]) ? static_cast<double>((*v)[k]) : 0.0, out);
    if (const auto* v = std::get_if<std::vector<double>>(&value))
      for (size_t k = 0; k < v->size(); ++k) add_hashed(h + 31 * (k + 1), (*v)[k], out);
  }
}

void write_price(const RegionMap& m, NodeId n, float* out) {
  const NodeId head = m.head.size() > n ? m.head[n] : kNoNode;
  const Picoseconds price = head == kNoNode ? kNoPrice : m.price[head];
  if (price == kNoPrice) {
    out[kNoPriceKnown] = 1;
    return;
  }
  out[kShare] = m.known > 0 ? static_cast<float>(static_cast<double>(price) / static_cast<double>(m.known)) : 0.0f;
  out[kPrice] = static_cast<float>((std::log10(to_ms(price) + 1e-6) + 6) / 6);
  out[kIsHead] = head == n;
}

void write_node(const Graph& g, NodeId n, float* out) {
  const Node& node = g.node(n);
  const ValueId first = node.out_begin;
  if (node.out_count > 0) {
    write_shape(type_of(g.type(first)), out + kDims);
    out[kUsers] = static_cast<float>(g.users(first).size()) / 4;
  }
  out[kOutputs] = static_cast<float>(node.out_count) / 4;
  double weights = 0;
  for (ValueId v : g.inputs(n)) {
    if (v == kNoValue) continue;
    const bool constant = g.is_const(v);
    out[constant ? kConstants : kOperands] += 0.25f;
    if (constant) weights += elements_of(type_of(g.type(v)));
  }
  out[kConstantElements] = log2_of(1 + weights) / 16;
  for (ValueId v = first; v < first + node.out_count; ++v)
    if (g.output_uses(v) > 0) out[kIsOutput] = 1;
  write_attributes(attrs_of(node.attrs), out + kAttributes);
}

void add_edges(const Graph& g, NodeId n, GraphFeatures& f) {
  const auto inputs = g.inputs(n);
  for (size_t slot = 0; slot < inputs.size(); ++slot) {
    const ValueId v = inputs[slot];
    if (v == kNoValue || f.row[g.producer(v)] < 0) continue;
    f.source.push_back(f.row[g.producer(v)]);
    f.target.push_back(f.row[n]);
    f.edge.resize(f.edge.size() + kEdgeFeatures);
    float* out = f.edge.data() + f.edge.size() - kEdgeFeatures;
    write_shape(type_of(g.type(v)), out);
    out[kShapeDims + 2] = static_cast<float>(std::min<size_t>(slot, 8)) / 4;
    out[kShapeDims + 3] = static_cast<float>(std::min(g.output_index(v), 8)) / 4;
  }
}

}  // namespace

GraphFeatures graph_features(const Graph& g, const Pricer* prices) {
  GraphFeatures f;
  f.row.assign(g.node_capacity(), -1);
  for (NodeId n : g.order())
    if (!(g.node(n).flags & kConst)) {
      f.row[n] = static_cast<int32_t>(f.op.size());
      f.op.push_back(g.node(n).op);
      f.dtype.push_back(g.node(n).out_count ? type_of(g.type(g.node(n).out_begin)).dtype : 0);
    }
  f.node.assign(f.op.size() * kNodeFeatures, 0.0f);
  const RegionMap map = prices ? prices->map(g) : RegionMap{};
  for (NodeId n : g.order()) {
    if (f.row[n] < 0) continue;
    float* out = f.node.data() + static_cast<size_t>(f.row[n]) * kNodeFeatures;
    write_node(g, n, out);
    write_price(map, n, out);
    add_edges(g, n, f);
  }
  return f;
}

}  // namespace rlflow
