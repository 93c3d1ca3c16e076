// The network at work: a graph through its layers, then the candidates of a state.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "policy_kernels.h"
#include "rlflow/error.h"
#include "rlflow/policy_net.h"

namespace rlflow {
namespace {

using policy::kernels;

constexpr int64_t kNodes = kNodeFeatures, kEdge = kEdgeFeatures;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kUsage, "A policy's network: " + what); }

void expect(size_t found, int64_t wanted, const char* what) {
  if (static_cast<int64_t>(found) != wanted)
    refuse(std::string(what) + " has " + std::to_string(found) + " entries; expected " + std::to_string(wanted));
}

void expect_below(std::span<const int32_t> values, int64_t end, const char* what) {
  for (int32_t v : values)
    if (v < 0 || v >= end) refuse(std::string(what) + " holds " + std::to_string(v) + "; expected 0 to " + std::to_string(end - 1));
}

void multiply(const PolicyMatrix& m, const float* x, int64_t ldx, int64_t rows, float* y, int64_t ldy, bool add = false, bool relu = false) {
  kernels().product({x, ldx, rows, m.weight.data(), m.bias.data(), m.in, m.out, y, ldy, add, relu});
}

// Scores of edges become weights: the softmax over the edges that meet at a node, head by head.
void soften(std::span<const int32_t> receiver, int64_t heads, int64_t rows, std::vector<float>& scores) {
  std::vector<float> highest(rows * heads, -HUGE_VALF), sum(rows * heads, 0.0f);
  for (size_t e = 0; e < receiver.size(); ++e)
    for (int64_t k = 0; k < heads; ++k) {
      float& top = highest[receiver[e] * heads + k];
      top = std::max(top, scores[e * heads + k]);
    }
  for (size_t e = 0; e < receiver.size(); ++e)
    for (int64_t k = 0; k < heads; ++k) {
      float& score = scores[e * heads + k];
      score = std::exp(score - highest[receiver[e] * heads + k]);
      sum[receiver[e] * heads + k] += score;
    }
  for (size_t e = 0; e < receiver.size(); ++e)
    for (int64_t k = 0; k < heads; ++k) scores[e * heads + k] /= sum[receiver[e] * heads + k];
}

// Mean and maximum of rows [begin, end) of `from` (all rows, or those that `which` names) into mean[width] and highest[width]; zeros of none.
void pool(const float* from, int64_t stride, const int32_t* which, int64_t begin, int64_t end, float* mean, float* highest) {
  for (int64_t i = begin; i < end; ++i) {
    const float* row = from + (which ? which[i] : i) * stride;
    for (int64_t j = 0; j < stride; ++j) {
      mean[j] += row[j];
      highest[j] = i == begin ? row[j] : std::max(highest[j], row[j]);
    }
  }
  const float count = static_cast<float>(std::max<int64_t>(end - begin, 1));
  for (int64_t j = 0; j < stride; ++j) mean[j] /= count;
}

}  // namespace

void PolicyNet::check(const PolicyGraph& graph) const {
  const int64_t rows = static_cast<int64_t>(graph.op.size()), edges = static_cast<int64_t>(graph.source.size());
  expect(graph.dtype.size(), rows, "dtype");
  expect(graph.node.size(), rows * kNodes, "node");
  expect(graph.target.size(), edges, "target");
  expect(graph.edge.size(), edges * kEdge, "edge");
  expect_below(graph.op, form_.ops, "op");
  expect_below(graph.source, rows, "source");
  expect_below(graph.target, rows, "target");
}

