#include "inner_session.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include "operators.h"

namespace rlflow::kernels {
namespace {

constexpr std::size_t kMostShapes = 64;

// What the runtime's allocator made, until the end of the block.
struct Text {
  Api api;
  ort::Allocator* allocator;
  char* text = nullptr;
  ~Text() {
    if (text) api.try_call<ort::AllocatorFree>(allocator, static_cast<void*>(text));
  }
};

ort::Allocator* default_allocator(Api api) {
  ort::Allocator* allocator = nullptr;
  api.call<ort::DefaultAllocator>(&allocator);
  return allocator;
}

template <class Count, class Name>
std::vector<std::string> names(Api api, const ort::Session* session) {
  std::size_t count = 0;
  api.call<Count>(session, &count);
  std::vector<std::string> found;
  for (std::size_t number = 0; number < count; ++number) {
    Text name{api, default_allocator(api)};
    api.call<Name>(session, number, name.allocator, &name.text);
    found.emplace_back(name.text);
  }
  return found;
}

void check_key(Api api, const ort::Session* session, const std::string& key) {
  ort::Metadata* metadata = nullptr;
  api.call<ort::SessionMetadata>(session, &metadata);
  Text found{api, default_allocator(api)};
  const bool read = api.try_call<ort::MetadataEntry>(static_cast<const ort::Metadata*>(metadata), found.allocator, kPreparedEntry, &found.text);
  ort::release_metadata(api.table, metadata);
  if (!read || !found.text || key != found.text) throw std::invalid_argument("the prepared file was made for another model");
}

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char one) { return std::isdigit(one); });
}

// Whether the shapes of the inputs say that of the output: each of its extents is a number, or has the name of one of theirs.
bool follows(const Port& output, const std::vector<Port>& inputs) {
  const auto known = [&](const std::string& extent) {
    if (is_number(extent)) return true;
    return !extent.empty() && std::any_of(inputs.begin(), inputs.end(), [&](const Port& input) {
      return std::find(input.extents.begin(), input.extents.end(), extent) != input.extents.end();
    });
  };
  return std::all_of(output.extents.begin(), output.extents.end(), known);
}

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> found;
  found.reserve(texts.size());
  for (const std::string& text : texts) found.push_back(text.c_str());
  return found;
}

std::vector<std::string> names_of(const std::vector<Port>& ports) {
  std::vector<std::string> found;
  found.reserve(ports.size());
  for (const Port& port : ports) found.push_back(port.name);
  return found;
}

// The values that a run made and that nobody else owns.
struct Made {
  Api api;
  std::vector<ort::Value*> values;
  std::vector<bool> owned;
  ~Made() {
    for (std::size_t number = 0; number < values.size(); ++number)
      if (owned[number] && values[number]) ort::release_value(api.table, values[number]);
  }
};

}  // namespace

InnerSession::InnerSession(Api api, const ort::SessionOptions* outer) : api_(api) { api_.call<ort::CloneSessionOptions>(outer, &options_); }

InnerSession::~InnerSession() {
  if (session_) ort::release_session(api_.table, session_);
  if (options_) ort::release_session_options(api_.table, options_);
  if (environment_) ort::release_environment(api_.table, environment_);
}

void InnerSession::open(const std::string& path, const std::string& key) {
  api_.call<ort::AddSessionConfigEntry>(options_, kInnerEntry, "1");
  api_.call<ort::SetOptimizationLevel>(options_, ort::kNoOptimization);
  api_.call<ort::SetOptimizedModelPath>(options_, "");
  api_.call<ort::DisableProfiling>(options_);
  add_operators(api_, options_);
  api_.call<ort::CreateEnvironment>(ort::kWarning, "rlflow.kernels", &environment_);  // the process has one, which this shares
  api_.call<ort::CreateSession>(static_cast<const ort::Environment*>(environment_), path.c_str(), static_cast<const ort::SessionOptions*>(options_),
                                &session_);
  check_key(api_, session_, key);
  inputs_ = names<ort::SessionInputCount, ort::SessionInputName>(api_, session_);
  overridable_ = names<ort::SessionOverridableCount, ort::SessionOverridableName>(api_, session_);
  outputs_ = names<ort::SessionOutputCount, ort::SessionOutputName>(api_, session_);
}

