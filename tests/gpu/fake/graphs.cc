// ---- cuDNN's graph interface: every descriptor is checked as it is set, finished and used; what is wrong is a sentence
#include "graphs.h"

#include <cstring>
#include <numeric>

namespace fake {

namespace {

constexpr int kBad = 2000, kNotFinished = 2004, kBadType = 2010, kUnsupported = 3000;
std::string said;                            // what was wrong, for cudnnGetLastErrorString
std::set<Described*> alive;

int refuse(int status, const std::string& sentence) { return said = sentence, status; }

struct Row {                                 // an attribute of a kind of descriptor
  int attribute, type;
  int64_t least, most;
  bool required, readable;                   // a readable one is the library's answer, and cannot be set
  int kind;                                  // of what a descriptor names
};
constexpr int64_t kMany = 1000;
constexpr int kAnyOperation = -1;
const std::map<int, std::vector<Row>> kRows = {
    {kDescribeTensor,
     {{kTensorId, kTypeInt64, 1, 1, true},
      {kTensorType, kTypeDataType, 1, 1, true},
      {kTensorAlignment, kTypeInt64, 1, 1, true},
      {kTensorDims, kTypeInt64, 1, 8, true},
      {kTensorStrides, kTypeInt64, 1, 8, true},
      {kTensorVirtual, kTypeBoolean, 1, 1, false}}},
    {kDescribeConvolution,
     {{kConvolutionCompute, kTypeDataType, 1, 1, true},
      {kConvolutionMode, kTypeConvolutionMode, 1, 1, true},
      {kConvolutionAxes, kTypeInt64, 1, 1, true},
      {kConvolutionDilations, kTypeInt64, 1, 6, true},
      {kConvolutionStrides, kTypeInt64, 1, 6, true},
      {kConvolutionPaddingBefore, kTypeInt64, 1, 6, true},
      {kConvolutionPaddingAfter, kTypeInt64, 1, 6, true}}},
    {kDescribePointwise,
     {{kPointwiseMode, kTypePointwiseMode, 1, 1, true},
      {kPointwiseCompute, kTypeDataType, 1, 1, true},
      {kPointwiseLowerClip, kTypeDouble, 1, 1, false},
      {kPointwiseUpperClip, kTypeDouble, 1, 1, false},
      {kPointwiseLowerSlope, kTypeDouble, 1, 1, false},
      {kPointwiseEluAlpha, kTypeDouble, 1, 1, false}}},
    {kDescribeConvolve,
     {{kConvolveAlpha, kTypeFloat, 1, 1, true},
      {kConvolveBeta, kTypeFloat, 1, 1, true},
      {kConvolveHow, kTypeDescriptor, 1, 1, true, false, kDescribeConvolution},
      {kConvolveX, kTypeDescriptor, 1, 1, true, false, kDescribeTensor},
      {kConvolveW, kTypeDescriptor, 1, 1, true, false, kDescribeTensor},
      {kConvolveY, kTypeDescriptor, 1, 1, true, false, kDescribeTensor}}},
    {kDescribeApply,
     {{kApplyHow, kTypeDescriptor, 1, 1, true, false, kDescribePointwise},
      {kApplyX, kTypeDescriptor, 1, 1, true, false, kDescribeTensor},
      {kApplyB, kTypeDescriptor, 1, 1, false, false, kDescribeTensor},
      {kApplyY, kTypeDescriptor, 1, 1, true, false, kDescribeTensor}}},
    {kDescribeGraph, {{kGraphHandle, kTypeHandle, 1, 1, true}, {kGraphOperations, kTypeDescriptor, 1, kMany, true, false, kAnyOperation}}},
    {kDescribeHeuristic,
     {{kHeuristicGraph, kTypeDescriptor, 1, 1, true, false, kDescribeGraph},
      {kHeuristicMode, kTypeHeuristicMode, 1, 1, true},
      {kHeuristicResults, kTypeDescriptor, 0, kMany, false, true}}},
    {kDescribeEngineConfig, {{kConfigEngine, kTypeDescriptor, 0, 1, false, true}}},
    {kDescribeEngine,
     {{kEngineIndex, kTypeInt64, 1, 1, false, true},
      {kEngineNotes, kTypeNumericalNote, 0, kMany, false, true},
      {kEngineBehaviour, kTypeBehaviourNote, 0, kMany, false, true}}},
    {kDescribePlan,
     {{kPlanHandle, kTypeHandle, 1, 1, true},
      {kPlanConfig, kTypeDescriptor, 1, 1, true, false, kDescribeEngineConfig},
      {kPlanWorkspace, kTypeInt64, 1, 1, false, true}}},
    {kDescribePack,
     {{kPackIds, kTypeInt64, 1, kMany, true}, {kPackPointers, kTypePointer, 1, kMany, true}, {kPackWorkspace, kTypePointer, 1, 1, true}}}};

size_t size_of(int type) {
  return type == kTypeBoolean                                                                                                  ? 1
         : type == kTypeInt64 || type == kTypeDouble || type == kTypePointer || type == kTypeDescriptor || type == kTypeHandle ? 8
                                                                                                                               : 4;
}
const Row* row_of(const Described& d, int attribute) {
  for (const Row& row : kRows.at(d.kind))
    if (row.attribute == attribute) return &row;
  return nullptr;
}
std::string place(const Described& d, int attribute) {
  return "attribute " + std::to_string(attribute) + " of a descriptor of kind " + std::to_string(d.kind);
}
bool known(const void* d) { return alive.contains(static_cast<Described*>(const_cast<void*>(d))); }

int check_named(const Described& d, const Row& row, const void* const* named, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (!known(named[i])) return refuse(kBad, place(d, row.attribute) + " names no descriptor");
    const auto& other = *static_cast<const Described*>(named[i]);
    const bool operation = other.kind == kDescribeConvolve || other.kind == kDescribeApply;
    if (row.kind == kAnyOperation ? !operation : other.kind != row.kind)
      return refuse(2012, place(d, row.attribute) + " names a descriptor of kind " + std::to_string(other.kind));
    if (!other.finished) return refuse(kNotFinished, place(d, row.attribute) + " names a descriptor that is not finished");
  }
  return 0;
}

int finish(Described& d) {
  std::string wrong = d.kind == kDescribeTensor        ? wrong_tensor(d)
                      : d.kind == kDescribeConvolution ? wrong_convolution(d)
                      : d.kind == kDescribePointwise   ? wrong_pointwise(d)
                      : d.kind == kDescribeConvolve    ? wrong_convolve(d)
                      : d.kind == kDescribeApply       ? wrong_apply(d)
                      : d.kind == kDescribeGraph       ? wrong_graph(d)
                      : d.kind == kDescribePack        ? wrong_pack(d)
                                                       : "";
  if (!wrong.empty()) return refuse(kBad, wrong);
  if (d.kind == kDescribeHeuristic) d.results = engines_for(*d.one(kHeuristicGraph), d.number(kHeuristicMode));
  if (d.kind == kDescribeEngineConfig || d.kind == kDescribeEngine) return refuse(kBad, "the heuristic makes these");
  if (d.kind == kDescribePlan) {
    d.engine = d.one(kPlanConfig)->engine;
    d.graph = d.one(kPlanConfig)->graph;
    if (d.engine->fails) return refuse(kUnsupported, "engine " + std::to_string(d.engine->index) + " does not take this convolution");
  }
  return 0;
}

int64_t copy_out(const Described& d, int attribute, int64_t most, void* values) {
  auto numbers = [&](const auto& found) {
    if (values)
      std::copy_n(found.begin(), std::min<size_t>(found.size(), static_cast<size_t>(most)),
                  static_cast<typename std::decay_t<decltype(found)>::value_type*>(values));
    return static_cast<int64_t>(found.size());
  };
  if (attribute == kEngineIndex) return numbers(std::vector<int64_t>{d.engine->index});
  if (attribute == kEngineNotes) return numbers(d.engine->notes);
  if (attribute == kEngineBehaviour) return numbers(d.engine->behaviour);
  if (attribute == kPlanWorkspace) return numbers(std::vector<int64_t>{d.engine->workspace});
  // Descriptors are the caller's, and are filled.
  auto* targets = static_cast<Described**>(values);
  const int64_t count = attribute == kConfigEngine ? 1 : static_cast<int64_t>(d.results.size());
  for (int64_t i = 0; targets && i < std::min(count, most); ++i) {
    targets[i]->engine = attribute == kConfigEngine ? d.engine : d.results[static_cast<size_t>(i)];
    targets[i]->graph = attribute == kConfigEngine ? d.graph : d.one(kHeuristicGraph);
    targets[i]->finished = true;
  }
  return count;
}

}  // namespace
}  // namespace fake

