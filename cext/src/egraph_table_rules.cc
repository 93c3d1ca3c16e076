// Compiled rules on the e-graph: skeletons to find places, small graphs to decide about them.
#include <algorithm>
#include <set>

#include "rlflow/egraph_table.h"
#include "rlflow/error.h"
#include "rlflow/match.h"
#include "rlflow/rewrite.h"

namespace rlflow::egraph {
namespace {

constexpr int kMaxSwaps = 4;                // commutative operators of one rule that are searched both ways

bool any_tuple(const OpClass& ops) { return std::any_of(ops.members.begin(), ops.members.end(), TableLanguage::is_tuple); }
bool any_commutative(const OpClass& ops) {
  return std::any_of(ops.members.begin(), ops.members.end(), [](OpId op) { return op_info(op).has(kCommutative); });
}

template <class Visit>
void each_term(const Rule& rule, int index, Visit& visit) {
  visit(index);
  for (const int child : rule.source(index).children) each_term(rule, child, visit);
}
template <class Visit>
void each_term(const Rule& rule, Visit visit) {
  for (const int root : rule.source_roots()) each_term(rule, root, visit);
}

// Terms whose operands must be tried in both orders. Two variables that occur nowhere else are one place either way.
std::vector<int> swaps_of(const Rule& rule) {
  std::vector<int> uses(rule.value_names().size(), 0), out;
  each_term(rule, [&](int i) {
    if (rule.source(i).kind == Term::kVar) ++uses[rule.source(i).ref];
  });
  each_term(rule, [&](int i) {
    const Term& t = rule.source(i);
    if (t.kind != Term::kOp || t.children.size() != 2 || !any_commutative(t.ops)) return;
    const auto free = [&](int c) { return rule.source(c).kind == Term::kVar && uses[rule.source(c).ref] == 1; };
    if (!free(t.children[0]) || !free(t.children[1])) out.push_back(i);
  });
  return out;
}

class Skeleton {
 public:
  Skeleton(const Rule& rule, const std::vector<int>& swaps, uint32_t mask) : rule_(rule), swaps_(swaps), mask_(mask) {}
  Pattern compile(int root) {
    pattern_ = {};
    term(root);
    return std::move(pattern_);
  }

 private:
  int term(int index) {
    const Term& t = rule_.source(index);
    if (t.kind == Term::kVar) return pattern_.add_variable(t.ref);
    if (t.kind == Term::kAbsent) return pattern_.add({-1, {kAbsent}, false, 0, {}});
    PatternNode node;
    node.any_attr = true;
    for (const OpId op : t.ops.members) node.ops.push_back(op);
    std::sort(node.ops.begin(), node.ops.end());
    for (const int child : t.children) node.children.push_back(term(child));
    const auto swap = std::find(swaps_.begin(), swaps_.end(), index);
    if (swap != swaps_.end() && mask_ >> (swap - swaps_.begin()) & 1) std::swap(node.children[0], node.children[1]);
    const int at = pattern_.add(std::move(node));
    if (!any_tuple(t.ops)) return at;
    return pattern_.add({-1, {kOutputOf}, t.projection == Term::kBound, static_cast<uint32_t>(t.projection == Term::kIndexed ? t.output : 0), {at}});
  }
  const Rule& rule_;
  const std::vector<int>& swaps_;
  uint32_t mask_;
  Pattern pattern_;
};

// What a rule makes of one kind of place: terms over the classes that the rule does not look into.
struct Outcome {
  std::vector<TermNode> terms;
  std::vector<int> targets;
};

class TableApplier : public Applier {
 public:
  TableApplier(std::shared_ptr<TableLanguage> language, RulePtr rule, std::vector<Pattern> patterns)
      : language_(std::move(language)), rule_(std::move(rule)), patterns_(std::move(patterns)) {}

  bool admits(const EGraph& g, const RuleMatch& match, std::vector<ClassId>& reads) override {
    const bool fires = !outcomes(g, match).empty();
    for (const ClassId c : leaves_) reads.push_back(c);
    return fires;
  }

  bool build(EGraph& g, const RuleMatch& match, std::vector<ClassId>& targets) override {
    for (const Outcome& outcome : outcomes(g, match)) {
      std::vector<ClassId> made;
      if (!write(g, outcome, made)) continue;
      if (targets.empty()) targets = made;
      else
        for (size_t k = 0; k < made.size(); ++k) g.unite(targets[k], made[k]);
    }
    return !targets.empty();
  }

 private:
  struct Place {                            // a match as a small graph
    GraphPtr graph;
    std::vector<NodeId> leaf;               // by leaf number
  };

