// The network of a policy over graphs and their candidates, for inference: what rlflow/nn/policy.py trains, in float32, on one core.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rlflow/features.h"

namespace rlflow {

inline constexpr int kPolicyGlobals = 7;    // numbers of a state; rlflow/nn/observation.py names them
inline constexpr int kPolicyDelta = 11;     // numbers of a candidate
inline constexpr int kPolicyShare = 2;      // of them: its part of the largest gain, which a prior weighs
inline constexpr int kPolicyDtypes = 32;    // ONNX's numbers are below

enum class PolicyMessage { kAttention, kMean, kSum };

// `children`: a candidate is known by its whole graph, not by what it touches and changes.
struct PolicyForm {
  int64_t hidden = 0, layers = 0, heads = 0;
  int64_t ops = 0, rules = 0, rule_size = 0;  // rows of the embeddings, and the width of a rule's; 0 rules: they are not told apart
  PolicyMessage message = PolicyMessage::kAttention;
  bool children = false, prior = false;
};

// A weight by the name that PyTorch gives it: `policy.state_dict()`.
struct PolicyWeight {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// GraphFeatures with embedding rows for operators; `node` [n, kNodeFeatures], `edge` [m, kEdgeFeatures].
struct PolicyGraph {
  std::span<const int32_t> op, dtype;
  std::span<const float> node;
  std::span<const int32_t> source, target;
  std::span<const float> edge;
};

// A graph after the layers. It does not depend on the state, so walks that meet a graph again need not encode it again.
struct EncodedGraph {
  int64_t rows = 0;
  std::vector<float> nodes;  // [rows, stride of the net]; empty where only the graph was asked for
  std::vector<float> graph;  // [stride of the net]
};

// `globals` [kPolicyGlobals]; `rule` [k] embedding rows; `delta` [k, kPolicyDelta]; `touched` [t]: rows of the graph, `touched_by` [t]: the
// candidate of each, ascending.
struct PolicyState {
  std::span<const float> globals;
  std::span<const int32_t> rule;
  std::span<const float> delta;
  std::span<const int32_t> touched, touched_by;
};

struct PolicyScores {
  std::vector<float> logits;  // [k]
  float value = 0;
};

// A matrix as products want it: `weight` [in, out], `bias` [out], out padded to whole vectors.
struct PolicyMatrix {
  int64_t in = 0, out = 0;
  std::vector<float> weight, bias;
};

class PolicyNet {
 public:
  // Throws Error (usage) where a weight lacks, is not asked for, or has another shape.
  PolicyNet(const PolicyForm& form, const std::vector<PolicyWeight>& weights);
  // Throws Error (usage) for arrays that do not fit each other or the embeddings. `whole`: with the nodes, which `score` wants of a state's graph.
  EncodedGraph encode(const PolicyGraph& graph, bool whole = true) const;
  // `children` [k]: the candidates' graphs, where the form asks for them; else empty. Throws Error (usage) as `encode` does.
  PolicyScores score(const EncodedGraph& graph, const PolicyState& state, std::span<const EncodedGraph* const> children) const;
  const PolicyForm& form() const { return form_; }

 private:
  struct Norm {
    std::vector<float> weight, bias;
  };
  struct Layer {
    Norm norm;
    PolicyMatrix hear;        // what is sent and received, down and up: [hidden, 4 hidden]
    PolicyMatrix along;       // of edges, down and up: [edge, 2 hidden]
    std::vector<float> score[2];
    PolicyMatrix update[2];
  };
  class Reader;
  void read_candidates(Reader& reader, int64_t known);
  void check(const PolicyGraph& graph) const;
  void check(const EncodedGraph& graph, const PolicyState& state, std::span<const EncodedGraph* const> children) const;
  void apply(const Layer& layer, const PolicyGraph& graph, std::vector<float>& h) const;
  void gather(const Layer& layer, int way, const PolicyGraph& graph, const float* heard, const float* along, float* out) const;
  std::vector<float> candidates(const EncodedGraph& graph, const PolicyState& state, const float* summary,
                                std::span<const EncodedGraph* const> children) const;
  void describe(const EncodedGraph& graph, const PolicyState& state, std::span<const EncodedGraph* const> children, std::vector<float>& x) const;

  PolicyForm form_;
  int64_t stride_ = 0;          // hidden, padded to whole vectors
  std::vector<float> mask_;     // [stride]: 1 where there is a feature
  std::vector<float> op_, dtype_;
  PolicyMatrix feature_;
  std::vector<Layer> layers_;
  Norm norm_;
  PolicyMatrix pool_, state_;
  PolicyMatrix from_state_, from_candidate_, second_;  // the candidates' layers; the first in parts, because a state's is computed once
  std::vector<float> rule_;     // [rules, stride]: what each rule adds to the first layer
  std::vector<float> score_;    // [stride]
  float prior_ = 0;
  PolicyMatrix value_[2];
};

}  // namespace rlflow