API void cudnnGetLastErrorString(char* text, size_t size) { std::strncpy(text, said.c_str(), size), said.clear(); }
API int cudnnBackendCreateDescriptor(int kind, void** d) {
  if (!kRows.contains(kind)) return refuse(kUnsupported, "there are no descriptors of kind " + std::to_string(kind));
  auto* made = new Described;
  made->kind = kind;
  alive.insert(made);
  return *d = made, 0;
}
API int cudnnBackendDestroyDescriptor(void* d) {
  if (!known(d)) return refuse(kBad, "what is given back is no descriptor");
  alive.erase(static_cast<Described*>(d));
  return delete static_cast<Described*>(d), 0;
}
API int cudnnBackendSetAttribute(void* raw, int attribute, int type, int64_t count, const void* values) {
  if (!known(raw)) return refuse(kBad, "there is no such descriptor");
  auto& d = *static_cast<Described*>(raw);
  if (d.finished) return refuse(kBad, place(d, attribute) + " is set after it was finished");
  const Row* row = row_of(d, attribute);
  if (!row || row->readable) return refuse(kBad, place(d, attribute) + " cannot be set");
  const bool real = (attribute == kConvolveAlpha || attribute == kConvolveBeta) && type == kTypeDouble;
  if (type != row->type && !real)
    return refuse(kBadType, place(d, attribute) + " has the type " + std::to_string(row->type) + ", not " + std::to_string(type));
  if (count < row->least || count > row->most) return refuse(kBad, place(d, attribute) + " has " + std::to_string(count) + " elements");
  if (!values) return refuse(2002, place(d, attribute) + " has no values");
  if (type == kTypeDescriptor)
    if (int status = check_named(d, *row, static_cast<const void* const*>(values), count)) return status;
  d.values[attribute] = {type, count, std::string(static_cast<const char*>(values), static_cast<size_t>(count) * size_of(type))};
  return 0;
}
API int cudnnBackendGetAttribute(void* raw, int attribute, int type, int64_t most, int64_t* count, void* values) {
  if (!known(raw)) return refuse(kBad, "there is no such descriptor");
  auto& d = *static_cast<Described*>(raw);
  if (!d.finished) return refuse(kNotFinished, place(d, attribute) + " is asked for before it was finished");
  const Row* row = row_of(d, attribute);
  if (!row || !row->readable) return refuse(kBad, place(d, attribute) + " cannot be asked for");
  if (type != row->type)
    return refuse(kBadType, place(d, attribute) + " has the type " + std::to_string(row->type) + ", not " + std::to_string(type));
  if (type == kTypeDescriptor && values)
    for (int64_t i = 0; i < most; ++i)
      if (void* target = static_cast<void**>(values)[i];
          !known(target) || static_cast<Described*>(target)->kind != (attribute == kConfigEngine ? kDescribeEngine : kDescribeEngineConfig))
        return refuse(2012, place(d, attribute) + " fills descriptors that the caller has made");
  return *count = copy_out(d, attribute, most, values), 0;
}
API int cudnnBackendFinalize(void* raw) {
  if (!known(raw)) return refuse(kBad, "there is no such descriptor");
  auto& d = *static_cast<Described*>(raw);
  if (d.finished) return refuse(kBad, "a descriptor is finished twice");
  for (const Row& row : kRows.at(d.kind))
    if (row.required && !d.has(row.attribute)) return refuse(kBad, place(d, row.attribute) + " is missing");
  if (int status = finish(d)) return status;
  return d.finished = true, 0;
}
API int cudnnBackendExecute(void*, void* raw_plan, void* raw_pack) {
  if (!known(raw_plan) || !known(raw_pack)) return refuse(kBad, "there is no such descriptor");
  const auto &plan = *static_cast<Described*>(raw_plan), &pack = *static_cast<Described*>(raw_pack);
  if (plan.kind != kDescribePlan || pack.kind != kDescribePack) return refuse(2012, "a plan and its operands are needed");
  if (!plan.finished || !pack.finished) return refuse(kNotFinished, "what is executed is not finished");
  Operands operands;
  if (std::string wrong = bind(*plan.graph, pack, operands); !wrong.empty()) return refuse(kBad, wrong);
  void* workspace = pack.pointers(kPackWorkspace).at(0);
  const int64_t bytes = plan.engine->workspace;
  if (bytes && !workspace) return refuse(kBad, "the plan needs " + std::to_string(bytes) + " bytes of workspace and got none");
  return submit(plan.engine->microseconds, [=, calls = calls_of(*plan.graph)] {
    if (bytes) std::memset(workspace, 7, static_cast<size_t>(bytes));
    compute(calls, operands);
  });
}