void InnerSession::connect(const std::vector<Port>& inputs, const std::vector<Port>& outputs) {
  given_names_ = names_of(inputs);
  made_names_ = names_of(outputs);
  given_ = pointers(given_names_);
  made_ = pointers(made_names_);
  by_inputs_.clear();
  for (const Port& output : outputs) by_inputs_.push_back(follows(output, inputs));
}

// The outputs' memory is the outer session's where their shapes were seen in a run with inputs of these shapes. Otherwise
// this session allocates them, and they are copied.
void InnerSession::run(ort::KernelContext* context, const ort::RunOptions* options) {
  Values given;
  Shape key;
  for (std::size_t number = 0; number < given_.size(); ++number) {
    given.push_back(api_.input(context, number));
    const Shape shape = shape_of(given.back());
    key.push_back(static_cast<int64_t>(shape.size()));
    key.insert(key.end(), shape.begin(), shape.end());
  }
  std::vector<Shape> shapes = known_shapes(key);
  const bool first = shapes.empty();
  shapes.resize(made_.size());
  Made made{api_, std::vector<ort::Value*>(made_.size()), std::vector<bool>(made_.size(), true)};
  for (std::size_t number = 0; number < made_.size(); ++number) {
    if (first || !by_inputs_[number]) continue;
    made.owned[number] = false;
    api_.call<ort::KernelContextGetOutput>(context, number, std::as_const(shapes[number]).data(), shapes[number].size(), &made.values[number]);
  }
  call(given, options, made.values);
  for (std::size_t number = 0; number < made_.size(); ++number)
    if (made.owned[number]) copy(context, number, made.values[number], shapes[number]);
  if (!first) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (shapes_.size() < kMostShapes) shapes_.emplace(key, shapes);
}

void InnerSession::call(const Values& given, const ort::RunOptions* options, std::vector<ort::Value*>& made) const {
  api_.call<ort::Run>(session_, options, given_.data(), given.data(), given.size(), made_.data(), made.size(), made.data());
}

InnerSession::Shape InnerSession::shape_of(const ort::Value* value) const {
  if (!value) throw std::invalid_argument("rlflow.kernels: an input is missing.");
  ort::TensorInfo* info = nullptr;
  api_.call<ort::GetTensorTypeAndShape>(value, &info);
  std::size_t rank = 0;
  bool read = api_.try_call<ort::GetDimensionsCount>(static_cast<const ort::TensorInfo*>(info), &rank);
  Shape shape(read ? rank : 0);
  read = read && api_.try_call<ort::GetDimensions>(static_cast<const ort::TensorInfo*>(info), shape.data(), rank);
  ort::release_tensor_info(api_.table, info);
  if (!read) throw std::invalid_argument("rlflow.kernels: the shape of a tensor cannot be read.");
  return shape;
}

std::vector<InnerSession::Shape> InnerSession::known_shapes(const Shape& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = shapes_.find(key);
  return found == shapes_.end() ? std::vector<Shape>{} : found->second;
}

void InnerSession::copy(ort::KernelContext* context, std::size_t number, const ort::Value* from, Shape& shape) const {
  shape = shape_of(from);
  ort::Value* to = nullptr;
  api_.call<ort::KernelContextGetOutput>(context, number, std::as_const(shape).data(), shape.size(), &to);
  std::size_t bytes = 0;
  api_.call<ort::TensorBytes>(from, &bytes);
  if (bytes > 0) std::memcpy(api_.data(to), api_.data(from), bytes);
}

}  // namespace rlflow::kernels