void PolicyNet::gather(const Layer& layer, int way, const PolicyGraph& graph, const float* heard, const float* along, float* out) const {
  const int64_t edges = static_cast<int64_t>(graph.source.size()), rows = static_cast<int64_t>(graph.op.size()), s = stride_;
  const std::span<const int32_t> sender = way ? graph.target : graph.source, receiver = way ? graph.source : graph.target;
  const float* sent = heard + 2 * way * s;
  const policy::Edges e = {edges,           s,    form_.heads, form_.hidden / form_.heads, sender.data(), receiver.data(), sent, sent + s, 4 * s,
                           along + way * s, 2 * s};
  if (form_.message == PolicyMessage::kAttention) {
    std::vector<float> scores(edges * form_.heads), scratch(s);
    kernels().attend(e, layer.score[way].data(), scores.data(), scratch.data());
    soften(receiver, form_.heads, rows, scores);
    kernels().gather(e, scores.data(), out, 3 * s, scratch.data());
    return;
  }
  kernels().hear(e, out, 3 * s);
  if (form_.message == PolicyMessage::kSum) return;
  std::vector<float> count(rows, 0.0f);
  for (int32_t r : receiver) ++count[r];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < s; ++j) out[r * 3 * s + j] /= std::max(count[r], 1.0f);
}

void PolicyNet::apply(const Layer& layer, const PolicyGraph& graph, std::vector<float>& h) const {
  const int64_t rows = static_cast<int64_t>(graph.op.size()), edges = static_cast<int64_t>(graph.source.size()), s = stride_;
  std::vector<float> wide(rows * 3 * s, 0.0f), heard(rows * 4 * s), along(edges * 2 * s), updated(rows * s);
  const Norm& norm = layer.norm;
  kernels().normalise({h.data(), s, rows, form_.hidden, s, mask_.data(), norm.weight.data(), norm.bias.data(), wide.data(), 3 * s});
  multiply(layer.hear, wide.data(), 3 * s, rows, heard.data(), 4 * s);
  multiply(layer.along, graph.edge.data(), kEdge, edges, along.data(), 2 * s);
  for (int way = 0; way < 2; ++way) gather(layer, way, graph, heard.data(), along.data(), wide.data() + (1 + way) * s);
  multiply(layer.update[0], wide.data(), 3 * s, rows, updated.data(), s, false, true);
  multiply(layer.update[1], updated.data(), s, rows, h.data(), s, true);
}

EncodedGraph PolicyNet::encode(const PolicyGraph& graph, bool whole) const {
  check(graph);
  const int64_t rows = static_cast<int64_t>(graph.op.size()), s = stride_;
  std::vector<float> h(rows * s);
  for (int64_t r = 0; r < rows; ++r) {
    const float* op = op_.data() + graph.op[r] * s;
    const float* dtype = dtype_.data() + std::clamp(graph.dtype[r], 0, kPolicyDtypes - 1) * s;
    for (int64_t j = 0; j < s; ++j) h[r * s + j] = op[j] + dtype[j];
  }
  multiply(feature_, graph.node.data(), kNodes, rows, h.data(), s, true);
  for (const Layer& layer : layers_) apply(layer, graph, h);
  kernels().normalise({h.data(), s, rows, form_.hidden, s, mask_.data(), norm_.weight.data(), norm_.bias.data(), h.data(), s});
  EncodedGraph out;
  out.rows = rows;
  out.graph.resize(s);
  std::vector<float> pooled(2 * s, 0.0f);
  pool(h.data(), s, nullptr, 0, rows, pooled.data(), pooled.data() + s);
  multiply(pool_, pooled.data(), 2 * s, 1, out.graph.data(), s, false, true);
  if (whole) out.nodes = std::move(h);
  return out;
}

void PolicyNet::check(const EncodedGraph& graph, const PolicyState& state, std::span<const EncodedGraph* const> children) const {
  const int64_t count = static_cast<int64_t>(state.rule.size());
  if (count < 1) refuse("a state has no candidate, not even to stop");
  expect(state.globals.size(), kPolicyGlobals, "globals");
  expect(state.delta.size(), count * kPolicyDelta, "delta");
  expect(state.touched_by.size(), static_cast<int64_t>(state.touched.size()), "touched_by");
  if (form_.rules > 0) expect_below(state.rule, form_.rules, "rule");
  expect_below(state.touched, graph.rows, "touched");
  expect_below(state.touched_by, count, "touched_by");
  if (!std::is_sorted(state.touched_by.begin(), state.touched_by.end())) refuse("touched_by does not ascend");
  expect(graph.graph.size(), stride_, "the graph's code");
  expect(children.size(), form_.children ? count : 0, "the candidates' graphs");
  for (const EncodedGraph* child : children) expect(child->graph.size(), stride_, "a candidate's code");
  if (!form_.children) expect(graph.nodes.size(), graph.rows * stride_, "the nodes' code");
}

