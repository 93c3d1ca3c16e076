// A plan in a GPU's memory: placed, tuned, captured, run and timed.
#include <algorithm>
#include <cstring>

#include "plan.h"

namespace rlflow::gpu {
namespace {

constexpr size_t kAlign = 256;
size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }
constexpr int kMostCopies = 32;
constexpr size_t kMostSteps = 20000;         // in one captured chain
constexpr int kTries = 5;                    // samples of an alternative

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// Largest tensors first, each at the lowest offset where nothing that lives at the same time lies.
void place_arena(Plan& plan) {
  std::vector<Ref> order, placed;
  for (Ref r = 0; r < plan.tensors.size(); ++r) {
    const Tensor& t = plan.tensors[r];
    if (t.place == Tensor::Place::kArena && t.alias == kNoRef && (t.last >= 0 || t.first < 0)) order.push_back(r);
  }
  std::stable_sort(order.begin(), order.end(), [&](Ref a, Ref b) { return plan.tensors[a].bytes > plan.tensors[b].bytes; });
  for (Ref r : order) {
    Tensor& t = plan.tensors[r];
    std::vector<std::pair<size_t, size_t>> taken;
    for (Ref o : placed) {
      const Tensor& other = plan.tensors[o];
      if (other.first <= t.last && t.first <= other.last) taken.emplace_back(other.offset, other.offset + aligned(std::max<size_t>(other.bytes, 1)));
    }
    std::sort(taken.begin(), taken.end());
    size_t at = 0, size = aligned(std::max<size_t>(t.bytes, 1));
    for (const auto& [begin, end] : taken) {
      if (at + size <= begin) break;
      at = std::max(at, end);
    }
    t.offset = at;
    plan.arena_bytes = std::max(plan.arena_bytes, at + size);
    placed.push_back(r);
  }
}

}  // namespace

struct Executable::Impl {
  Plan plan;
  std::vector<Ref> inputs, outputs;
  Replay replay;
  bool ready = false;

  void enqueue(int copy) const {
    for (const Stage& s : plan.stages)
      for (const Step& step : s.alternatives[s.chosen].steps) step(plan, copy);
  }
  size_t step_count() const {
    size_t count = 0;
    for (const Stage& s : plan.stages) count += s.alternatives[s.chosen].steps.size();
    return count;
  }
  double time_once(const Event& begin, const Event& end, const std::vector<Step>& steps) const {
    begin.record();
    for (const Step& step : steps) step(plan, 0);
    end.record();
    return end.ms_since(begin);
  }
  // The median of some samples. What is short is captured: to start its kernels one by one would take longer than they run.
  double time_of(const Event& begin, const Event& end, const std::vector<Step>& steps) const {
    const int runs = std::clamp(static_cast<int>(0.1 / std::max(time_once(begin, end, steps), 1e-3)), 1, 20);
    Replay replay(*plan.device, [&] {
      for (int i = 0; i < runs; ++i)
        for (const Step& step : steps) step(plan, 0);
    });
    replay.launch();
    std::vector<double> samples;
    samples.reserve(kTries);
    for (int k = 0; k < kTries; ++k) {
      begin.record();
      replay.launch();
      end.record();
      samples.push_back(static_cast<double>(end.ms_since(begin)) / runs);
    }
    return median(samples);
  }
  void choose(Stage& s, std::map<std::string, std::string>& known);
};

// The fastest alternative that runs; operands hold what the stages before have computed.
void Executable::Impl::choose(Stage& s, std::map<std::string, std::string>& known) {
  std::string refusal;
  Event begin(*plan.device), end(*plan.device);
  double best = 0;
  bool found = false;
  auto before = known.find(s.key);
  for (size_t i = 0; i < s.alternatives.size(); ++i) {
    Alternative& a = s.alternatives[i];
    const bool remembered = !s.key.empty() && before != known.end() && before->second == a.what;
    const bool is_settled = remembered || !plan.settings.tune || s.alternatives.size() == 1;
    double ms = 0;
    try {
      for (const Step& step : a.steps) step(plan, 0);
      plan.device->synchronize();
      if (!is_settled) ms = time_of(begin, end, a.steps);
    } catch (const Failure& failure) {
      a.works = false;
      refusal = failure.what();
      continue;
    }
    if (is_settled || !found || ms < best) best = ms, s.chosen = i, found = true;
    if (is_settled) break;
  }
  if (!found) throw Failure("No routine works for a step (" + s.alternatives.front().what + "): " + refusal);
  const Alternative& chosen = s.alternatives[s.chosen];
  if (!s.key.empty()) known[s.key] = chosen.what;
  if (s.alternatives.size() > 1)  // what was tried last has written there; the next stage reads the choice's result
    for (const Step& step : chosen.steps) step(plan, 0);
}

