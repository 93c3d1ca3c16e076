// How a policy's weights are read: checked against its form, and laid out as the loops want them.
#include "rlflow/policy_net.h"

#include <algorithm>
#include <map>

#include "policy_kernels.h"
#include "rlflow/error.h"

namespace rlflow {
namespace {

using policy::kLanes;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kUsage, "A policy's network: " + what); }

int64_t padded(int64_t width) { return (width + kLanes - 1) / kLanes * kLanes; }

std::string text_of(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

// Columns [from, from + count) of a weight as PyTorch keeps it, which meet the inputs from `at` on.
struct Columns {
  int64_t from, count, at;
};

}  // namespace

// Hands out every weight once.
class PolicyNet::Reader {
 public:
  explicit Reader(const std::vector<PolicyWeight>& weights) {
    for (const PolicyWeight& weight : weights) left_[weight.name] = &weight;
  }

  const float* take(const std::string& name, const std::vector<int64_t>& shape) {
    const auto found = left_.find(name);
    if (found == left_.end()) refuse("the weight " + shown(name) + " lacks");
    const PolicyWeight& weight = *found->second;
    int64_t count = 1;
    for (int64_t dim : shape) count *= dim;
    if (weight.shape != shape || static_cast<int64_t>(weight.values.size()) != count)
      refuse("the weight " + shown(name) + " has the shape " + text_of(weight.shape) + "; expected " + text_of(shape));
    left_.erase(found);
    return weight.values.data();
  }

  // [size] numbers, followed by zeros.
  std::vector<float> vector(const std::string& name, const std::vector<int64_t>& shape, int64_t stride) {
    const float* from = take(name, shape);
    std::vector<float> out(stride, 0.0f);
    std::copy(from, from + shape.back(), out.begin());
    return out;
  }

  // [rows, size] numbers, each row followed by zeros.
  std::vector<float> rows(const std::string& name, int64_t count, int64_t size, int64_t stride) {
    const float* from = take(name, {count, size});
    std::vector<float> out(count * stride, 0.0f);
    for (int64_t r = 0; r < count; ++r) std::copy(from + r * size, from + (r + 1) * size, out.begin() + r * stride);
    return out;
  }

  Norm norm(const std::string& name, int64_t size, int64_t stride) {
    return {vector(name + ".weight", {size}, stride), vector(name + ".bias", {size}, stride)};
  }

  // A linear layer of `size` outputs, `parts` of whose inputs are meant; they lie in `in` places.
  PolicyMatrix matrix(const std::string& name, int64_t size, int64_t width, int64_t in, const std::vector<Columns>& parts) {
    PolicyMatrix m = empty(in, padded(size));
    put(m, take(name + ".weight", {size, width}), size, width, parts, 0);
    m.bias = vector(name + ".bias", {size}, m.out);
    return m;
  }

  static PolicyMatrix empty(int64_t in, int64_t out) {
    PolicyMatrix m;
    m.in = in;
    m.out = out;
    m.weight.assign(in * out, 0.0f);
    m.bias.assign(out, 0.0f);
    return m;
  }

  static void put(PolicyMatrix& m, const float* weight, int64_t size, int64_t width, const std::vector<Columns>& parts, int64_t first) {
    for (const Columns& part : parts)
      for (int64_t c = 0; c < part.count; ++c)
        for (int64_t o = 0; o < size; ++o) m.weight[(part.at + c) * m.out + first + o] = weight[o * width + part.from + c];
  }

  Layer layer(const std::string& name, const PolicyForm& form, int64_t s) {
    const int64_t h = form.hidden;
    Layer out;
    out.norm = norm(name + ".norm", h, s);
    out.hear = empty(s, 4 * s);
    out.along = empty(kEdgeFeatures, 2 * s);
    for (int way = 0; way < 2; ++way) {
      const std::string part = name + (way ? ".up" : ".down");
      put(out.hear, take(part + ".send.weight", {h, h}), h, h, {{0, h, 0}}, 2 * way * s);
      const float* bias = take(part + ".send.bias", {h});
      std::copy(bias, bias + h, out.hear.bias.begin() + 2 * way * s);
      put(out.hear, take(part + ".receive.weight", {h, h}), h, h, {{0, h, 0}}, (2 * way + 1) * s);
      put(out.along, take(part + ".along.weight", {h, kEdgeFeatures}), h, kEdgeFeatures, {{0, kEdgeFeatures, 0}}, way * s);
      if (form.message != PolicyMessage::kAttention) continue;
      const float* score = take(part + ".score", {form.heads, h / form.heads});
      out.score[way].assign(s, 0.0f);
      std::copy(score, score + h, out.score[way].begin());
    }
    out.update[0] = matrix(name + ".update.0", h, 3 * h, 3 * s, {{0, h, 0}, {h, h, s}, {2 * h, h, 2 * s}});
    out.update[1] = matrix(name + ".update.2", h, h, s, {{0, h, 0}});
    return out;
  }

