// CreateEpFactories and ReleaseEpFactory, by which ONNX Runtime loads this library as a plug-in execution provider. It
// takes the whole graph of a model that was prepared, and runs the prepared file in its place, in a session of its own:
// so blocked tensors stay blocked between the layers. Of any other model it takes nothing, and says why in one line.
#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "inner_session.h"
#include "isa.h"
#include "ticket.h"

#if defined(_WIN32)
#define RLFLOW_EXPORT extern "C" __declspec(dllexport)
#else
#define RLFLOW_EXPORT extern "C" __attribute__((visibility("default")))
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <dlfcn.h>
#endif

namespace rlflow::kernels {
namespace {

constexpr const char* kProvider = "RlflowExecutionProvider";
constexpr const char* kTicketOption = "ep.rlflowexecutionprovider.ticket";  // as the runtime writes options of a provider
constexpr const char* kTicketEnding = ".kernels";                           // of the ticket beside a model
constexpr std::size_t kMostText = 400;                                      // of a reason, which the runtime may have given

struct Factory : ort::Factory {
  Api api;
  std::string runtime;  // its version
};

// The list that two entries of the table give, one its length and one its items.
template <class Count, class Items, class Item, class Owner>
std::vector<const Item*> list(Api api, const Owner* owner) {
  std::size_t count = 0;
  api.call<Count>(owner, &count);
  std::vector<const Item*> found(count);
  if (count > 0) api.call<Items>(owner, found.data(), count);
  return found;
}

Port port_of(Api api, const ort::ValueInfo* info) {
  Port port;
  const char* name = nullptr;
  api.call<ort::ValueInfoName>(info, &name);
  port.name = name;
  const ort::TypeInfo* type = nullptr;
  const ort::TensorInfo* tensor = nullptr;
  if (!api.try_call<ort::ValueInfoType>(info, &type) || !type) return port;
  if (!api.try_call<ort::CastToTensorInfo>(type, &tensor) || !tensor) return port;
  api.call<ort::GetTensorElementType>(tensor, &port.type);
  std::size_t rank = 0;
  api.call<ort::GetDimensionsCount>(tensor, &rank);
  std::vector<int64_t> sizes(rank);
  std::vector<const char*> symbols(rank);
  api.call<ort::GetDimensions>(tensor, sizes.data(), rank);
  api.call<ort::GetSymbolicDimensions>(tensor, symbols.data(), rank);
  for (std::size_t axis = 0; axis < rank; ++axis)
    port.extents.push_back(sizes[axis] >= 0 ? std::to_string(sizes[axis]) : std::string(symbols[axis] ? symbols[axis] : ""));
  return port;
}

std::vector<Port> ports_of(Api api, const std::vector<const ort::ValueInfo*>& infos) {
  std::vector<Port> found;
  found.reserve(infos.size());
  for (const ort::ValueInfo* info : infos) found.push_back(port_of(api, info));
  return found;
}

bool has(const std::vector<std::string>& names, const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); }

std::string entry_of(Api api, const ort::SessionOptions* options, const char* name) {
  std::size_t size = 0;
  if (!api.try_call<ort::GetSessionConfigEntry>(options, name, static_cast<char*>(nullptr), &size) || size == 0) return "";
  std::string value(size, '\0');
  api.call<ort::GetSessionConfigEntry>(options, name, value.data(), &size);
  return value.substr(0, value.find('\0'));
}

// Whether the graph is the body of a loop or a branch, which belongs to the whole. Version 1.23 does not know its parent.
bool is_body(Api api, const ort::Graph* graph, const std::vector<const ort::Node*>& nodes) {
  const ort::Node* parent = nullptr;
  api.call<ort::GraphParent>(graph, &parent);
  if (parent) return true;
  for (const ort::Node* node : nodes) {
    for (const ort::ValueInfo* info : list<ort::NodeInputCount, ort::NodeInputs, ort::ValueInfo>(api, node)) {
      bool outer = false;
      if (info && api.try_call<ort::IsFromOuterScope>(info, &outer) && outer) return true;
    }
  }
  return false;
}

void expect(bool holds, const char* reason) {
  if (!holds) throw std::invalid_argument(reason);
}

// The options of the run that this thread does; null where the nodes run in other threads than that which started them.
thread_local const ort::RunOptions* current_run = nullptr;

class Provider : public ort::Ep {
 public:
  Provider(const Factory& factory, const ort::SessionOptions* options, const ort::Logger* logger);

