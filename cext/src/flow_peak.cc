#include "rlflow/flow_peak.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "buffers.h"
#include "rlflow/error.h"

namespace rlflow {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kUsage, "A flow in parts: " + what); }

void expect(bool holds, const char* what) {
  if (!holds) refuse(std::string(what) + " does not fit the rest.");
}

void expect_csr(const std::vector<int32_t>& begin, const std::vector<int32_t>& entries, size_t rows, int32_t end, const char* what) {
  expect(begin.size() == rows + 1 && begin.front() == 0 && begin.back() == static_cast<int64_t>(entries.size()), what);
  expect(std::is_sorted(begin.begin(), begin.end()), what);
  expect(std::all_of(entries.begin(), entries.end(), [end](int32_t v) { return v >= 0 && v < end; }), what);
}

bool contains(const std::vector<int32_t>& values, int32_t value) { return std::find(values.begin(), values.end(), value) != values.end(); }

struct Job {
  std::vector<int32_t> inputs, outputs;
  std::vector<std::pair<int32_t, int32_t>> reuses;
  int32_t bits = 0, node = -1;
  FlowLayout layout = FlowLayout::kPlain;
  double flops = 0.0;
  int64_t workspace = 0;
  bool gone = false;  // it became part of a later one
};

// The size of a value in one layout.
struct Size {
  int64_t bytes = 0;
  int32_t shape = -1, kind = -1;
};

struct Values {
  std::vector<Size> plain, filled, now;
  std::vector<uint8_t> hidden, scalar, blocked, taken;
  std::vector<int32_t> readers;
  std::vector<std::array<int32_t, 2>> copies;  // in the plain, and in the blocked layout; -1: none yet

  void add(const FlowPart& part) {
    for (int32_t v = 0; v < part.values(); ++v) {
      plain.push_back({part.bytes[v], part.shape[v], part.kind[v]});
      filled.push_back({part.filled_bytes[v], part.filled_shape[v], part.filled_kind[v]});
      hidden.push_back(part.hidden[v]);
      scalar.push_back(part.scalar[v]);
    }
  }
  // When all parts are added.
  void close() {
    now = plain;
    blocked.assign(plain.size(), 0);
    taken.assign(plain.size(), 0);
    readers.assign(plain.size(), 0);
    copies.assign(plain.size(), {-1, -1});
  }
  int32_t copy(int32_t value, bool wants_blocked) {
    const int32_t made = static_cast<int32_t>(now.size());
    now.push_back(wants_blocked ? filled[value] : plain[value]);
    plain.push_back(plain[value]);
    filled.push_back(filled[value]);
    hidden.push_back(hidden[value]);
    scalar.push_back(scalar[value]);
    blocked.push_back(0);
    taken.push_back(0);
    readers.push_back(0);
    copies.push_back({-1, -1});
    return made;
  }
  bool is_sized(int32_t value) const { return now[value].shape >= 0 && !hidden[value]; }
};

Job job_of(const FlowPart& part, int32_t number, int32_t offset) {
  const auto moved = [&](const std::vector<int32_t>& values, int32_t begin, int32_t end) {
    std::vector<int32_t> found(values.begin() + begin, values.begin() + end);
    for (int32_t& v : found)
      if (v >= part.outer) v += offset;
    return found;
  };
  Job job;
  job.inputs = moved(part.input, part.input_begin[number], part.input_begin[number + 1]);
  job.outputs = moved(part.output, part.output_begin[number], part.output_begin[number + 1]);
  for (int32_t r = part.reuse_begin[number]; r < part.reuse_begin[number + 1]; ++r)
    job.reuses.emplace_back(part.reuse_input[r], part.reuse_output[r]);
  job.bits = part.bits[number];
  job.node = part.node[number];
  job.layout = static_cast<FlowLayout>(part.layout[number]);
  job.flops = part.flops[number];
  job.workspace = part.workspace[number];
  return job;
}

