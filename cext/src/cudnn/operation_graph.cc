#include "operation_graph.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace rlflow::gpu {
namespace {

constexpr int64_t kAlignment = 16;           // bytes; tensors lie at multiples of 256
constexpr int64_t kFirstVirtual = 16;        // identities of tensors that are never stored
constexpr int64_t kMostConfigs = 128;
constexpr int kNotSupported = 3000;          // statuses below are errors of the caller, from here on cuDNN has no such routine

}  // namespace

std::string dnn_error(const Api& api, int status, const std::string& what) {
  char said[512] = {};
  api.cudnnGetLastErrorString(said, sizeof said - 1);
  std::string sentence = "cuDNN failed while " + what + ": " + api.cudnnGetErrorString(status);
  return sentence + (said[0] ? " (" + std::string(said) + ")." : ".");
}

Descriptor::Descriptor(const Api& api, int kind, const char* what) : api_(&api), what_(what) {
  void* raw = nullptr;
  if (int status = api.cudnnBackendCreateDescriptor(kind, &raw)) throw Failure(dnn_error(api, status, what));
  raw_ = std::shared_ptr<void>(raw, [&api](void* d) { api.cudnnBackendDestroyDescriptor(d); });
}
Descriptor& Descriptor::set(int attribute, int type, int64_t count, const void* values) {
  if (int status = api_->cudnnBackendSetAttribute(raw(), attribute, type, count, values)) throw Failure(dnn_error(*api_, status, what_));
  return *this;
}
Descriptor& Descriptor::set(int attribute, const Descriptor& other) {
  void* raw_other = other.raw();
  used_.push_back(other.raw_);
  used_.insert(used_.end(), other.used_.begin(), other.used_.end());
  return set(attribute, kTypeDescriptor, 1, static_cast<const void*>(&raw_other));
}
Descriptor& Descriptor::set_real(int attribute, double value, bool doubles) {
  const auto narrow = static_cast<float>(value);
  return doubles ? set(attribute, kTypeDouble, 1, &value) : set(attribute, kTypeFloat, 1, &narrow);
}
int Descriptor::try_finish() { return api_->cudnnBackendFinalize(raw()); }
Descriptor& Descriptor::finish() {
  if (int status = try_finish()) throw Failure(dnn_error(*api_, status, what_));
  return *this;
}
template <class T>
std::vector<T> Descriptor::get(int attribute, int type, int64_t most) const {
  std::vector<T> values(static_cast<size_t>(most));
  int64_t found = 0;
  if (int status = api_->cudnnBackendGetAttribute(raw(), attribute, type, most, &found, values.data()))
    throw Failure(dnn_error(*api_, status, what_));
  values.resize(static_cast<size_t>(std::min(found, most)));
  return values;
}

std::vector<int64_t> dnn_strides(const std::vector<int64_t>& dims, bool channels_last) {
  std::vector<int64_t> strides(dims.size(), 1);
  int64_t step = 1;
  if (channels_last) step = dims[1];         // channels lie closest together
  for (size_t d = dims.size(); d-- > 1;) {
    if (channels_last && d == 1) continue;
    strides[d] = step;
    step *= dims[d];
  }
  strides[0] = step;
  return strides;
}

namespace {

// Puts the operations of one convolution together.
class GraphBuilder {
 public:
  GraphBuilder(const DnnTarget& target, const DnnConvolution& c) : target_(target), c_(c), doubles_(c.type == kDnnDouble) {}

  Descriptor build() {
    std::vector<Step> steps = follow();
    const bool alone = steps.empty();
    Descriptor result = tensor(alone ? Operand::kY : Operand{kFirstVirtual}, c_.y, !alone);
    convolve(result);
    for (size_t i = 0; i < steps.size(); ++i) {
      const bool last = i + 1 == steps.size();
      Descriptor next = tensor(last ? Operand::kY : Operand{kFirstVirtual + 1 + static_cast<int64_t>(i)}, c_.y, !last);
      apply(steps[i], result, next);
      result = next;
    }
    Descriptor graph(*target_.api, kDescribeGraph, "putting operations together");
    std::vector<void*> raw;
    for (const Descriptor& operation : operations_) raw.push_back(operation.raw());
    if (target_.handle) graph.set(kGraphHandle, kTypeHandle, 1, static_cast<const void*>(&target_.handle));
    return graph.set(kGraphOperations, kTypeDescriptor, static_cast<int64_t>(raw.size()), static_cast<const void*>(raw.data()));
  }
  std::vector<Descriptor> operations() const { return operations_; }