 private:
  struct Fused : ort::ComputeInfo {
    Api api;
    InnerSession* session;
  };

  void fill();
  ort::Status* take(const ort::Graph* graph, ort::SupportInfo* support) noexcept;
  void take_whole(const ort::Graph* graph, const std::vector<const ort::Node*>& nodes, ort::SupportInfo* support);
  std::string model_of(const ort::Graph* graph) const;
  void check_ports(const ort::Graph* graph) const;
  ort::Status* compile(const ort::Node** fused, std::size_t count, ort::ComputeInfo** infos);
  void warn(const std::string& reason) const;

  Api api_;
  std::string runtime_, ticket_;
  const ort::Logger* logger_;
  bool idle_;  // for an inner session, or one that writes a compiled model
  bool compiled_ = false;
  std::unique_ptr<InnerSession> session_;
};

Provider::Provider(const Factory& factory, const ort::SessionOptions* options, const ort::Logger* logger)
    : ort::Ep{}, api_(factory.api), runtime_(factory.runtime), ticket_(entry_of(api_, options, kTicketOption)), logger_(logger) {
  idle_ = !entry_of(api_, options, kInnerEntry).empty() || entry_of(api_, options, "ep.context_enable") == "1";
  if (!idle_) session_ = std::make_unique<InnerSession>(api_, options);
  fill();
}

void Provider::fill() {
  version = ort::kProviderVersion;
  name = [](const ort::Ep*) { return kProvider; };
  capability = [](ort::Ep* self, const ort::Graph* graph, ort::SupportInfo* support) { return static_cast<Provider*>(self)->take(graph, support); };
  ort::Ep::compile = [](ort::Ep* self, const ort::Graph**, const ort::Node** fused, std::size_t count, ort::ComputeInfo** infos, ort::Node**) {
    return static_cast<Provider*>(self)->compile(fused, count, infos);
  };
  release_compute_infos = [](ort::Ep*, ort::ComputeInfo** infos, std::size_t count) {
    for (std::size_t number = 0; number < count; ++number) delete static_cast<Fused*>(infos[number]);
  };
  if (idle_) return;
  run_starts = [](ort::Ep*, const ort::RunOptions* options) -> ort::Status* {
    current_run = options;
    return nullptr;
  };
  run_ends = [](ort::Ep*, const ort::RunOptions*, bool) -> ort::Status* {
    current_run = nullptr;
    return nullptr;
  };
}

// Never fails: what goes wrong is a warning, and the graph is left to the other providers.
ort::Status* Provider::take(const ort::Graph* graph, ort::SupportInfo* support) noexcept {
  if (idle_ || compiled_ || !session_) return nullptr;
  ort::Status* status = api_.guarded([&] {
    const std::vector<const ort::Node*> nodes = list<ort::GraphNodeCount, ort::GraphNodes, ort::Node>(api_, graph);
    if (!nodes.empty() && !is_body(api_, graph, nodes)) take_whole(graph, nodes, support);
  });
  if (!status) return nullptr;
  session_.reset();
  api_.guarded([&] { warn(ort::message_of(api_.table, status)); });
  ort::release_status(api_.table, status);
  return nullptr;
}

void Provider::take_whole(const ort::Graph* graph, const std::vector<const ort::Node*>& nodes, ort::SupportInfo* support) {
  for (const ort::Node* node : nodes) {
    const char* owner = nullptr;
    api_.call<ort::NodeProvider>(node, &owner);
    expect(!owner || !*owner, "another execution provider has a part of the graph");
  }
  const std::string model = model_of(graph);
  const Ticket ticket = admitted(ticket_.empty() ? model + kTicketEnding : ticket_, model, runtime_);
  if (!session_->is_open()) session_->open(ticket.prepared, ticket.key);  // the runtime may ask twice
  check_ports(graph);
  const ort::FusionOptions options{ort::kProviderVersion, true};
  const void* table = ort::ep_api(api_.table);
  if (ort::Status* status = ort::AddNodesToFuse::in(table)(support, nodes.data(), nodes.size(), &options)) throw RuntimeError{status};
}

std::string Provider::model_of(const ort::Graph* graph) const {
  const char* path = nullptr;
  api_.call<ort::GraphModelPath>(graph, &path);
  expect(path && *path, "the model is not opened by its path, so nothing says which prepared file is its own");
  return path;
}

// All that the fused node has the prepared file must have, as tensors whose bytes can be copied. Of an input that no node
// reads, the fused node knows nothing, and the prepared file does not need it.
void Provider::check_ports(const ort::Graph* graph) const {
  for (const ort::ValueInfo* info : list<ort::GraphInputCount, ort::GraphInputs, ort::ValueInfo>(api_, graph)) {
    std::size_t consumers = 0;
    api_.call<ort::ConsumerCount>(info, &consumers);
    if (consumers == 0) continue;
    const Port port = port_of(api_, info);
    expect(port.type != 0, "an input of the model is no tensor");
    expect(has(session_->inputs(), port.name) || has(session_->overridable(), port.name), "the prepared file has other inputs than the model");
  }
  for (const ort::ValueInfo* info : list<ort::GraphOutputCount, ort::GraphOutputs, ort::ValueInfo>(api_, graph)) {
    const Port port = port_of(api_, info);
    expect(port.type != 0 && port.type != ort::kString, "an output of the model is no tensor of numbers");
    expect(has(session_->outputs(), port.name), "the prepared file has other outputs than the model");
  }
}

ort::Status* Provider::compile(const ort::Node** fused, std::size_t count, ort::ComputeInfo** infos) {
  return api_.guarded([&] {
    if (count != 1 || !session_) throw std::runtime_error("rlflow.kernels: the whole graph was to be compiled, as one node.");
    session_->connect(ports_of(api_, list<ort::NodeInputCount, ort::NodeInputs, ort::ValueInfo>(api_, fused[0])),
                      ports_of(api_, list<ort::NodeOutputCount, ort::NodeOutputs, ort::ValueInfo>(api_, fused[0])));
    auto* info = new Fused{{}, api_, session_.get()};
    info->version = ort::kProviderVersion;
    info->create_state = [](ort::ComputeInfo* self, ort::NodeContext*, void** state) -> ort::Status* {
      *state = self;
      return nullptr;
    };
    info->compute = [](ort::ComputeInfo*, void* state, ort::KernelContext* context) -> ort::Status* {
      const Fused& self = *static_cast<Fused*>(static_cast<ort::ComputeInfo*>(state));
      return self.api.guarded([&] { self.session->run(context, current_run); });
    };
    info->release_state = [](ort::ComputeInfo*, void*) {};
    infos[0] = info;
    compiled_ = true;
  });
}

void Provider::warn(const std::string& reason) const {
  std::string text = "rlflow.kernels: the model runs without them: " + reason.substr(0, kMostText);
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.back() != '.') text += '.';
  api_.try_call<ort::LogMessage>(logger_, ort::kWarning, text.c_str(), "provider.cc", 0, "take");
}

