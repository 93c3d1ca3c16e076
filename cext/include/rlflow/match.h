// Matching: every place where a rule's source stands in a graph and its conditions certainly hold.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rlflow/graph.h"
#include "rlflow/rule.h"

namespace rlflow {

struct Match {
  Match(uint32_t rule, const Bindings& bindings);
  uint32_t rule;
  Bindings bindings;
  uint64_t signature;               // of the rule and the matched nodes: the same in parent and child where the match persists
  NodeId root() const { return bindings.roots[0]; }
};
using MatchPtr = std::shared_ptr<const Match>;

// The first reason, found deepest in the pattern, why an attempt failed. Filled only when asked for.
struct Failure {
  int depth = -1;
  std::string text;
};

class Matcher {
 public:
  using Sink = std::function<void(const Bindings&, uint32_t rule)>;   // `rule` as the family names it, else 0
  Matcher(const Graph& graph, const Rule& rule, Failure* why = nullptr) : g_(graph), rule_(rule), why_(why) {}
  // For all rules of a family at once: one walk over the pattern, then the conditions of each.
  Matcher(const Graph& graph, const RuleSet& rules, uint32_t leader)
      : g_(graph), rule_(rules.rule(leader)), rules_(&rules), family_(rules.family(leader)) {}

  // All matches whose first root is `node`. Not for star rules.
  void match_at(NodeId node, const Sink& sink);
  // All groups of a star rule around one shared value.
  void match_star(ValueId join, const Sink& sink);
  // The conditions of a rule, for bindings made elsewhere; lets are evaluated on the way.
  bool conditions_hold(const Rule& rule, const Bindings& b);

 private:
  struct Goal {
    int term;
    ValueId value;
  };
  struct Deferred {
    const AttrPattern* pattern;
    const AttrValue* value;
  };
  bool solve(size_t at);
  bool match_node(int term, NodeId node, size_t at);
  bool match_children(const Term& t, NodeId node, size_t at);
  bool push_children(const Term& t, std::span<const ValueId> in, size_t at);
  bool match_sequence(const Term& t, std::span<const ValueId> in, size_t child, size_t used, size_t at);
  bool bind_attributes(const Term& t, const AttrSet& attrs);
  bool bind_operator(const Term& t, const Node& node, std::span<const ValueId> extra);
  bool next_root(size_t root);
  std::vector<NodeId> root_candidates(int term) const;
  bool complete();
  bool deferred_hold();
  bool extra_operands_fine(std::span<const ValueId> extra) const;
  void fail(const std::function<std::string()>& text);
  std::string node_text(NodeId n) const;

  const Graph& g_;
  const Rule& rule_;
  Failure* why_ = nullptr;
  const RuleSet* rules_ = nullptr;
  std::span<const uint32_t> family_;
  Bindings b_;
  std::vector<Goal> goals_;
  std::vector<Deferred> deferred_;
  size_t root_ = 0;                // the source root being solved
  size_t members_ = 0;             // star: members bound so far
  bool first_only_ = false;        // star members: the first solution is enough
  const Sink* sink_ = nullptr;
};

// The key of a match: ordinals in canonical topological order, so that a trace replays on any copy of the graph.
std::vector<int64_t> match_key(const Graph& g, const Match& m);

// What the rules of a set cost, by rule: counted over a whole search where somebody asks for it.
struct RuleProfile {
  struct Row {
    uint64_t tried = 0;             // places where the operators stand and the pattern was looked at
    uint64_t matched = 0, built = 0;                              // matches found; children built and priced
    uint64_t match_ns = 0, build_ns = 0;
  };
  explicit RuleProfile(size_t rules) : rows(rules) {}
  std::vector<Row> rows;
};

// Every match of every rule, rule by rule in canonical order of roots.
std::vector<MatchPtr> enumerate_matches(const Graph& g, const RuleSet& rules, RuleProfile* profile = nullptr);
// The child's matches from the parent's, looking only around what changed by one rewrite or by several. Equals enumerate_matches(child).
std::vector<MatchPtr> update_matches(const Graph& parent, const std::vector<MatchPtr>& matches, const Graph& child, std::span<const NodeId> changed,
                                     const RuleSet& rules, RuleProfile* profile = nullptr);
void sort_matches(const Graph& g, std::vector<MatchPtr>& matches);
// The matches of one rule whose first root is `root`, as enumerate_matches() orders them.
std::vector<MatchPtr> matches_at(const Graph& g, const RuleSet& rules, uint32_t rule, NodeId root);

// Sentences that say why `rule` does not fire at `node` (kNoNode: at every node its root could be), or that it does.
std::vector<std::string> explain(const Graph& g, const Rule& rule, NodeId node);

}  // namespace rlflow