 private:
  struct Step {                              // an addition of an operand, or an activation
    Operand operand = Operand::kY;
    const Activation* activation = nullptr;
  };
  // The routine that cuDNN has for all of it adds the residual before the bias.
  std::vector<Step> follow() const {
    std::vector<Step> steps;
    if (c_.residual) steps.push_back({Operand::kResidual, nullptr});
    if (c_.bias) steps.push_back({Operand::kBias, nullptr});
    for (const Activation& a : c_.activation) steps.push_back({Operand::kY, &a});
    return steps;
  }
  int compute() const { return doubles_ ? kDnnDouble : kDnnFloat; }

  Descriptor tensor(Operand id, const std::vector<int64_t>& dims, bool is_virtual = false) const {
    Descriptor t(*target_.api, kDescribeTensor, "describing a tensor");
    t.set(kTensorId, {static_cast<int64_t>(id)}).set(kTensorType, kTypeDataType, is_virtual ? compute() : c_.type);
    t.set(kTensorAlignment, {kAlignment}).set(kTensorDims, dims).set(kTensorStrides, dnn_strides(dims, c_.channels_last));
    if (is_virtual) t.set(kTensorVirtual, kTypeBoolean, 1, &is_virtual);
    return t.finish();
  }

  void convolve(const Descriptor& result) {
    Descriptor how(*target_.api, kDescribeConvolution, "describing a convolution");
    how.set(kConvolutionCompute, kTypeDataType, compute()).set(kConvolutionMode, kTypeConvolutionMode, kDnnCrossCorrelation);
    how.set(kConvolutionAxes, {static_cast<int64_t>(c_.stride.size())}).set(kConvolutionDilations, c_.dilation);
    how.set(kConvolutionStrides, c_.stride).set(kConvolutionPaddingBefore, c_.before).set(kConvolutionPaddingAfter, c_.after);
    how.finish();
    Descriptor operation(*target_.api, kDescribeConvolve, "describing a convolution of tensors");
    operation.set_real(kConvolveAlpha, 1, doubles_).set_real(kConvolveBeta, 0, doubles_).set(kConvolveHow, how);
    operation.set(kConvolveX, tensor(Operand::kX, c_.x)).set(kConvolveW, tensor(Operand::kW, c_.w)).set(kConvolveY, result);
    operations_.push_back(operation.finish());
  }

  void apply(const Step& step, const Descriptor& from, const Descriptor& to) {
    Descriptor how(*target_.api, kDescribePointwise, "describing a pointwise operation");
    const Activation* a = step.activation;
    how.set(kPointwiseMode, kTypePointwiseMode, a ? a->mode : kModeAdd).set(kPointwiseCompute, kTypeDataType, compute());
    if (a && a->mode == kModeElu) how.set_real(kPointwiseEluAlpha, a->alpha, true);
    if (a && a->mode == kModeRelu && a->slope != 0) how.set_real(kPointwiseLowerSlope, a->slope, true);
    if (a && a->mode == kModeRelu && a->clipped) how.set_real(kPointwiseLowerClip, a->lower, true).set_real(kPointwiseUpperClip, a->upper, true);
    how.finish();
    Descriptor operation(*target_.api, kDescribeApply, "describing a pointwise operation on tensors");
    operation.set(kApplyHow, how).set(kApplyX, from);
    if (step.operand == Operand::kResidual) operation.set(kApplyB, tensor(Operand::kResidual, c_.y));
    if (step.operand == Operand::kBias) {
      std::vector<int64_t> along(c_.y.size(), 1);
      along[1] = c_.y[1];
      operation.set(kApplyB, tensor(Operand::kBias, along));
    }
    operations_.push_back(operation.set(kApplyY, to).finish());
  }

