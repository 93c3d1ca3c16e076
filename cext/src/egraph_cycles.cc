// Cycles in an e-graph: finding them, and filtering the nodes that close them.
#include <algorithm>

#include "rlflow/egraph_run.h"

namespace rlflow::egraph {
namespace {

// A depth-first walk over classes through nodes that are not filtered. `on_cycle` receives the nodes of each cycle that a back edge closes.
template <class OnCycle>
void walk(const EGraph& g, std::span<const ClassId> roots, std::vector<uint8_t>& state, OnCycle on_cycle) {
  enum : uint8_t { kNew, kOpen, kDone };
  struct Frame {
    ClassId cls;
    uint32_t member, child;
  };
  state.assign(g.class_capacity(), kNew);
  std::vector<Frame> stack;
  std::vector<ENodeId> cycle;
  for (const ClassId start : roots) {
    const ClassId root = g.find(start);
    if (state[root] != kNew) continue;
    state[root] = kOpen;
    stack.push_back({root, 0, 0});
    while (!stack.empty()) {
      Frame& f = stack.back();
      const auto members = g.members(f.cls);
      if (f.member == members.size()) {
        state[f.cls] = kDone;
        stack.pop_back();
        continue;
      }
      const ENodeId n = members[f.member];
      const auto children = g.children(n);
      if (g.node(n).filtered || f.child == children.size()) {
        ++f.member;
        f.child = 0;
        continue;
      }
      const ClassId child = children[f.child++];
      if (state[child] == kNew) {
        state[child] = kOpen;
        stack.push_back({child, 0, 0});
      } else if (state[child] == kOpen) {
        cycle.clear();
        for (size_t i = stack.size(); i-- > 0;) {
          cycle.push_back(g.members(stack[i].cls)[stack[i].member]);
          if (stack[i].cls == child) break;
        }
        if (!on_cycle(cycle)) return;
      }
    }
  }
}

}  // namespace

size_t filter_cycles(EGraph& g, std::span<const ClassId> roots) {
  size_t filtered = 0;
  std::vector<uint8_t> state;
  for (;;) {
    std::vector<std::vector<ENodeId>> cycles;
    walk(g, roots, state, [&](const std::vector<ENodeId>& cycle) {
      cycles.push_back(cycle);
      return true;
    });
    if (cycles.empty()) return filtered;
    for (const auto& cycle : cycles) {
      if (std::any_of(cycle.begin(), cycle.end(), [&](ENodeId n) { return g.node(n).filtered; })) continue;
      g.filter(*std::max_element(cycle.begin(), cycle.end()));
      ++filtered;
    }
  }
}

bool has_cycle(const EGraph& g, std::span<const ClassId> roots) {
  bool found = false;
  std::vector<uint8_t> state;
  walk(g, roots, state, [&](const std::vector<ENodeId>&) {
    found = true;
    return false;
  });
  return found;
}

void count_reachable(const EGraph& g, std::span<const ClassId> roots, size_t& nodes, size_t& classes) {
  std::vector<uint8_t> state;
  walk(g, roots, state, [](const std::vector<ENodeId>&) { return true; });
  nodes = classes = 0;
  for (const ClassId c : g.classes()) {
    if (state[c] == 0) continue;
    ++classes;
    for (const ENodeId n : g.members(c)) nodes += !g.node(n).filtered;
  }
}

const std::vector<uint64_t>& Descendants::of(ClassId from) {
  std::vector<uint64_t>& set = sets_[from];
  if (!set.empty()) return set;
  set.assign((sets_.size() + 63) / 64, 0);
  std::vector<ClassId> todo{from};
  while (!todo.empty()) {
    const ClassId c = todo.back();
    todo.pop_back();
    for (const ENodeId n : g_.members(c)) {
      if (g_.node(n).filtered) continue;
      for (const ClassId child : g_.children(n)) {
        uint64_t& word = set[child / 64];
        const uint64_t bit = uint64_t{1} << (child % 64);
        if (word & bit) continue;
        word |= bit;
        if (child != from && !sets_[child].empty())
          for (size_t i = 0; i < set.size(); ++i) set[i] |= sets_[child][i];
        else todo.push_back(child);
      }
    }
  }
  return set;
}

bool Descendants::contains(ClassId from, ClassId to) {
  if (from >= sets_.size() || to >= sets_.size()) return false;  // made after the sets were asked for
  return of(from)[to / 64] >> (to % 64) & 1;
}

}  // namespace rlflow::egraph
