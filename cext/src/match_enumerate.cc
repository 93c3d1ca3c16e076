// All matches of a graph: found from nothing, carried over from a parent, put in order; and why a rule does not fire.
#include <algorithm>
#include <chrono>

#include "rlflow/match.h"

namespace rlflow {
namespace {

// Finds matches and appends them to a list; where there is a profile, counts and times what each rule took.
class Finder {
 public:
  Finder(const Graph& g, const RuleSet& rules, RuleProfile* profile, std::vector<MatchPtr>& out)
      : g_(g), rules_(rules), profile_(profile), out_(out) {}

  void at(uint32_t r, NodeId n) {
    if (!rules_.may_match(r, g_, n)) return;
    counted(r, [&](Matcher& m, const Matcher::Sink& sink) { m.match_at(n, sink); });
  }
  void star(uint32_t r, ValueId v) {
    if (!rules_.may_gather(r, g_, v)) return;
    counted(r, [&](Matcher& m, const Matcher::Sink& sink) { m.match_star(v, sink); });
  }
  void everywhere(uint32_t r) {
    const Rule& rule = rules_.rule(r);
    for (NodeId n : g_.order()) {
      if (rule.star()) {
        for (int k = 0; k < g_.node(n).out_count; ++k) star(r, g_.node(n).out_begin + k);
      } else if (rule.source(rule.source_roots()[0]).ops.contains(g_.node(n).op)) {
        at(r, n);
      }
    }
  }

 private:
  template <class Match_>
  void counted(uint32_t r, Match_&& match) {
    Matcher matcher(g_, rules_, r);
    const Matcher::Sink sink = [&](const Bindings& b, uint32_t rule) { out_.push_back(std::make_shared<Match>(rule, b)); };
    if (!profile_) return match(matcher, sink);
    const size_t before = out_.size();
    const auto start = std::chrono::steady_clock::now();
    match(matcher, sink);
    const auto family = rules_.family(r);
    const auto ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    for (uint32_t k : family) {  // they share the walk, so they share its time
      ++profile_->rows[k].tried;
      profile_->rows[k].match_ns += static_cast<uint64_t>(ns) / family.size();
    }
    for (size_t k = before; k < out_.size(); ++k) ++profile_->rows[out_[k]->rule].matched;
  }
  const Graph& g_;
  const RuleSet& rules_;
  RuleProfile* profile_;
  std::vector<MatchPtr>& out_;
};

ValueId star_join(const RuleSet& rules, const Match& m) {
  const Rule& rule = rules.rule(m.rule);
  const Term& root = rule.source(rule.source_roots()[0]);
  return m.bindings.values[rule.source(root.children[rule.join_child()]).ref];
}

// Marks nodes within `levels` users of the seeds.
class Neighbourhood {
 public:
  Neighbourhood(const Graph& g) : g_(g), level_(g.node_capacity(), -1) {}
  void add(NodeId n, int levels) {
    if (level_[n] >= levels) return;
    if (level_[n] < 0) nodes_.push_back(n);
    level_[n] = levels;
    if (levels == 0) return;
    const Node& node = g_.node(n);
    for (int k = 0; k < node.out_count; ++k)
      for (const auto& use : g_.users(node.out_begin + k)) add(use.node, levels - 1);
  }
  bool contains(NodeId n) const { return level_[n] >= 0; }
  const std::vector<NodeId>& nodes() const { return nodes_; }

