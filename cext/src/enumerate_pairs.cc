// Equations: graphs of equal fingerprints, less those that smaller equations imply (see enumerate.h).
#include <algorithm>

#include "enumerate_graph.h"
#include "rlflow/error.h"

namespace rlflow::enumeration {

namespace {

// Small graphs first; of equal ones, those with the smaller tree, then a fixed order.
bool before(const Record& a, const Record& b) {
  if (a.print != b.print) return a.print < b.print;
  if (a.ops != b.ops) return a.ops < b.ops;
  if (a.size != b.size) return a.size < b.size;
  if (a.step != b.step) return a.step < b.step;
  return a.root < b.root;
}

class Classes {
 public:
  Classes(const Enumerator& e, const std::vector<Record>& records) : e_(e), records_(records), inputs_(static_cast<int>(e.space().inputs.size())) {}

  // The best graph of what has this fingerprint, or none.
  const Record* best(const Hash128& print) const {
    auto it = std::lower_bound(records_.begin(), records_.end(), print, [](const Record& r, const Hash128& p) { return r.print < p; });
    return it != records_.end() && it->print == print ? &*it : nullptr;
  }

  // The graph with each operand of its last operator replaced by the best graph of the operand's class.
  Record normal(const Record& r) const {
    if (r.root < inputs_) return r;
    std::vector<Value> made = e_.evaluate(r);
    const Step& last = r.step[(r.root - inputs_) / 2];
    const Template& t = e_.space().templates[last.op];
    Builder b(e_.space());
    Step s = last;
    for (int k = 0; k < t.arity; ++k) {
      int v = last.operand[k];
      const Record* rep = v < inputs_ ? nullptr : best(made[v - inputs_].print);
      int at = rep ? b.copy(*rep, rep->root) : b.copy(r, v);
      s.operand[k] = static_cast<uint8_t>(at);
    }
    return finished(b, s, t.commutative, (r.root - inputs_) % 2);
  }

 private:
  Record finished(Builder& b, Step s, bool commutative, int output) const {
    // Copying through a record puts the operands of a commutative operator in order.
    int root = b.add(s) + output;
    Record r = b.finish(root);
    if (!commutative || r.ops == 0xff) return r;
    Builder again(e_.space());
    return again.finish(again.copy(r, r.root));
  }

  const Enumerator& e_;
  const std::vector<Record>& records_;
  int inputs_;
};

class Pairing {
 public:
  Pairing(const Enumerator& e, const std::vector<Record>& records, PairCounts& counts, const std::atomic<bool>* stop)
      : e_(e), classes_(e, records), records_(records), counts_(counts), stop_(stop), inputs_(static_cast<int>(e.space().inputs.size())) {}

  std::vector<Pair> run() {
    for (size_t begin = 0, end; begin < records_.size() && !(stop_ && stop_->load(std::memory_order_relaxed)); begin = end) {
      for (end = begin + 1; end < records_.size() && records_[end].print == records_[begin].print; ++end) {
      }
      ++counts_.classes;
      if (end - begin > 1) one_class(begin, end);
    }
    splits();
    counts_.kept = out_.size();
    return std::move(out_);
  }

 private:
  void one_class(size_t begin, size_t end) {
    ++counts_.shared_classes;
    counts_.pairs += end - begin - 1;
    // One output of a Split is no rule by itself: its other output may be in use. See splits().
    while (begin < end && ends_in_split(records_[begin])) ++begin, ++counts_.parts;
    if (begin == end) {
      --counts_.parts;  // the first one makes no pair
      return;
    }
    const Record& rep = records_[begin];
    Record normal_rep = classes_.normal(rep);
    const Record* home = first_canonical(begin, end);
    for (size_t k = begin + 1; k < end; ++k) {
      const Record& other = records_[k];
      if (ends_in_split(other)) {
        ++counts_.parts;
        continue;
      }
      if (!other.canonical) {
        if (home && same_term(renamed(e_.space(), other), *home)) symmetry(other, *home);
        else ++counts_.renamed;
        continue;
      }
      Record normal = classes_.normal(other);
      bool smaller = !same_term(normal, other) && normal.ops <= e_.space().max_ops;
      if (smaller || same_term(normal, rep) || same_term(normal, normal_rep)) {
        ++counts_.context;
        continue;
      }
      out_.push_back({other, rep, {}, 0});
    }
  }

  const Record* first_canonical(size_t begin, size_t end) const {
    for (size_t k = begin; k < end; ++k)
      if (records_[k].canonical && !ends_in_split(records_[k])) return &records_[k];
    return nullptr;
  }

  // A graph that equals its own renaming: no other pair says that these variables may be exchanged.
  void symmetry(const Record& other, const Record& home) {
    Record normal = classes_.normal(other);
    if (!same_term(normal, other) && normal.ops <= e_.space().max_ops) ++counts_.context;
    else out_.push_back({other, home, {}, 0});
  }

  // Graphs that end in a Split, both of whose outputs are something else as well.
  void splits() {
    const Space& space = e_.space();
    for (const Record& r : records_) {
      if (r.root < inputs_ || (r.root - inputs_) % 2) continue;
      const Step& last = r.step[(r.root - inputs_) / 2];
      if (space.templates[last.op].outputs != 2) continue;
      std::vector<Value> made = e_.evaluate(r);
      const Record* a = whole(made[r.root - inputs_].print);
      const Record* b = whole(made[r.root - inputs_ + 1].print);
      if (!a || !b) continue;
      ++counts_.pairs;
      if (!in_order_together(*a, *b)) {
        ++counts_.renamed;
        continue;
      }
      Builder joint(space);
      joint.copy(*a, a->root);
      joint.copy(*b, b->root);
      Record normal = classes_.normal(r);
      bool smaller = !same_term(normal, r) && normal.ops <= space.max_ops;
      if (joint.ops() > space.max_ops || smaller) {
        ++counts_.context;
        continue;
      }
      out_.push_back({r, *a, *b, 1});
    }
  }

  // The best graph of a class that is not one output of a Split, or none.
  const Record* whole(const Hash128& print) const {
    const Record* r = classes_.best(print);
    while (r && ends_in_split(*r)) {
      ++r;
      if (r == records_.data() + records_.size() || r->print != print) r = nullptr;
    }
    return r;
  }

  bool ends_in_split(const Record& r) const { return r.root >= inputs_ && e_.space().templates[r.step[(r.root - inputs_) / 2].op].outputs == 2; }

  bool in_order_together(const Record& a, const Record& b) const {
    const Space& space = e_.space();
    uint64_t seen = 0;
    for (const Record* r : {&a, &b})
      if (!inputs_in_order(space, *r, r->root, seen)) return false;
    return true;
  }
  const Enumerator& e_;
  Classes classes_;
  const std::vector<Record>& records_;
  PairCounts& counts_;
  const std::atomic<bool>* stop_;
  int inputs_;
  std::vector<Pair> out_;
};

}  // namespace

std::vector<Pair> find_pairs(const Enumerator& e, std::vector<Record>& records, PairCounts& counts, const std::atomic<bool>* stop) {
  std::sort(records.begin(), records.end(), before);
  counts.records = records.size();
  return Pairing(e, records, counts, stop).run();
}

}  // namespace rlflow::enumeration
