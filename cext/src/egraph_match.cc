#include "rlflow/egraph_match.h"

#include <algorithm>

#include "rlflow/error.h"

namespace rlflow::egraph {

int Pattern::add(PatternNode node) {
  nodes.push_back(std::move(node));
  return static_cast<int>(nodes.size()) - 1;
}

int Pattern::add_variable(int number) {
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].variable == number) return static_cast<int>(i);
  variables = std::max(variables, number + 1);
  PatternNode node;
  node.variable = number;
  return add(std::move(node));
}

static void write_canonical(const Pattern& p, int index, std::vector<int>& renaming, std::string& out) {
  const PatternNode& node = p.nodes[index];
  if (node.variable >= 0) {
    const auto known = std::find(renaming.begin(), renaming.end(), node.variable);
    out += "?" + std::to_string(known - renaming.begin()) + " ";
    if (known == renaming.end()) renaming.push_back(node.variable);
    return;
  }
  out += '(';
  for (const uint32_t op : node.ops) out += std::to_string(op) + "|";
  out += (node.any_attr ? "*" : std::to_string(node.attr)) + " ";
  for (const int child : node.children) write_canonical(p, child, renaming, out);
  out += ')';
}

std::string Pattern::canonical_text(std::vector<int>& renaming) const {
  std::string out;
  renaming.clear();
  write_canonical(*this, static_cast<int>(nodes.size()) - 1, renaming, out);
  return out;
}

Matcher::Matcher(const Pattern& pattern) : pattern_(pattern), variable_reg_(pattern.variables, kNone) {
  if (pattern.nodes.empty() || pattern.nodes.back().variable >= 0) throw Error(ErrorKind::kRule, "a pattern must have an operator at its root");
  for (const PatternNode& node : pattern.nodes)
    if (node.variable < 0 && node.ops.empty()) throw Error(ErrorKind::kRule, "a pattern node names no operator");
  compile(static_cast<int>(pattern.nodes.size()) - 1, 0);
}

bool Matcher::is_ground(int node) const {
  const PatternNode& n = pattern_.nodes[node];
  return n.variable < 0 && n.ops.size() == 1 && !n.any_attr && std::all_of(n.children.begin(), n.children.end(), [&](int c) { return is_ground(c); });
}

// Depth first; a node's own comparisons come before its children's binds, because they are cheaper.
void Matcher::compile(int node, uint32_t reg) {
  const PatternNode& n = pattern_.nodes[node];
  const uint32_t out = registers_;
  registers_ += static_cast<uint32_t>(n.children.size());
  code_.push_back({Instruction::kBind, reg, static_cast<uint32_t>(node), out});
  for (size_t i = 0; i < n.children.size(); ++i) {
    const uint32_t at = out + static_cast<uint32_t>(i);
    const PatternNode& child = pattern_.nodes[n.children[i]];
    if (child.variable >= 0) {
      uint32_t& known = variable_reg_[child.variable];
      if (known == kNone) known = at;
      else code_.push_back({Instruction::kCompare, at, 0, known});
    } else if (is_ground(n.children[i])) {
      code_.push_back({Instruction::kGround, at, static_cast<uint32_t>(ground_.size()), 0});
      ground_.push_back(n.children[i]);
    }
  }
  for (size_t i = 0; i < n.children.size(); ++i)
    if (pattern_.nodes[n.children[i]].variable < 0 && !is_ground(n.children[i])) compile(n.children[i], out + static_cast<uint32_t>(i));
}

struct Matcher::Run {
  const Matcher& m;
  const EGraph& g;
  size_t limit;
  Matches& out;
  std::vector<ClassId> ground{};
  std::vector<ClassId> regs{};
  std::vector<ENodeId> matched{};

  ClassId look_up(int node) const {
    const PatternNode& n = m.pattern_.nodes[node];
    std::vector<ClassId> children;
    for (const int c : n.children) {
      children.push_back(look_up(c));
      if (children.back() == kNone) return kNone;
    }
    const ENodeId found = g.lookup(n.ops[0], n.attr, children);
    return found == kNone ? kNone : g.class_of(found);
  }