Executable::Executable(std::shared_ptr<Device> device, GraphPtr graph, const std::vector<std::pair<ValueId, std::string>>& constants,
                       const Settings& settings)
    : impl_(std::make_unique<Impl>()) {
  Plan& plan = impl_->plan;
  plan.device = std::move(device);
  plan.graph = std::move(graph);
  plan.settings = settings;
  plan.device->use();
  Planner(plan).run(constants);
  plan.device->compile();
  for (NodeId n : plan.graph->graph_inputs()) impl_->inputs.push_back(plan.graph->node(n).out_begin);
  for (ValueId v : plan.graph->outputs()) impl_->outputs.push_back(plan.root(v));
  place_arena(plan);
  for (auto& [r, content] : plan.contents) {
    plan.tensors[r].offset = plan.constant_bytes;
    plan.constant_bytes += aligned(std::max<size_t>(content.size(), 1));
  }
  const size_t read_bytes = plan.constant_bytes - plan.turned_bytes;  // a run reads one layout of each
  if (settings.rotate > read_bytes && read_bytes > 0)
    plan.copies = static_cast<int>(std::min<size_t>(kMostCopies, (settings.rotate + read_bytes - 1) / read_bytes));
  plan.arena = Memory(*plan.device, plan.arena_bytes);
  plan.constants = Memory(*plan.device, plan.constant_bytes * static_cast<size_t>(plan.copies));
  plan.workspace = Memory(*plan.device, plan.workspace_bytes);
  const Device& d = *plan.device;
  if (plan.arena_bytes) d.check(d.api().cuMemsetD8Async(plan.arena.at(), 0, plan.arena_bytes, d.stream()), "clearing memory");
  for (const auto& [r, content] : plan.contents)
    for (int copy = 0; copy < plan.copies && !content.empty(); ++copy)
      d.check(d.api().cuMemcpyHtoD_v2(plan.address(r, copy), content.data(), content.size()), "copying constants to the GPU");
  d.finish_copies();
  d.synchronize();
  plan.contents.clear();
}
Executable::~Executable() {
  if (!impl_) return;
  impl_->plan.device->api().cuStreamSynchronize(impl_->plan.device->stream());
}
Executable::Executable(Executable&&) noexcept = default;

size_t Executable::input_bytes(size_t index) const { return impl_->plan.tensors[impl_->inputs.at(index)].bytes; }
size_t Executable::output_bytes(size_t index) const { return impl_->plan.tensors[impl_->outputs.at(index)].bytes; }
void Executable::set_input(size_t index, const void* data) {
  const Device& d = *impl_->plan.device;
  d.use();
  size_t bytes = input_bytes(index);
  if (bytes == 0) return;
  d.check(d.api().cuMemcpyHtoD_v2(impl_->plan.address(impl_->inputs[index], 0), data, bytes), "copying an input to the GPU");
  d.finish_copies();
}
void Executable::get_output(size_t index, void* data) const {
  const Device& d = *impl_->plan.device;
  d.use();
  if (size_t bytes = output_bytes(index))
    d.check(d.api().cuMemcpyDtoH_v2(data, impl_->plan.address(impl_->outputs[index], 0), bytes), "copying an output from the GPU");
}

namespace {
// Choices made by this process, for each GPU and setting: regions of one kind recur.
std::map<std::string, std::string>& tactics_of(const Plan& plan) {
  static auto& all = *new std::map<std::pair<const Device*, int>, std::map<std::string, std::string>>;
  return all[{plan.device.get(), static_cast<int>(plan.settings.precision)}];
}
}  // namespace