  const std::vector<Outcome>& outcomes(const EGraph& g, const RuleMatch& match) {
    key_.clear();
    leaves_.clear();
    for (size_t k = 0; k < patterns_.size(); ++k)
      for (size_t i = 0; i < patterns_[k].nodes.size(); ++i) {
        const PatternNode& p = patterns_[k].nodes[i];
        if (p.variable < 0) {
          const ENode& n = g.node(match.matched[k][i]);
          key_.push_back(n.op);
          key_.push_back(n.attr);
          continue;
        }
        const ClassId c = g.find(match.bound[p.variable]);
        const auto known = std::find(leaves_.begin(), leaves_.end(), c);
        key_.push_back(static_cast<uint32_t>(known - leaves_.begin()));
        key_.push_back(g.data(c));
        if (known == leaves_.end()) leaves_.push_back(c);
      }
    const auto it = known_.find(key_);
    if (it != known_.end()) return it->second;
    return known_.emplace(key_, decide(g, match)).first->second;
  }

  std::vector<Outcome> decide(const EGraph& g, const RuleMatch& match) const {
    std::vector<Outcome> out;
    for (const ClassId c : leaves_) {
      const TableLanguage::Facts& f = language_->facts(g.data(c));
      if (f.tuple || f.absent) return out;  // a rule's variables stand for values
    }
    Place place;
    try {
      if (!small_graph(g, match, place)) return out;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kType && e.kind() != ErrorKind::kGraph) throw;
      return out;                           // what was merged in the class makes this node ill-typed
    }
    const Graph& s = *place.graph;
    std::set<NodeId> roots;
    for (const ValueId v : s.outputs()) roots.insert(s.producer(v));
    if (roots.size() != patterns_.size()) return out;            // two roots became one
    std::vector<Bindings> found;
    for (const NodeId root : roots)
      rlflow::Matcher(s, *rule_).match_at(root, [&](const Bindings& b) {
        if (std::set<NodeId>(b.roots.begin(), b.roots.end()) == roots) found.push_back(b);
      });
    for (const Bindings& b : found) {
      ChildGraph child;
      if (child.build(s, *rule_, b)) out.push_back(read(*child.materialise(), place));
    }
    return out;
  }

  bool small_graph(const EGraph& g, const RuleMatch& match, Place& place) const {
    GraphBuilder b;
    std::vector<ValueId> leaf;
    for (size_t i = 0; i < leaves_.size(); ++i) leaf.push_back(table_leaf(b, language_->facts(g.data(leaves_[i])), static_cast<uint32_t>(i)));
    std::vector<ValueId> roots;
    for (size_t k = 0; k < patterns_.size(); ++k) {
      const Pattern& p = patterns_[k];
      std::vector<ValueId> value(p.nodes.size(), kNoValue), in;
      for (size_t i = 0; i < p.nodes.size(); ++i) {
        const PatternNode& node = p.nodes[i];
        if (node.variable >= 0) {
          value[i] = leaf[std::find(leaves_.begin(), leaves_.end(), g.find(match.bound[node.variable])) - leaves_.begin()];
          continue;
        }
        const ENode& n = g.node(match.matched[k][i]);
        if (n.op == kAbsent) continue;
        if (n.op == kOutputOf) {
          value[i] = value[node.children[0]] + n.attr;
          continue;
        }
        in.clear();
        for (const int c : node.children) in.push_back(value[c]);
        const auto [attrs, outputs] = language_->attributes(n.attr);
        value[i] = b.add(static_cast<OpId>(n.op), attrs_of(attrs), in, static_cast<int>(outputs));
      }
      roots.push_back(value.back());
      if (roots.back() == kNoValue) return false;
    }
    place.graph = b.finish(roots);
    for (const ValueId v : leaf) place.leaf.push_back(place.graph->producer(v));
    return true;
  }

  Outcome read(const Graph& child, const Place& place) const {
    Outcome out;
    std::unordered_map<ValueId, int> term;
    for (const NodeId n : child.order()) {
      const Node& node = child.node(n);
      const auto leaf = std::find(place.leaf.begin(), place.leaf.end(), n);
      TermNode t;
      if (leaf != place.leaf.end()) {
        t.variable = static_cast<int>(leaf - place.leaf.begin());
      } else {
        t.op = node.op;
        t.attr = language_->symbol(node.attrs, node.out_count);
        for (const ValueId v : child.inputs(n)) {
          if (v == kNoValue) out.terms.push_back({-1, kAbsent, 0, {}});
          t.children.push_back(v == kNoValue ? static_cast<int>(out.terms.size()) - 1 : term.at(v));
        }
      }
      const bool tuple = t.variable < 0 && TableLanguage::is_tuple(node.op);
      out.terms.push_back(std::move(t));
      const int at = static_cast<int>(out.terms.size()) - 1;
      for (uint32_t k = 0; k < node.out_count; ++k) {
        if (tuple) out.terms.push_back({-1, kOutputOf, k, {at}});
        term[node.out_begin + k] = tuple ? static_cast<int>(out.terms.size()) - 1 : at;
      }
    }
    for (const ValueId v : child.outputs()) out.targets.push_back(term.at(v));
    return out;
  }