  void finish() const {
    if (!left_.empty()) refuse("the weight " + shown(left_.begin()->first) + " is not asked for");
  }

 private:
  std::map<std::string, const PolicyWeight*> left_;
};

namespace {

// The row of rules that a vocabulary does not have is the average of all but the one to stop.
void average_unknown(std::vector<float>& table, int64_t rules, int64_t size) {
  if (rules < 2) return;
  for (int64_t i = 0; i < size; ++i) {
    double sum = 0;
    for (int64_t r = 1; r < rules; ++r) sum += table[r * size + i];
    table[size + i] = static_cast<float>(sum / static_cast<double>(rules - 1));
  }
}

void check_form(const PolicyForm& form) {
  if (form.hidden < 1 || form.heads < 1 || form.layers < 1 || form.hidden % form.heads || form.ops < 1 || form.rules < 0 || form.rule_size < 0)
    refuse("it has " + std::to_string(form.layers) + " layers of " + std::to_string(form.hidden) + " with " + std::to_string(form.heads) +
           " heads; expected a layer or more, and a width divisible by the heads");
}

}  // namespace

// The first layer of candidates, in parts: what the state adds (with the bias), what each rule adds, and the rest.
void PolicyNet::read_candidates(Reader& reader, int64_t known) {
  const int64_t h = form_.hidden, s = stride_, width = h + known + form_.rule_size;
  const float* weight = reader.take("candidate.0.weight", {h, width});
  from_state_ = Reader::empty(s, s);
  Reader::put(from_state_, weight, h, width, {{0, h, 0}}, 0);
  from_state_.bias = reader.vector("candidate.0.bias", {h}, s);
  from_candidate_ = Reader::empty(form_.children ? s + 1 : 2 * s + kPolicyDelta, s);
  if (form_.children) Reader::put(from_candidate_, weight, h, width, {{h, h, 0}, {2 * h, 1, s}}, 0);
  else Reader::put(from_candidate_, weight, h, width, {{h, h, 0}, {2 * h, h, s}, {3 * h, kPolicyDelta, 2 * s}}, 0);
  second_ = reader.matrix("candidate.2", h, h, s, {{0, h, 0}});
  if (form_.rules == 0) return;
  const int64_t size = form_.rule_size;
  std::vector<float> table = reader.rows("rule.weight", form_.rules, size, size);
  average_unknown(table, form_.rules, size);
  rule_.assign(form_.rules * s, 0.0f);
  for (int64_t r = 0; r < form_.rules; ++r)
    for (int64_t o = 0; o < h; ++o)
      for (int64_t i = 0; i < size; ++i) rule_[r * s + o] += weight[o * width + h + known + i] * table[r * size + i];
}

PolicyNet::PolicyNet(const PolicyForm& form, const std::vector<PolicyWeight>& weights) : form_(form) {
  check_form(form);
  Reader reader(weights);
  const int64_t h = form.hidden, s = stride_ = padded(h), known = form.children ? h + 1 : 2 * h + kPolicyDelta;
  mask_.assign(s, 0.0f);
  std::fill(mask_.begin(), mask_.begin() + h, 1.0f);
  op_ = reader.rows("graph.op.weight", form.ops, h, s);
  dtype_ = reader.rows("graph.dtype.weight", kPolicyDtypes, h, s);
  feature_ = reader.matrix("graph.feature", h, kNodeFeatures, kNodeFeatures, {{0, kNodeFeatures, 0}});
  for (int64_t i = 0; i < form.layers; ++i) layers_.push_back(reader.layer("graph.layers." + std::to_string(i), form, s));
  norm_ = reader.norm("graph.norm", h, s);
  pool_ = reader.matrix("graph.pool.0", h, 2 * h, 2 * s, {{0, h, 0}, {h, h, s}});
  state_ = reader.matrix("state.0", h, h + kPolicyGlobals, s + kPolicyGlobals, {{0, h, 0}, {h, kPolicyGlobals, s}});
  read_candidates(reader, known);
  score_ = reader.vector("score.weight", {1, h}, s);
  if (form.prior) prior_ = *reader.take("prior", {});
  value_[0] = reader.matrix("value.0", h, 3 * h, 3 * s, {{0, h, 0}, {h, h, s}, {2 * h, h, 2 * s}});
  value_[1] = reader.matrix("value.2", 1, h, s, {{0, h, 0}});
  reader.finish();
}

}  // namespace rlflow