// --- the factory ---

ort::Status* add_devices(ort::Factory* self, const ort::HardwareDevice* const* devices, std::size_t given, ort::EpDevice** found, std::size_t most,
                         std::size_t* count) {
  const Api& api = static_cast<Factory*>(self)->api;
  *count = 0;
  for (std::size_t number = 0; number < given && *count < most; ++number) {
    if (ort::device_type(api.table, devices[number]) != ort::kProcessor) continue;
    ort::Status* status = ort::CreateEpDevice::in(ort::ep_api(api.table))(self, devices[number], nullptr, nullptr, &found[*count]);
    if (status) return status;
    ++*count;
  }
  return nullptr;
}

ort::Status* create_provider(ort::Factory* self, const ort::HardwareDevice* const*, const ort::KeyValuePairs* const*, std::size_t,
                             const ort::SessionOptions* options, const ort::Logger* logger, ort::Ep** made) {
  const Factory& factory = *static_cast<Factory*>(self);
  return factory.api.guarded([&] { *made = new Provider(factory, options, logger); });
}

void fill(Factory& one) {
  one.version = ort::kProviderVersion;
  one.name = [](const ort::Factory*) { return kProvider; };
  one.vendor = [](const ort::Factory*) { return "rlflow"; };
  one.devices = add_devices;
  one.create = create_provider;
  one.release = [](ort::Factory*, ort::Ep* made) { delete static_cast<Provider*>(made); };
  one.vendor_id = [](const ort::Factory*) -> uint32_t { return 0; };
  one.version_text = [](const ort::Factory*) { return "1.0.0"; };
  // The runtime calls most of the next six without asking whether they are there. All say that there is nothing of the kind.
  one.compatibility = [](ort::Factory*, const ort::HardwareDevice* const*, std::size_t, const char*, int* answer) -> ort::Status* {
    *answer = 0;  // not applicable
    return nullptr;
  };
  one.create_allocator = [](ort::Factory*, const ort::MemoryInfo*, const ort::KeyValuePairs*, ort::Allocator** made) -> ort::Status* {
    *made = nullptr;
    return nullptr;
  };
  one.release_allocator = [](ort::Factory*, ort::Allocator*) {};
  one.create_data_transfer = [](ort::Factory*, ort::DataTransfer** made) -> ort::Status* {
    *made = nullptr;
    return nullptr;
  };
  one.has_streams = [](const ort::Factory*) { return false; };
  one.create_stream = [](ort::Factory*, const ort::MemoryDevice*, const ort::KeyValuePairs*, ort::SyncStream** made) -> ort::Status* {
    *made = nullptr;
    return nullptr;
  };
}