// The jobs with the copies between the layouts, and the sizes that values have in theirs.
class Laid {
 public:
  Laid(const std::vector<Job>& given, Values& values) : values_(values), makers_(values.now.size(), -1) {
    for (const Job& job : given)
      for (int32_t v : job.inputs) ++values_.readers[v];
    find_halves(given);
    for (const Job& job : given) add(job);
  }
  std::vector<Job> jobs;

 private:
  // What is computed in one kernel with the product that reads it: never there.
  void find_halves(const std::vector<Job>& given) {
    std::vector<int32_t> of(values_.now.size(), -1), reader(values_.now.size(), -1);
    for (const Job& job : given)
      if (job.bits & kHalves) of[job.outputs[0]] = job.inputs[0];
    for (size_t j = 0; j < given.size(); ++j)
      for (int32_t v : given[j].inputs)
        if (of[v] >= 0) reader[v] = static_cast<int32_t>(j);
    half_.assign(values_.now.size(), 0);
    for (size_t v = 0; v < of.size(); ++v) half_[v] = of[v] >= 0 && reader[v] >= 0 && contains(given[reader[v]].inputs, of[v]);
  }

  bool is_half(int32_t value) const { return half_[value]; }

  void add(Job job) {
    if (std::any_of(job.outputs.begin(), job.outputs.end(), [this](int32_t v) { return is_half(v); })) return;
    std::erase_if(job.inputs, [this](int32_t v) { return is_half(v); });
    const bool all = job.layout == FlowLayout::kKeeps;
    const bool keeps = all && !(job.bits & kWhole) &&
                       std::all_of(job.inputs.begin(), job.inputs.end(), [this](int32_t v) { return values_.blocked[v]; });
    const bool reads = keeps || job.layout == FlowLayout::kBlocked;
    const bool kept = std::any_of(job.outputs.begin(), job.outputs.end(), [this](int32_t v) { return values_.taken[v]; });
    const int32_t first = job.inputs.empty() ? -1 : job.inputs[0];
    for (int32_t& v : job.inputs) v = as(v, reads && (all || v == first));
    if ((reads || job.layout == FlowLayout::kMakes) && !kept)
      for (int32_t v : job.outputs) {
        values_.blocked[v] = 1;
        values_.now[v] = values_.filled[v];
      }
    if (job.bits & kConvolves) makers_[job.outputs[0]] = static_cast<int32_t>(jobs.size());
    join_a_product(job);
    jobs.push_back(std::move(job));
  }

  // A sum becomes the convolution that it is computed with.
  void join_a_product(Job& job) {
    if (!(job.bits & kFuses) || job.inputs.size() != 2 || job.inputs[0] == job.inputs[1]) return;
    if (values_.now[job.inputs[0]].shape != values_.now[job.inputs[1]].shape) return;
    for (int32_t side : {0, 1}) {
      const int32_t value = job.inputs[side], other = job.inputs[1 - side];
      const int32_t place = value < static_cast<int32_t>(makers_.size()) ? makers_[value] : -1;
      if (place < 0 || jobs[place].gone || values_.readers[value] > 1 || values_.taken[value]) continue;
      Job made = jobs[place];
      jobs[place].gone = true;
      made.reuses = {{static_cast<int32_t>(made.inputs.size()), 0}};
      made.inputs.push_back(other);
      made.outputs = job.outputs;
      made.flops += job.flops;
      job = std::move(made);
      return;
    }
  }

  // The value in that layout; a copy is made where it lies in the other one.
  int32_t as(int32_t value, bool blocked) {
    if (static_cast<bool>(values_.blocked[value]) == blocked) return value;
    if (values_.copies[value][blocked] < 0) {
      const int32_t made = values_.copy(value, blocked);
      values_.copies[value][blocked] = made;
      Job job;
      job.inputs = {value};
      job.outputs = {made};
      job.bits = kMoves;
      jobs.push_back(std::move(job));
    }
    return values_.copies[value][blocked];
  }

