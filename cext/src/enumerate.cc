// The walk over small graphs: depth first over operator sequences, each graph once (see enumerate.h).
#include "rlflow/enumerate.h"

#include <algorithm>

#include "enumerate_graph.h"
#include "rlflow/error.h"

namespace rlflow::enumeration {

namespace {

bool admits(Operand kind, const Value& v, bool input) {
  switch (kind) {
    case Operand::kAny: return true;
    case Operand::kWeight: return v.weight;
    case Operand::kInput: return input;
    case Operand::kActivation: return !v.weight;
    default: return input && v.weight;
  }
}

}  // namespace

// One branch of the walk.
class Walk {
 public:
  Walk(const Enumerator& e, size_t limit, const std::atomic<bool>* stop, std::vector<Record>& out, Counts& counts)
      : space_(e.space_), inputs_(static_cast<int>(space_.inputs.size())), limit_(limit), stop_(stop), out_(out), counts_(counts) {
    for (const Template& t : space_.templates) most_operands_ = std::max<int>(most_operands_, t.arity);
  }

  bool run(const Step& first) {
    place(first);
    return !stopped_;
  }

 private:
  const Value& value(int v) const { return v < inputs_ ? space_.inputs[v].value : made_[v - inputs_]; }
  const Template& at(int k) const { return space_.templates[step_[k].op]; }

  // Outputs that nothing reads yet. A Split counts once: its outputs may be read later, or one of them be the graph's.
  int open_count() const {
    int n = 0;
    for (int k = 0; k < depth_; ++k) n += !read_[k];
    return n;
  }

  bool repeats(const Step& s) const {
    for (int k = 0; k < depth_; ++k)
      if (step_[k] == s) return true;
    return false;
  }

  void place(const Step& s) {
    const Template& t = space_.templates[s.op];
    const Value* operands[kMaxOperands] = {};
    for (int k = 0; k < t.arity; ++k) operands[k] = &value(s.operand[k]);
    Value* made = &made_[2 * depth_];
    if (repeats(s) || !infer(t, operands, space_.worlds, space_.max_elements, made)) {
      ++counts_.ill_typed;
      return;
    }
    std::array<bool, kMaxOps> saved = read_;
    for (int k = 0; k < t.arity; ++k)
      if (s.operand[k] >= inputs_) read_[(s.operand[k] - inputs_) / 2] = true;
    read_[depth_] = false;
    step_[depth_++] = s;
    continue_from(t, operands, made);
    --depth_;
    read_ = saved;
  }

  void continue_from(const Template& t, const Value* const* operands, Value* made) {
    int open = open_count(), left = space_.max_ops - depth_;
    if (open - 1 > left * (most_operands_ - 1)) return;
    bool whole = open == 1 && in_order();
    if (!left && !whole) {
      counts_.reordered += open == 1;
      return;
    }
    if (!left && t.outputs == 1 && !prefix()) return;
    compute(t, operands, space_.worlds, made);
    ++counts_.graphs;
    if (whole) emit(t);
    if (left && !known(t, made)) extend();
  }

  bool known(const Template& t, const Value* made) {
    for (int j = 0; j < t.outputs; ++j)
      for (int v = 0; v < inputs_ + 2 * (depth_ - 1); ++v)
        if (exists(v) && value(v).print == made[j].print) {
          ++counts_.repeated;
          return true;
        }
    return false;
  }
  bool exists(int v) const { return v < inputs_ || (v - inputs_) % 2 == 0 || at((v - inputs_) / 2).outputs == 2; }

  void extend() {
    if (stop_ && stop_->load(std::memory_order_relaxed)) stopped_ = true;
    int values = inputs_ + 2 * depth_;
    Step s;
    for (size_t op = 0; op < space_.templates.size() && !stopped_; ++op) {
      const Template& t = space_.templates[op];
      s = Step{};
      s.op = static_cast<uint8_t>(op);
      operands(t, s, 0, values);
    }
  }

  void operands(const Template& t, Step& s, int k, int values) {
    if (k == t.arity || k == kMaxOperands) {
      if (feasible(t, s)) place(s);
      return;
    }
    for (int v = 0; v < values && !stopped_; ++v) {
      if (!exists(v) || !admits(t.operand[k], value(v), v < inputs_)) continue;
      s.operand[k] = static_cast<uint8_t>(v);
      operands(t, s, k + 1, values);
    }
  }

  // Cheap reasons to skip a step before its operands are looked at: what it leaves open could never be read.
  bool feasible(const Template& t, const Step& s) const {
    bool read_now[kMaxOps] = {};
    for (int k = 0; k < t.arity; ++k)
      if (s.operand[k] >= inputs_) read_now[(s.operand[k] - inputs_) / 2] = true;
    int open = 1;
    for (int k = 0; k < depth_; ++k) open += !read_[k] && !read_now[k];
    if (open - 1 > (space_.max_ops - depth_ - 1) * (most_operands_ - 1)) return false;
    return !t.commutative || commuted(s);
  }
  bool commuted(const Step& s) const { return compare_terms(s.operand[0], s.operand[1], step_.data(), space_) <= 0; }

  // Whether the operators stand in the order in which a walk from the root, operands from left to right, finishes them.
  bool in_order() const {
    std::array<uint8_t, kMaxOps> order{};
    int n = 0;
    finish(depth_ - 1, order, n);
    for (int k = 0; k < n; ++k)
      if (order[k] != k) return false;
    return n == depth_;
  }
  void finish(int k, std::array<uint8_t, kMaxOps>& order, int& n) const {
    for (int j = 0; j < n; ++j)
      if (order[j] == k) return;
    for (int j = 0; j < at(k).arity; ++j)
      if (step_[k].operand[j] >= inputs_) finish((step_[k].operand[j] - inputs_) / 2, order, n);
    order[n++] = static_cast<uint8_t>(k);
  }