void Executable::prepare() {
  Impl& e = *impl_;
  if (e.ready) return;
  e.plan.device->use();
  std::map<std::string, std::string>& known = tactics_of(e.plan);
  for (Stage& s : e.plan.stages)
    if (!s.alternatives.empty()) e.choose(s, known);
  std::erase_if(e.plan.stages, [](const Stage& s) { return s.alternatives.empty() || s.alternatives[s.chosen].steps.empty(); });
  e.plan.device->synchronize();
  if (!e.plan.stages.empty()) e.replay = Replay(*e.plan.device, [&] { e.enqueue(0); });
  e.ready = true;
}

void Executable::run() {
  prepare();
  impl_->plan.device->use();
  if (impl_->replay) impl_->replay.launch();
  impl_->plan.device->synchronize();
}

std::vector<double> Executable::time(int samples, double least_ms) {
  prepare();
  Impl& e = *impl_;
  e.plan.device->use();
  if (!e.replay) return std::vector<double>(static_cast<size_t>(samples), 0.0);
  Event begin(*e.plan.device), end(*e.plan.device);
  auto timed = [&](const Replay& what, int launches) {
    begin.record();
    for (int i = 0; i < launches; ++i) what.launch();
    end.record();
    return static_cast<double>(end.ms_since(begin)) / launches;
  };
  timed(e.replay, 2);                        // clocks and caches warm up
  double once = std::max(timed(e.replay, 3), 1e-4);
  // Short graphs are chained, because a replay costs some microseconds before its first kernel starts.
  int chain = static_cast<int>(std::clamp(least_ms / once, 1.0, 64.0));
  chain = std::max(chain, e.plan.copies);
  chain = static_cast<int>(std::min<size_t>(static_cast<size_t>(chain), std::max<size_t>(1, kMostSteps / std::max<size_t>(e.step_count(), 1))));
  Replay chained;
  if (chain > 1)
    chained = Replay(*e.plan.device, [&] {
      for (int i = 0; i < chain; ++i) e.enqueue(i % e.plan.copies);
    });
  const Replay& what = chain > 1 ? chained : e.replay;
  double each = std::max(timed(what, 1), 1e-4);
  int launches = std::clamp(static_cast<int>(least_ms / each), 1, 1000);
  timed(what, launches);
  std::vector<double> found;
  found.reserve(static_cast<size_t>(std::max(samples, 0)));
  for (int i = 0; i < samples; ++i) found.push_back(timed(what, launches) / chain);
  return found;
}

std::vector<std::pair<std::string, double>> Executable::profile(int samples) {
  prepare();
  Impl& e = *impl_;
  e.plan.device->use();
  Event begin(*e.plan.device), end(*e.plan.device);
  std::vector<std::pair<std::string, double>> found;
  for (const Stage& s : e.plan.stages) {
    const Alternative& a = s.alternatives[s.chosen];
    std::vector<double> times;
    times.reserve(static_cast<size_t>(std::max(samples, 0)));
    for (int i = 0; i < samples; ++i) times.push_back(e.time_once(begin, end, a.steps));
    found.emplace_back(a.what, median(times));
  }
  return found;
}

std::vector<std::string> Executable::steps() const {
  std::vector<std::string> found;
  for (const Stage& s : impl_->plan.stages)
    if (!s.alternatives.empty()) found.push_back(s.alternatives[s.chosen].what);
  return found;
}

size_t Executable::memory() const { return impl_->plan.arena.bytes() + impl_->plan.constants.bytes() + impl_->plan.workspace.bytes(); }

std::vector<std::string> problems(const std::vector<std::string>& folders, bool system) { return Libraries::load(folders, system).problems; }
std::shared_ptr<Device> open_device(const std::vector<std::string>& folders, bool system, int number) {
  return std::make_shared<Device>(folders, system, number);
}

DeviceReport report(const Device& device) {
  const Libraries& l = device.libraries();
  const DeviceFacts& f = device.facts();
  auto cuda = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
  auto parts = [](size_t v, size_t major) {
    return std::to_string(v / major) + "." + std::to_string(v % major / 100) + "." + std::to_string(v % 100);
  };
  return {f.name,
          "sm_" + std::to_string(f.major) + std::to_string(f.minor),
          parts(l.cudnn, 10000),
          parts(l.cublas, 10000),
          cuda(l.driver),
          std::to_string(l.nvrtc_major) + "." + std::to_string(l.nvrtc_minor),
          f.processors,
          f.memory,
          static_cast<size_t>(f.cache_bytes),
          l.found};
}

}  // namespace rlflow::gpu
