// Tensat's vocabulary (Yang et al., MLSys 2021) as a language of the e-graph: TASO's operators in S-expressions, parameters as children,
// the operator table's shapes, TASO's split positions. Rules apply wherever the shapes allow it, as in Tensat: without the conditions that
// would make all of them true (rlflow's own rules carry theirs).
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rlflow/egraph_text.h"

namespace rlflow::egraph {

// clang-format off
enum TensatOp : uint32_t {
  kTNum, kTVar, kTInput, kTWeight, kTEwadd, kTEwmul, kTSmul, kTTranspose, kTMatmul, kTConv2d, kTEnlarge, kTDropout, kTRelu, kTTanh,
  kTSigmoid, kTPoolmax, kTPoolavg, kTConcat, kTConcat3, kTConcat4, kTConcat5, kTSplit, kTSplit0, kTSplit1, kTMerge, kTReshape, kTNoop,
  kTBatchnorm, kTensatOps,
};
// clang-format on

// A device for prices: time = overhead + max(float operations / flops, bytes / bandwidth). The defaults are near a Tesla T4.
struct TensatDevice {
  double gflops = 4000, gbps = 240, overhead_us = 5;
};

class TensatLanguage : public TextLanguage {
 public:
  struct Tensor {
    std::vector<int> dims;
    std::vector<std::vector<int>> cuts;     // by dimension: where concatenations may be undone, the last one first to be undone
    friend auto operator<=>(const Tensor&, const Tensor&) = default;
  };
  struct Facts {
    enum Kind : uint8_t { kNumber, kName, kTensor, kPair, kNothing } kind = kNothing;
    int value = 0;                          // of a number; of a name, its symbol
    Tensor first, second;
    bool weights_only = false;
    friend auto operator<=>(const Facts&, const Facts&) = default;
  };
  std::string op_name(uint32_t op) const override;
  std::string data_text(DataId data) const override;
  // Tensat keeps the shape and the cuts of the older class without comparing them; a class is weights only if either was.
  DataId merge(DataId kept, DataId absorbed) override;
  const Facts& facts(DataId id) const { return *facts_[id]; }
  // Milliseconds of a node, from its operands' facts. Free, as in Tensat: what depends on weights alone, split, transpose, reshape and
  // dropout. A concatenation of activations pays for its copy.
  double cost(const EGraph& g, ENodeId n, const TensatDevice& device) const;

  int op_of(std::string_view name) override;
  uint32_t op_count() const override { return kTensatOps; }

 protected:
  std::optional<DataId> infer(uint32_t op, uint32_t attr, std::span<const DataId> children) override;

 private:
  struct Operands;
  DataId intern(const Facts& facts);
  std::optional<Operands> operands(uint32_t op, std::span<const DataId> children) const;
  static std::optional<Tensor> result(uint32_t op, const Operands& o);
  std::map<Facts, DataId> ids_;
  std::vector<const Facts*> facts_;
};

}  // namespace rlflow::egraph
