#include "rlflow/rule.h"

#include <algorithm>
#include <set>

#include "rule_parser.h"

namespace rlflow {

void OpClass::add(OpId op) {
  members.push_back(op);
  if (bits.size() <= op / 64u) bits.resize(op / 64u + 1, 0);
  bits[op / 64u] |= uint64_t{1} << (op % 64u);
}

Rule::Rule(std::string name, std::vector<std::string> source, std::vector<std::string> target, std::vector<std::string> where,
           std::vector<std::pair<std::string, std::string>> let)
    : name_(std::move(name)),
      source_text_(std::move(source)),
      target_text_(std::move(target)),
      where_text_(std::move(where)),
      let_text_(std::move(let)) {
  RuleParser(*this).parse();
  Hasher h(5);
  auto add = [&h](const std::vector<std::string>& list) {
    h.add(list.size());
    for (const auto& s : list) h.add_bytes(s);
  };
  add(source_text_);
  add(target_text_);
  add(where_text_);
  for (const auto& [k, v] : let_text_) {
    h.add_bytes(k);
    h.add_bytes(v);
  }
  digest_ = h.finish();
}

std::string Rule::text() const {
  auto join = [](const std::vector<std::string>& list, const char* between) {
    std::string s;
    for (size_t k = 0; k < list.size(); ++k) s += (k ? between : "") + list[k];
    return s;
  };
  std::string s = join(source_text_, ", ") + "  =>  " + join(target_text_, ", ");
  if (!where_text_.empty()) s += "  where " + join(where_text_, " and ");
  for (const auto& [k, v] : let_text_) s += "  let " + k + " = " + v;
  return s;
}

std::vector<std::string> Rule::operators() const {
  std::set<std::string> names;
  for (const auto* side : {&source_, &target_})
    for (const Term& t : *side)
      if (t.kind == Term::kOp && (t.ops.kind == OpClass::kOne || t.ops.kind == OpClass::kSet))
        for (OpId op : t.ops.members) names.insert(op_info(op).name);
  return {names.begin(), names.end()};
}

std::vector<OpId> Rule::target_operators() const {
  std::set<OpId> ids;
  for (const Term& t : target_)
    if (t.kind == Term::kOp && t.ops.kind == OpClass::kOne && t.op_var < 0) ids.insert(t.ops.members[0]);
  return {ids.begin(), ids.end()};
}

Bindings Rule::fresh_bindings() const {
  Bindings b;
  b.values.assign(value_names_.size(), kNoValue);
  b.sequences.resize(sequence_names_.size());
  b.attrs.assign(attr_names_.size(), nullptr);
  b.rests.resize(rest_names_.size());
  b.ops.resize(op_names_.size());
  return b;
}

bool Rule::same_source(const Rule& other) const {
  auto names = [](const Rule& r) { return std::tie(r.value_names_, r.sequence_names_, r.attr_names_, r.rest_names_, r.op_names_); };
  return source_text_ == other.source_text_ && uses_global_ == other.uses_global_ && names(*this) == names(other);
}

RuleSet::RuleSet(std::vector<RulePtr> rules) : rules_(std::move(rules)), by_root_(op_table().size()), families_(rules_.size()) {
  Hasher h(9);
  std::unordered_map<std::string, std::vector<uint32_t>> leaders;   // by the first source term
  for (uint32_t r = 0; r < rules_.size(); ++r) {
    const Rule& rule = *rules_[r];
    h.add_bytes(rule.name());
    h.add(rule.digest());
    depth_ = std::max(depth_, rule.depth());
    uses_fanout_ = uses_fanout_ || rule.uses_fanout();
    if (rule.star()) {
      star_.push_back(r);
      families_[r].push_back(r);
      continue;
    }
    auto& known = leaders[rule.source_text()[0]];
    auto same = std::find_if(known.begin(), known.end(), [&](uint32_t k) { return rules_[k]->same_source(rule); });
    families_[same == known.end() ? r : *same].push_back(r);
    if (same != known.end()) continue;
    known.push_back(r);
    for (OpId op : rule.source(rule.source_roots()[0]).ops.members) by_root_[op].push_back(r);
  }
  digest_ = h.finish();
  for (const RulePtr& rule : rules_) {
    std::vector<OperandTest>& tests = tests_.emplace_back();
    const Term& root = rule->source(rule->source_roots()[0]);
    bool commutes = std::any_of(root.ops.members.begin(), root.ops.members.end(), [](OpId op) { return op_info(op).has(kCommutative); });
    for (size_t c = 0; c < root.children.size(); ++c) {
      const Term& child = rule->source(root.children[c]);
      if (child.kind == Term::kOp) tests.push_back({commutes || root.has_sequence ? -1 : static_cast<int>(c), child.ops});
    }
  }
}

bool RuleSet::may_match(uint32_t r, const Graph& g, NodeId node) const {
  auto in = g.inputs(node);
  for (const OperandTest& t : tests_[r]) {
    if (t.child >= 0) {
      if (static_cast<size_t>(t.child) >= in.size() || in[t.child] == kNoValue || !t.ops.contains(g.node(g.producer(in[t.child])).op)) return false;
      continue;
    }
    bool any = false;
    for (ValueId v : in) any = any || (v != kNoValue && t.ops.contains(g.node(g.producer(v)).op));
    if (!any) return false;
  }
  return true;
}

bool RuleSet::may_gather(uint32_t r, const Graph& g, ValueId join) const {
  const Term& member = rules_[r]->source(rules_[r]->source_roots()[0]);
  int found = 0;
  for (const Graph::Use& u : g.users(join))
    if (member.ops.contains(g.node(u.node).op) && may_match(r, g, u.node) && ++found == 2) return true;
  return false;
}

}  // namespace rlflow