  Values& values_;
  std::vector<uint8_t> half_;
  std::vector<int32_t> makers_;  // the places of convolutions that nothing was added to
};

// The inputs whose buffer an output may take over, if nobody else needs it.
void add_candidates(const Job& job, int32_t place, const Values& values, OrderJobs& found) {
  const int32_t value = job.outputs[place];
  for (const auto& [source, target] : job.reuses) {
    if (target != place || source >= static_cast<int32_t>(job.inputs.size())) continue;
    const int32_t given = job.inputs[source];
    const bool fused = (job.bits & kFuses) && values.now[given].shape == values.now[value].shape;
    const bool same = values.is_sized(given) && values.is_sized(value) && values.now[given].kind == values.now[value].kind;
    if ((job.bits & kAlias) || fused || same) found.candidate.push_back(given);
  }
  found.candidate_begin.push_back(static_cast<int32_t>(found.candidate.size()));
}

OrderJobs ordered(const std::vector<Job>& jobs, const Values& values, int64_t alignment) {
  OrderJobs found;
  found.jobs = static_cast<int32_t>(jobs.size());
  found.values = static_cast<int32_t>(values.now.size());
  found.input_begin = found.output_begin = found.candidate_begin = {0};
  found.uses.assign(values.now.size(), 0);
  for (const Job& job : jobs) {
    found.input.insert(found.input.end(), job.inputs.begin(), job.inputs.end());
    found.input_begin.push_back(static_cast<int32_t>(found.input.size()));
    for (size_t place = 0; place < job.outputs.size(); ++place) {
      found.output.push_back(job.outputs[place]);
      add_candidates(job, static_cast<int32_t>(place), values, found);
    }
    found.output_begin.push_back(static_cast<int32_t>(found.output.size()));
    found.alias.push_back((job.bits & kAlias) != 0);
    found.workspace.push_back(job.workspace);
    for (int32_t v : job.inputs) ++found.uses[v];
    for (int32_t v : job.outputs) ++found.uses[v];
  }
  for (size_t v = 0; v < values.now.size(); ++v) {
    found.bytes.push_back((values.now[v].bytes + alignment - 1) / alignment * alignment);
    found.kind.push_back(values.is_sized(static_cast<int32_t>(v)) && !values.scalar[v] ? values.now[v].kind : -1);
    found.kept.push_back(values.taken[v]);
  }
  return found;
}

// Peak, what is alive at most, and the job there.
void lay_out(const OrderJobs& j, FlowNeeds& needs, int32_t& at) {
  std::vector<int32_t> order(j.jobs);
  std::iota(order.begin(), order.end(), 0);
  const Buffers buffers(j, order);
  Block block;
  int64_t given = 0, above = 0, live = 0;
  at = 0;
  for (int32_t job = 0; job < j.jobs; ++job) {
    for (int32_t buffer : buffers.begun(job)) {
      block.take(buffer, j.bytes[buffer]);
      live += j.bytes[buffer];
    }
    for (int32_t o = j.output_begin[job]; o < j.output_begin[job + 1]; ++o)
      if (j.kept[j.output[o]]) given += j.bytes[j.output[o]];
    above = std::max(above, given + j.workspace[job]);
    if (live + given + j.workspace[job] > needs.live) {
      needs.live = live + given + j.workspace[job];
      at = job;
    }
    for (int32_t buffer : buffers.ended(job)) {
      block.give(buffer);
      live -= j.bytes[buffer];
    }
  }
  needs.peak = block.size() + above;
}

// The node of a job, or of the nearest one before it, else behind it, that has one.
int32_t node_near(const std::vector<Job>& jobs, int32_t at) {
  for (int32_t job = at; job >= 0 && job < static_cast<int32_t>(jobs.size()); --job)
    if (jobs[job].node >= 0) return jobs[job].node;
  for (size_t job = at; job < jobs.size(); ++job)
    if (jobs[job].node >= 0) return jobs[job].node;
  return -1;
}

}  // namespace