  const DnnTarget& target_;
  const DnnConvolution& c_;
  bool doubles_;
  std::vector<Descriptor> operations_;
};

// The configurations of engines that one heuristic proposes; none where it has no answer.
std::vector<Descriptor> proposed(const DnnTarget& target, const Descriptor& graph, int mode, std::string* why_not) {
  constexpr const char* kDoing = "looking for a routine for a convolution";
  Descriptor heuristic(*target.api, kDescribeHeuristic, kDoing);
  heuristic.set(kHeuristicGraph, graph).set(kHeuristicMode, kTypeHeuristicMode, mode);
  if (target.description) heuristic.set(kHeuristicDevice, kTypeDescriptor, 1, static_cast<const void*>(&target.description));
  if (int status = heuristic.try_finish()) {
    *why_not = dnn_error(*target.api, status, kDoing);
    if (status < kNotSupported) throw Failure(*why_not);
    return {};
  }
  std::vector<Descriptor> configs;
  std::vector<void*> raw;
  int64_t there = 0;
  if (int status = target.api->cudnnBackendGetAttribute(heuristic.raw(), kHeuristicResults, kTypeDescriptor, 0, &there, nullptr)) {
    *why_not = dnn_error(*target.api, status, kDoing);
    if (status < kNotSupported) throw Failure(*why_not);
    return {};
  }
  const int64_t most = std::min(there, kMostConfigs);
  for (int64_t i = 0; i < most; ++i) {
    configs.emplace_back(*target.api, kDescribeEngineConfig, kDoing);
    raw.push_back(configs.back().raw());
  }
  if (most == 0) return {};
  int64_t found = 0;
  if (int status = target.api->cudnnBackendGetAttribute(heuristic.raw(), kHeuristicResults, kTypeDescriptor, most, &found, raw.data()))
    throw Failure(dnn_error(*target.api, status, kDoing));
  configs.erase(configs.begin() + static_cast<std::ptrdiff_t>(std::min(found, most)), configs.end());
  return configs;
}

struct Engine {
  int64_t index = 0;
  std::vector<int> notes, behaviour;
  bool is_compiled() const { return std::count(behaviour.begin(), behaviour.end(), kNoteCompiles) > 0; }
};
Engine engine_of(const DnnTarget& target, const Descriptor& config) {
  constexpr const char* kDoing = "asking about a routine";
  Descriptor engine(*target.api, kDescribeEngine, kDoing);
  void* raw = engine.raw();
  int64_t found = 0;
  if (int status = target.api->cudnnBackendGetAttribute(config.raw(), kConfigEngine, kTypeDescriptor, 1, &found, static_cast<void*>(&raw)))
    throw Failure(dnn_error(*target.api, status, kDoing));
  return {engine.get<int64_t>(kEngineIndex, kTypeInt64, 1).at(0), engine.get<int>(kEngineNotes, kTypeNumericalNote, 16),
          engine.get<int>(kEngineBehaviour, kTypeBehaviourNote, 16)};
}
bool is_exact(const Engine& engine) {
  return std::none_of(engine.notes.begin(), engine.notes.end(),
                      [](int note) { return note == kNoteTensorCore || note == kNoteNarrowInputs || note == kNoteNarrowSums; });
}

// Everything that a plan was made from stays with it.
struct Kept {
  Descriptor plan;
  Descriptor graph, config;
  std::vector<Descriptor> operations;
};

}  // namespace

std::vector<DnnPlan> plans_for(const DnnTarget& target, const DnnConvolution& c, size_t workspace, size_t most, std::string* why_not) {
  GraphBuilder builder(target, c);
  Descriptor graph = builder.build();
  *why_not = "cuDNN has no routine for it within " + std::to_string(workspace >> 20) + " MB of workspace";
  if (int status = graph.try_finish()) {
    *why_not = dnn_error(*target.api, status, "putting operations together");
    if (status < kNotSupported) throw Failure(*why_not);
    return {};
  }
  std::vector<DnnPlan> plans;
  bool compiled = false;                     // one routine that is compiled now is enough: each takes seconds
  for (int mode : {kHeuristicBest, kHeuristicFallback})
    for (const Descriptor& config : proposed(target, graph, mode, why_not)) {
      if (plans.size() == most) return plans;
      const Engine engine = engine_of(target, config);
      if ((c.exact && !is_exact(engine)) || (engine.is_compiled() && std::exchange(compiled, true))) continue;
      Descriptor plan(*target.api, kDescribePlan, "preparing a routine");
      if (target.handle) plan.set(kPlanHandle, kTypeHandle, 1, static_cast<const void*>(&target.handle));
      if (target.description) plan.set(kPlanDevice, kTypeDescriptor, 1, static_cast<const void*>(&target.description));
      plan.set(kPlanConfig, config);
      if (int status = plan.try_finish()) {
        *why_not = dnn_error(*target.api, status, "preparing a routine");
        continue;
      }
      const int64_t bytes = plan.get<int64_t>(kPlanWorkspace, kTypeInt64, 1).at(0);
      if (bytes > static_cast<int64_t>(workspace)) continue;
      auto kept = std::make_shared<Kept>(Kept{plan, graph, config, builder.operations()});
      plans.push_back({std::shared_ptr<Descriptor>(kept, &kept->plan), static_cast<size_t>(bytes), engine.index});
    }
  return plans;
}

void DnnPlan::execute(const DnnTarget& target, const std::vector<std::pair<Operand, void*>>& operands, void* scratch) const {
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  for (const auto& [id, pointer] : operands) {
    ids.push_back(static_cast<int64_t>(id));
    pointers.push_back(pointer);
  }
  Descriptor pack(*target.api, kDescribePack, "naming a convolution's operands");
  pack.set(kPackIds, ids).set(kPackPointers, kTypePointer, static_cast<int64_t>(pointers.size()), static_cast<const void*>(pointers.data()));
  pack.set(kPackWorkspace, kTypePointer, 1, static_cast<const void*>(&scratch)).finish();
  if (int status = target.api->cudnnBackendExecute(target.handle, plan->raw(), pack.raw()))
    throw Failure(dnn_error(*target.api, status, "convolving"));
}

}  // namespace rlflow::gpu