 private:
  const Graph& g_;
  std::vector<int> level_;
  std::vector<NodeId> nodes_;
};

// Values that lie at most `levels` operands below a node.
void values_below(const Graph& g, NodeId n, int levels, std::vector<uint8_t>& mark) {
  for (ValueId v : g.inputs(n)) {
    if (v == kNoValue) continue;
    if (mark[v] >= levels) continue;
    mark[v] = static_cast<uint8_t>(levels);
    if (levels > 1) values_below(g, g.producer(v), levels - 1, mark);
  }
}

}  // namespace

std::vector<MatchPtr> enumerate_matches(const Graph& g, const RuleSet& rules, RuleProfile* profile) {
  std::vector<MatchPtr> out;
  Finder find(g, rules, profile, out);
  for (NodeId n : g.order()) {
    if (!(g.node(n).flags & kConst))
      for (uint32_t r : rules.rooted_at(g.node(n).op)) find.at(r, n);
    for (int k = 0; k < g.node(n).out_count; ++k)
      for (uint32_t r : rules.star_rules()) find.star(r, g.node(n).out_begin + k);
  }
  sort_matches(g, out);
  return out;
}

void sort_matches(const Graph& g, std::vector<MatchPtr>& matches) {
  struct Item {
    uint64_t head;
    std::vector<int64_t> key;
    MatchPtr match;
  };
  std::vector<Item> items;
  items.reserve(matches.size());
  for (auto& m : matches) {
    uint64_t head = (static_cast<uint64_t>(m->rule) << 32) | g.position(m->root());
    items.push_back({head, {}, std::move(m)});
  }
  auto less = [&g](Item& a, Item& b) {
    if (a.head != b.head) return a.head < b.head;
    if (a.key.empty()) a.key = match_key(g, *a.match);
    if (b.key.empty()) b.key = match_key(g, *b.match);
    return a.key < b.key;
  };
  std::vector<Item*> order;
  order.reserve(items.size());
  for (Item& i : items) order.push_back(&i);
  std::sort(order.begin(), order.end(), [&](Item* a, Item* b) { return less(*a, *b); });
  for (size_t k = 0; k < order.size(); ++k) matches[k] = std::move(order[k]->match);
}

std::vector<MatchPtr> matches_at(const Graph& g, const RuleSet& rules, uint32_t r, NodeId root) {
  const Rule& rule = rules.rule(r);
  std::vector<MatchPtr> out;
  Matcher matcher(g, rule);
  const Matcher::Sink sink = [&](const Bindings& b, uint32_t) {
    if (b.roots[0] == root) out.push_back(std::make_shared<Match>(r, b));
  };
  const Term& first = rule.source(rule.source_roots()[0]);
  if (!g.alive(root) || (g.node(root).flags & kConst) || !first.ops.contains(g.node(root).op)) return out;
  if (rule.star()) {
    const auto in = g.inputs(root);
    const size_t slot = static_cast<size_t>(rule.join_child());
    if (slot < in.size() && in[slot] != kNoValue) matcher.match_star(in[slot], sink);
  } else {
    matcher.match_at(root, sink);
  }
  sort_matches(g, out);
  return out;
}

std::vector<MatchPtr> update_matches(const Graph& parent, const std::vector<MatchPtr>& matches, const Graph& child, std::span<const NodeId> changed,
                                     const RuleSet& rules, RuleProfile* profile) {
  // Roots whose pattern may reach something that changed; one level more for those that changed only in who uses them.
  Neighbourhood near(child);
  std::vector<uint8_t> values(child.value_capacity(), 0);
  for (NodeId n : changed) {
    if (child.alive(n)) {
      near.add(n, rules.depth());
      for (int k = 0; k < child.node(n).out_count; ++k) values[child.node(n).out_begin + k] = 1;  // it may have lost or won a reader
    } else if (n < parent.node_capacity())
      for (ValueId v : parent.inputs(n))
        if (v != kNoValue) values[v] = 1;
  }
  // Star groups around a value that a near or dead node reads, and rules of several roots that share such a value.
  for (NodeId n : near.nodes()) values_below(child, n, rules.depth(), values);
  Neighbourhood joined(child);
  for (NodeId n : near.nodes()) joined.add(n, 0);
  for (ValueId v = 0; v < child.value_capacity(); ++v)
    if (values[v] && child.alive(child.producer(v)))
      for (const auto& use : child.users(v)) joined.add(use.node, rules.depth() - 1);

  auto again = [&](const Rule& rule) { return rule.uses_global(); };
  std::vector<MatchPtr> out;
  out.reserve(matches.size() + 16);
  Finder find(child, rules, profile, out);
  for (const MatchPtr& m : matches) {
    const Rule& rule = rules.rule(m->rule);
    if (again(rule)) continue;
    bool alive = true;
    for (NodeId n : m->bindings.nodes) alive = alive && child.alive(n);
    if (rule.star()) alive = alive && child.alive(child.producer(star_join(rules, *m)));
    if (!alive) continue;
    if (rule.star() ? values[star_join(rules, *m)] != 0 : rule.source_roots().size() > 1 ? joined.contains(m->root()) : near.contains(m->root()))
      continue;
    out.push_back(m);
  }
  for (NodeId n : joined.nodes()) {
    if (child.node(n).flags & kConst) continue;
    for (uint32_t r : rules.rooted_at(child.node(n).op)) {
      const Rule& rule = rules.rule(r);
      if (again(rule) || (rule.source_roots().size() == 1 && !near.contains(n))) continue;
      find.at(r, n);
    }
  }
  for (uint32_t r : rules.star_rules())
    if (!again(rules.rule(r)))
      for (ValueId v = 0; v < child.value_capacity(); ++v)
        if (values[v] && child.alive(child.producer(v))) find.star(r, v);
  for (uint32_t r = 0; r < rules.size(); ++r)
    if (rules.leads(r) && again(rules.rule(r))) find.everywhere(r);
  sort_matches(child, out);
  return out;
}

std::vector<std::string> explain(const Graph& g, const Rule& rule, NodeId node) {
  std::vector<std::string> out;
  const Term& root = rule.source(rule.source_roots()[0]);
  for (NodeId n : g.order()) {
    if (node != kNoNode ? n != node : !root.ops.contains(g.node(n).op)) continue;
    Failure why;
    int found = 0;
    Matcher matcher(g, rule, &why);
    auto sink = [&](const Bindings&, uint32_t) { ++found; };
    if (rule.star()) {
      size_t slot = static_cast<size_t>(rule.join_child());
      if (slot < g.inputs(n).size() && g.inputs(n)[slot] != kNoValue) matcher.match_star(g.inputs(n)[slot], sink);
      if (!found && why.depth < 0) why.text = "no second node reads the same operand";
    } else {
      matcher.match_at(n, sink);
    }
    std::string where = g.op(n).name + " at position " + std::to_string(g.position(n)) + ": ";
    out.push_back(where + (found ? "the rule fires (" + std::to_string(found) + (found == 1 ? " way)" : " ways)") : why.text));
  }
  if (out.empty())
    out.push_back("no node of the graph is a " + std::string(root.op_var < 0 ? op_info(root.ops.members[0]).name : "candidate for the rule's root"));
  return out;
}

}  // namespace rlflow