void FlowPart::check() const {
  const size_t count = jobs(), own = values();
  const int32_t end = outer + values();
  expect(outer >= 0 && layout.size() == count && node.size() == count && flops.size() == count && workspace.size() == count, "what is said of jobs");
  expect_csr(input_begin, input, count, end, "what they read");
  expect_csr(output_begin, output, count, end, "what they make");
  expect(filled_bytes.size() == own && shape.size() == own && filled_shape.size() == own && kind.size() == own, "what is said of values");
  expect(filled_kind.size() == own && hidden.size() == own && scalar.size() == own, "what is said of values");
  expect_csr(reuse_begin, reuse_input, count, end, "what they take over");
  expect(reuse_output.size() == reuse_input.size(), "what they take over");
  expect(std::all_of(veiled.begin(), veiled.end(), [this](int32_t v) { return v >= 0 && v < outer; }), "what is hidden");
  for (int32_t job = 0; job < jobs(); ++job) {
    expect(layout[job] >= 0 && layout[job] <= static_cast<int32_t>(FlowLayout::kKeeps), "a layout");
    const bool reads = input_begin[job] < input_begin[job + 1], makes = output_begin[job] < output_begin[job + 1];
    expect(!(bits[job] & kHalves) || (reads && makes), "a job without inputs or outputs");
    expect(!(bits[job] & (kConvolves | kMoves)) || makes, "a job without outputs");
  }
}

FlowPeak::FlowPeak(FlowPart whole, std::vector<int32_t> given, std::vector<int32_t> taken, int64_t alignment)
    : whole_(std::move(whole)), given_(std::move(given)), taken_(std::move(taken)), alignment_(alignment) {
  whole_.check();
  expect(whole_.outer == 0 && whole_.veiled.empty(), "the whole");
  expect(alignment_ > 0, "the alignment");
  for (const std::vector<int32_t>& owned : {given_, taken_})
    expect(std::all_of(owned.begin(), owned.end(), [this](int32_t v) { return v >= 0 && v < whole_.values(); }), "what the caller owns");
}

FlowNeeds FlowPeak::needs(std::span<const FlowChange> changes) const {
  std::vector<Job> jobs;
  Values values;
  values.add(whole_);
  int32_t place = 0, offset = 0;
  const auto go_on = [&](int32_t end) {  // jobs of the whole; what is made of hidden values is hidden
    for (; place < end; ++place) {
      Job job = job_of(whole_, place, 0);
      if (std::any_of(job.inputs.begin(), job.inputs.end(), [&](int32_t v) { return values.hidden[v]; }))
        for (int32_t v : job.outputs) values.hidden[v] = 1;
      jobs.push_back(std::move(job));
    }
  };
  for (const FlowChange& change : changes) {
    const FlowPart& part = *change.part;
    expect(part.outer == whole_.values() && change.first >= place && change.first <= change.last && change.last < whole_.jobs(), "a part");
    go_on(change.first);
    values.add(part);
    for (int32_t job = 0; job < part.jobs(); ++job) jobs.push_back(job_of(part, job, offset));
    for (int32_t v : part.veiled) values.hidden[v] = 1;
    offset += part.values();
    place = change.last + 1;
  }
  go_on(whole_.jobs());
  values.close();
  for (int32_t v : taken_) values.taken[v] = 1;
  Laid laid(jobs, values);
  std::erase_if(laid.jobs, [](const Job& job) { return job.gone; });
  FlowNeeds found;
  for (const Job& job : laid.jobs) {
    found.flops += job.flops;
    if (job.bits & kMoves) found.moved += values.now[job.outputs[0]].bytes;
  }
  found.jobs = static_cast<int32_t>(laid.jobs.size());
  OrderJobs order = ordered(laid.jobs, values, alignment_);
  for (int32_t v : given_) ++order.uses[v];
  for (int32_t v : taken_) ++order.uses[v];
  int32_t at = 0;
  lay_out(order, found, at);
  found.node = node_near(laid.jobs, at);
  return found;
}

}  // namespace rlflow