// What the first layer sees of each candidate, beside its rule: its graph, or the nodes that it touches and what it changes.
void PolicyNet::describe(const EncodedGraph& graph, const PolicyState& state, std::span<const EncodedGraph* const> children,
                         std::vector<float>& x) const {
  const int64_t count = static_cast<int64_t>(state.rule.size()), s = stride_, width = from_candidate_.in;
  const int64_t touched = static_cast<int64_t>(state.touched.size());
  x.assign(count * width, 0.0f);
  for (int64_t k = 0, begin = 0, end = 0; k < count; ++k, begin = end) {
    float* row = x.data() + k * width;
    const float* delta = state.delta.data() + k * kPolicyDelta;
    if (form_.children) {
      std::copy(children[k]->graph.begin(), children[k]->graph.end(), row);
      row[s] = delta[kPolicyDelta - 1];
      continue;
    }
    while (end < touched && state.touched_by[end] == k) ++end;
    pool(graph.nodes.data(), s, state.touched.data(), begin, end, row, row + s);
    std::copy(delta, delta + kPolicyDelta, row + 2 * s);
  }
}

// [k, stride] of the candidates after their layers; `summary` [stride]: of the state.
std::vector<float> PolicyNet::candidates(const EncodedGraph& graph, const PolicyState& state, const float* summary,
                                         std::span<const EncodedGraph* const> children) const {
  const int64_t count = static_cast<int64_t>(state.rule.size()), s = stride_;
  std::vector<float> base(s), x, first(count * s), out(count * s);
  multiply(from_state_, summary, s, 1, base.data(), s);
  for (int64_t k = 0; k < count; ++k)
    for (int64_t j = 0; j < s; ++j) first[k * s + j] = base[j] + (form_.rules > 0 ? rule_[state.rule[k] * s + j] : 0.0f);
  describe(graph, state, children, x);
  multiply(from_candidate_, x.data(), from_candidate_.in, count, first.data(), s, true, true);
  multiply(second_, first.data(), s, count, out.data(), s, false, true);
  return out;
}

PolicyScores PolicyNet::score(const EncodedGraph& graph, const PolicyState& state, std::span<const EncodedGraph* const> children) const {
  check(graph, state, children);
  const int64_t count = static_cast<int64_t>(state.rule.size()), s = stride_;
  std::vector<float> known(s + kPolicyGlobals), joined(3 * s, 0.0f), hidden(s), value(value_[1].out);
  std::copy(graph.graph.begin(), graph.graph.end(), known.begin());
  std::copy(state.globals.begin(), state.globals.end(), known.begin() + s);
  multiply(state_, known.data(), s + kPolicyGlobals, 1, joined.data(), s, false, true);
  const std::vector<float> rows = candidates(graph, state, joined.data(), children);
  PolicyScores out;
  out.logits.resize(count);
  for (int64_t k = 0; k < count; ++k) {
    float sum = 0;
    for (int64_t j = 0; j < s; ++j) sum += rows[k * s + j] * score_[j];
    out.logits[k] = sum + prior_ * state.delta[k * kPolicyDelta + kPolicyShare];
  }
  pool(rows.data(), s, nullptr, 0, count, joined.data() + s, joined.data() + 2 * s);
  multiply(value_[0], joined.data(), 3 * s, 1, hidden.data(), s, false, true);
  multiply(value_[1], hidden.data(), s, 1, value.data(), value_[1].out);
  out.value = value[0];
  return out;
}

}  // namespace rlflow
