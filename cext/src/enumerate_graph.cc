// Small graphs as lists of steps (see enumerate_graph.h).
#include "enumerate_graph.h"

#include <algorithm>

namespace rlflow::enumeration {

int compare_terms(int a, int b, const Step* steps, const Space& space) {
  int inputs = static_cast<int>(space.inputs.size());
  if (a == b) return 0;
  if (a < inputs || b < inputs) return a < b ? -1 : 1;
  const Step &x = steps[(a - inputs) / 2], &y = steps[(b - inputs) / 2];
  if (x.op != y.op) return x.op < y.op ? -1 : 1;
  for (int k = 0; k < space.templates[x.op].arity; ++k)
    if (int c = compare_terms(x.operand[k], y.operand[k], steps, space)) return c;
  int i = (a - inputs) % 2, j = (b - inputs) % 2;
  return i < j ? -1 : i > j;
}

namespace {

int tree_size(const Space& space, const Record& r, int value) {
  int inputs = static_cast<int>(space.inputs.size());
  if (value < inputs) return 0;
  const Step& s = r.step[(value - inputs) / 2];
  int size = 1;
  for (int k = 0; k < space.templates[s.op].arity; ++k) size += tree_size(space, r, s.operand[k]);
  return size;
}

// The inputs in order of first use.
void uses(const Space& space, const Record& r, int value, std::vector<int>& out) {
  int inputs = static_cast<int>(space.inputs.size());
  if (value < inputs) {
    if (std::find(out.begin(), out.end(), value) == out.end()) out.push_back(value);
    return;
  }
  const Step& s = r.step[(value - inputs) / 2];
  for (int k = 0; k < space.templates[s.op].arity; ++k) uses(space, r, s.operand[k], out);
}

// The name that each input gets: the k-th of its family that is used becomes the k-th of its family.
std::vector<uint8_t> new_names(const Space& space, const std::vector<int>& used) {
  std::vector<uint8_t> name(space.inputs.size());
  std::array<int, 256> next{};
  for (size_t v = space.inputs.size(); v-- > 0;) next[space.inputs[v].family] = static_cast<int>(v);
  for (int v : used) name[v] = static_cast<uint8_t>(next[space.inputs[v].family]++);
  return name;
}

}  // namespace

Record renamed(const Space& space, const Record& r) {
  Record out = r;
  for (int pass = 0; pass < 3 && !out.canonical; ++pass) {
    std::vector<int> used;
    uses(space, out, out.root, used);
    std::vector<uint8_t> name = new_names(space, used);
    for (int k = 0; k < out.ops; ++k)
      for (int j = 0; j < space.templates[out.step[k].op].arity; ++j)
        if (uint8_t& v = out.step[k].operand[j]; v < name.size()) v = name[v];
    Builder b(space);  // puts the operands of commutative operators in order again
    out = b.finish(b.copy(out, out.root));
  }
  return out;
}

bool inputs_in_order(const Space& space, const Record& r, int value, uint64_t& seen) {
  int inputs = static_cast<int>(space.inputs.size());
  if (value >= inputs) {
    const Step& s = r.step[(value - inputs) / 2];
    for (int k = 0; k < space.templates[s.op].arity; ++k)
      if (!inputs_in_order(space, r, s.operand[k], seen)) return false;
    return true;
  }
  bool first = value == 0 || space.inputs[value - 1].family != space.inputs[value].family;
  if (!first && !(seen >> (value - 1) & 1)) return false;
  seen |= uint64_t{1} << value;
  return true;
}

void describe(const Space& space, Record& r) {
  uint64_t seen = 0;
  r.canonical = inputs_in_order(space, r, r.root, seen);
  r.size = static_cast<uint8_t>(std::min(tree_size(space, r, r.root), 255));
}

bool same_term(const Record& a, const Record& b) { return a.ops == b.ops && a.root == b.root && a.step == b.step; }

int Builder::add(const Step& s) {
  auto it = std::find(steps_.begin(), steps_.end(), s);
  if (it == steps_.end()) it = steps_.insert(steps_.end(), s);
  return inputs_ + 2 * static_cast<int>(it - steps_.begin());
}

int Builder::copy(const Record& r, int value) {
  if (value < inputs_) return value;
  Step s = r.step[(value - inputs_) / 2];
  const Template& t = space_.templates[s.op];
  for (int k = 0; k < t.arity; ++k) s.operand[k] = static_cast<uint8_t>(copy(r, s.operand[k]));
  if (t.commutative && compare_terms(s.operand[0], s.operand[1], steps_.data(), space_) > 0) std::swap(s.operand[0], s.operand[1]);
  return add(s) + (value - inputs_) % 2;
}

void Builder::order(int value, std::vector<int>& out) const {
  if (value < inputs_) return;
  int k = (value - inputs_) / 2;
  if (std::find(out.begin(), out.end(), k) != out.end()) return;
  for (int j = 0; j < space_.templates[steps_[k].op].arity; ++j) order(steps_[k].operand[j], out);
  out.push_back(k);
}

Record Builder::finish(int root) const {
  std::vector<int> kept;
  order(root, kept);
  Record r;
  if (kept.size() > kMaxOps) {
    r.ops = 0xff;
    return r;
  }
  auto renamed = [&](int v) {
    if (v < inputs_) return static_cast<uint8_t>(v);
    auto at = std::find(kept.begin(), kept.end(), (v - inputs_) / 2) - kept.begin();
    return static_cast<uint8_t>(inputs_ + 2 * at + (v - inputs_) % 2);
  };
  for (size_t k = 0; k < kept.size(); ++k) {
    r.step[k] = steps_[kept[k]];
    for (int j = 0; j < space_.templates[r.step[k].op].arity; ++j) r.step[k].operand[j] = renamed(r.step[k].operand[j]);
  }
  r.ops = static_cast<uint8_t>(kept.size());
  r.root = renamed(root);
  describe(space_, r);
  return r;
}

}  // namespace rlflow::enumeration