  bool step(size_t pc) {                    // false: the limit is reached
    if (pc == m.code_.size()) {
      emit();
      return out.size() < limit;
    }
    const Instruction& in = m.code_[pc];
    switch (in.kind) {
      case Instruction::kCompare: return regs[in.reg] != regs[in.out] || step(pc + 1);
      case Instruction::kGround: return regs[in.reg] != ground[in.node] || step(pc + 1);
      case Instruction::kBind: return bind(in, pc);
    }
    return true;
  }

  bool bind(const Instruction& in, size_t pc) {
    const PatternNode& want = m.pattern_.nodes[in.node];
    const auto members = g.members(regs[in.reg]);
    for (const uint32_t op : want.ops) {
      const uint64_t key = EGraph::shape_key(op, static_cast<uint32_t>(want.children.size()));
      auto it = members.begin();
      if (members.size() > 8)
        it = std::partition_point(members.begin(), members.end(), [&](ENodeId n) { return EGraph::shape_key(g.node(n)) < key; });
      for (; it != members.end(); ++it) {
        const ENode& node = g.node(*it);
        if (const uint64_t found = EGraph::shape_key(node); found > key) break;
        else if (found < key || node.filtered || (!want.any_attr && node.attr != want.attr)) continue;
        const auto children = g.children(*it);
        std::copy(children.begin(), children.end(), regs.begin() + in.out);
        matched[in.node] = *it;
        if (!step(pc + 1)) return false;
      }
    }
    return true;
  }

  void emit() {
    out.rows.push_back(regs[0]);
    for (const uint32_t reg : m.variable_reg_) out.rows.push_back(reg == kNone ? kNone : regs[reg]);
    out.rows.insert(out.rows.end(), matched.begin(), matched.end());
  }
};

Matches Matcher::search(const EGraph& g, size_t limit) const {
  if (!g.clean()) throw Error(ErrorKind::kUsage, "the e-graph was changed after its last rebuild(): a search needs a clean one");
  Matches out;
  out.variables = static_cast<uint32_t>(pattern_.variables);
  out.nodes = static_cast<uint32_t>(pattern_.nodes.size());
  Run run{*this, g, limit, out};
  for (const int node : ground_) {
    run.ground.push_back(run.look_up(node));
    if (run.ground.back() == kNone) return out;
  }
  run.regs.resize(registers_);
  run.matched.assign(pattern_.nodes.size(), kNone);
  std::vector<ClassId> roots;
  const PatternNode& top = pattern_.nodes.back();
  for (const uint32_t op : top.ops) {
    const auto with = g.classes_with(op, static_cast<uint32_t>(top.children.size()));
    roots.insert(roots.end(), with.begin(), with.end());
  }
  if (top.ops.size() > 1) {
    std::sort(roots.begin(), roots.end());
    roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
  }
  for (const ClassId root : roots) {
    run.regs[0] = root;
    if (!run.step(0)) break;
  }
  return out;
}

std::vector<JoinIndex> index_joins(std::span<const JoinInput> inputs, int rule_variables) {
  std::vector<JoinIndex> out(inputs.size());
  std::vector<bool> seen(rule_variables, false);
  std::vector<ClassId> values;
  for (size_t k = 0; k < inputs.size(); ++k) {
    for (size_t v = 0; v < inputs[k].variable.size(); ++v)
      if (k > 0 && seen[inputs[k].variable[v]]) out[k].shared.push_back(static_cast<int>(v));
    for (const int v : inputs[k].variable) seen[v] = true;
    if (k == 0) continue;
    for (uint32_t r = 0; r < inputs[k].matches->size(); ++r) {
      values.clear();
      for (const int v : out[k].shared) values.push_back(inputs[k].matches->bound(r)[v]);
      out[k].rows[JoinIndex::key(values)].push_back(r);
    }
  }
  return out;
}

}  // namespace rlflow::egraph