// Factories are never freed, and the library is never unloaded: a session may outlive the provider's registration.
Factory& new_factory(Api api, const char* runtime) {
  static std::mutex mutex;
  static std::deque<Factory>& all = *new std::deque<Factory>;
  const std::lock_guard<std::mutex> lock(mutex);
#if defined(__unix__) || defined(__APPLE__)
  Dl_info here;
  if (dladdr(reinterpret_cast<void*>(&fill), &here) != 0 && here.dli_fname) dlopen(here.dli_fname, RTLD_NOW | RTLD_NODELETE);
#endif
  Factory& made = all.emplace_back(Factory{{}, api, runtime ? runtime : ""});
  fill(made);
  return made;
}

}  // namespace
}  // namespace rlflow::kernels

RLFLOW_EXPORT rlflow::ort::Status* CreateEpFactories(const char*, const rlflow::ort::ApiBase* base, const rlflow::ort::Logger*,
                                                     rlflow::ort::Factory** factories, std::size_t most, std::size_t* count) {
  using rlflow::kernels::Api;
  namespace ort = rlflow::ort;
  *count = 0;
  const Api oldest{base->get_api(1)};
  const Api api{base->get_api(ort::kProviderVersion)};
  if (!api.table) return oldest.status(ort::kFail, "The execution provider of rlflow.kernels needs ONNX Runtime 1.23 or a later 1.x.");
  return api.guarded([&] {
    if (most == 0) throw std::invalid_argument("rlflow.kernels: there is no room for a factory of execution providers.");
    rlflow::kernels::process_isa();  // refuses what RLFLOW_KERNELS_ISA may not say
    factories[0] = &rlflow::kernels::new_factory(api, base->version_string());
    *count = 1;
  });
}

RLFLOW_EXPORT rlflow::ort::Status* ReleaseEpFactory(rlflow::ort::Factory*) { return nullptr; }