  // Adds the terms, or nothing where the facts about a class have become sharper than the small graph's and contradict them.
  bool write(EGraph& g, const Outcome& outcome, std::vector<ClassId>& made) {
    std::vector<DataId> data(outcome.terms.size()), facts;
    for (size_t i = 0; i < outcome.terms.size(); ++i) {
      const TermNode& t = outcome.terms[i];
      if (t.variable >= 0) {
        data[i] = g.data(leaves_[t.variable]);
        continue;
      }
      facts.clear();
      for (const int c : t.children) facts.push_back(data[c]);
      const auto d = language_->make(t.op, t.attr, facts);
      if (!d) return false;
      data[i] = *d;
    }
    std::vector<ClassId> cls(outcome.terms.size()), children;
    for (size_t i = 0; i < outcome.terms.size(); ++i) {
      const TermNode& t = outcome.terms[i];
      if (t.variable >= 0) {
        cls[i] = g.find(leaves_[t.variable]);
        continue;
      }
      children.clear();
      for (const int c : t.children) children.push_back(cls[c]);
      cls[i] = g.add(t.op, t.attr, children, data[i]);
    }
    for (const int t : outcome.targets) made.push_back(cls[t]);
    return true;
  }

  std::shared_ptr<TableLanguage> language_;
  RulePtr rule_;
  std::vector<Pattern> patterns_;
  std::map<std::vector<uint32_t>, std::vector<Outcome>> known_;
  std::vector<uint32_t> key_;
  std::vector<ClassId> leaves_;             // of the match at hand
};

}  // namespace

std::string declined(const Rule& rule) {
  if (rule.star()) return "its source is starred: it takes any number of nodes at once";
  if (rule.uses_global()) return "it asks for independent(...): in an e-graph there is no one graph whose paths could be looked at";
  if (rule.uses_fanout()) return "it asks for users(...): in an e-graph a value has the users of many graphs";
  std::string reason;
  each_term(rule, [&](int i) {
    const Term& t = rule.source(i);
    if (t.kind == Term::kSeqVar || t.has_sequence) reason = "its source holds a sequence variable, and skeletons have a fixed number of operands";
    else if (t.kind != Term::kVar && t.kind != Term::kAbsent && t.kind != Term::kOp) reason = "its source holds a literal or a let";
    else if (t.star) reason = "its source holds a starred term";
    else if (t.projection == Term::kAll) reason = "its source takes all outputs of an operator";
    else if (t.kind == Term::kOp && any_tuple(t.ops) && t.ops.members.size() > 1) reason = "its source holds a class of operators, some of which have several outputs";
    else if (t.kind == Term::kOp && (t.ops.contains(kOpOpaque) || t.ops.contains(kOpConstant))) reason = "its source looks into a constant or an unknown operator";
  });
  if (!reason.empty()) return reason;
  for (const int root : rule.source_roots())
    if (rule.source(root).kind != Term::kOp) return "a root of it is no operator";
    else if (any_tuple(rule.source(root).ops)) return "a root of it may have several outputs, which are replaced together";
  if (swaps_of(rule).size() > kMaxSwaps) return "it holds more than " + std::to_string(kMaxSwaps) + " commutative operators to be searched both ways";
  return "";
}

std::vector<RewriteRule> table_rules(const std::shared_ptr<TableLanguage>& language, const RulePtr& rule) {
  if (const std::string reason = declined(*rule); !reason.empty()) throw Error(ErrorKind::kRule, "the e-graph declines the rule " + rule->name() + ": " + reason);
  const std::vector<int> swaps = swaps_of(*rule);
  std::set<std::string> seen;
  std::vector<RewriteRule> out;
  for (uint32_t mask = 0; mask < 1u << swaps.size(); ++mask) {
    Skeleton skeleton(*rule, swaps, mask);
    RewriteRule r;
    r.name = rule->name();
    r.variables = static_cast<int>(rule->value_names().size());
    r.unordered = rule->ordered_roots();
    for (const int root : rule->source_roots()) r.sources.push_back(skeleton.compile(root));
    std::vector<int> renaming;
    if (r.sources.size() == 1 && !seen.insert(r.sources[0].canonical_text(renaming)).second) continue;  // the small graph finds both
    r.applier = std::make_shared<TableApplier>(language, rule, r.sources);
    out.push_back(std::move(r));
  }
  return out;
}

}  // namespace rlflow::egraph