  // Whether the inputs used are the first of their families: the largest graphs are wanted up to a renaming only.
  bool prefix() const {
    uint64_t used = 0;
    for (int k = 0; k < depth_; ++k)
      for (int j = 0; j < at(k).arity; ++j)
        if (step_[k].operand[j] < inputs_) used |= uint64_t{1} << step_[k].operand[j];
    for (int v = 1; v < inputs_; ++v)
      if ((used >> v & 1) && space_.inputs[v].family == space_.inputs[v - 1].family && !(used >> (v - 1) & 1)) return false;
    return true;
  }

  void emit(const Template& t) {
    if (out_.size() + t.outputs > limit_)
      throw Error(ErrorKind::kUsage,
                  "the enumeration holds more graphs than its memory budget admits; give it more memory, fewer operators or fewer inputs");
    for (int j = 0; j < t.outputs; ++j) {
      Record r;
      r.print = made_[2 * (depth_ - 1) + j].print;
      std::copy_n(step_.begin(), depth_, r.step.begin());
      r.ops = static_cast<uint8_t>(depth_);
      r.root = static_cast<uint8_t>(inputs_ + 2 * (depth_ - 1) + j);
      describe(space_, r);
      out_.push_back(r);
    }
  }

  const Space& space_;
  int inputs_, depth_ = 0, most_operands_ = 1;
  bool stopped_ = false;
  size_t limit_;
  const std::atomic<bool>* stop_;
  std::vector<Record>& out_;
  Counts& counts_;
  std::array<Step, kMaxOps> step_{};
  std::array<Value, 2 * kMaxOps> made_;
  std::array<bool, kMaxOps> read_{};
};

namespace {

void check(const Space& s) {
  auto demand = [](bool good, const char* what) {
    if (!good) throw Error(ErrorKind::kUsage, what);
  };
  demand(!s.inputs.empty() && s.inputs.size() <= 60, "an enumeration has between 1 and 60 inputs");
  demand(s.templates.size() <= 250, "an enumeration has at most 250 operator templates");
  demand(s.worlds >= 1 && s.worlds <= kMaxWorlds, "an enumeration has 1 to 3 worlds");
  demand(s.max_ops >= 1 && s.max_ops <= kMaxOps, "an enumeration has 1 to 5 operators");
  demand(s.max_elements >= 1 && s.max_elements <= 4096, "a tensor has 1 to 4096 elements");
  for (const Template& t : s.templates) {
    demand(t.arity >= 1 && t.arity <= kMaxOperands, "an operator has 1 to 3 operands");
    demand(static_cast<int>(t.attributes.size()) == s.worlds, "an operator has one list of attributes a world");
  }
}

}  // namespace

Enumerator::Enumerator(Space space) : space_(std::move(space)) {
  check(space_);
  for (Input& input : space_.inputs) {
    input.value.weight = input.weight;
    fingerprint(input.value, space_.worlds);
  }
  int n = static_cast<int>(space_.inputs.size());
  for (size_t op = 0; op < space_.templates.size(); ++op) {
    const Template& t = space_.templates[op];
    int64_t tuples = 1;
    for (int k = 0; k < t.arity; ++k) tuples *= n;
    for (int64_t code = 0; code < tuples; ++code) {
      Step s;
      s.op = static_cast<uint8_t>(op);
      int64_t rest = code;
      bool good = true;
      const Value* operands[kMaxOperands] = {};
      for (int k = 0; k < t.arity; ++k, rest /= n) {
        s.operand[k] = static_cast<uint8_t>(rest % n);
        operands[k] = &space_.inputs[s.operand[k]].value;
        good = good && admits(t.operand[k], *operands[k], true);
      }
      Value out[2];
      if (good && (!t.commutative || s.operand[0] <= s.operand[1]) && infer(t, operands, space_.worlds, space_.max_elements, out))
        first_.push_back(s);
    }
  }
}

bool Enumerator::run_branch(size_t branch, size_t limit, const std::atomic<bool>* stop, std::vector<Record>& out, Counts& counts) const {
  if (branch >= first_.size()) throw Error(ErrorKind::kUsage, "the enumeration has no branch of this number");
  return Walk(*this, limit, stop, out, counts).run(first_[branch]);
}

std::vector<Record> Enumerator::inputs() const {
  std::vector<Record> out;
  for (size_t k = 0; k < space_.inputs.size(); ++k) {
    Record r;
    r.print = space_.inputs[k].value.print;
    r.root = static_cast<uint8_t>(k);
    describe(space_, r);
    out.push_back(r);
  }
  return out;
}

std::vector<Value> Enumerator::evaluate(const Record& graph) const {
  std::vector<Value> made(2 * graph.ops);
  int inputs = static_cast<int>(space_.inputs.size());
  for (int k = 0; k < graph.ops; ++k) {
    const Template& t = space_.templates.at(graph.step[k].op);
    const Value* operands[kMaxOperands] = {};
    for (int j = 0; j < t.arity; ++j) {
      int v = graph.step[k].operand[j];
      if (v >= inputs + 2 * k) throw Error(ErrorKind::kGraph, "a graph's operator reads a value that is made after it");
      operands[j] = v < inputs ? &space_.inputs[v].value : &made[v - inputs];
    }
    if (!infer(t, operands, space_.worlds, space_.max_elements, &made[2 * k]))
      throw Error(ErrorKind::kType, "a graph's operands do not fit its operator");
    compute(t, operands, space_.worlds, &made[2 * k]);
  }
  return made;
}

}  // namespace rlflow::enumeration
