// Compiled rules on the e-graph: skeletons to find places, small graphs to decide about them.
#include <algorithm>
#include <set>

#include "rlflow/egraph_table.h"
#include "rlflow/error.h"
#include "rlflow/match.h"
#include "rlflow/rewrite.h"

namespace rlflow::egraph {
namespace {

constexpr size_t kMaxShapes = 1024;         // of one rule's source
constexpr size_t kMaxLengths = 1u << 16;    // ways to give sequences lengths, before those that no operator has room for are left out

// May have several outputs, so that a term for it stands for the first output of some nodes, and for others as a whole.
bool any_variadic(const OpClass& ops) {
  return std::any_of(ops.members.begin(), ops.members.end(), [](OpId op) { return op_info(op).outputs != 1 || op_info(op).has(kVariadicOutputs); });
}
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
bool is_root(const Rule& rule, int index) {
  const auto& roots = rule.source_roots();
  return std::find(roots.begin(), roots.end(), index) != roots.end();
}

// What a source leaves open about the shape of a place: each choice is searched for as a pattern of its own.
struct Shapes {
  std::vector<int> swaps;                   // terms whose two operands are tried in both orders
  std::vector<int> firsts;                  // terms that stand for a whole node or for the first output of one
  std::vector<std::vector<int>> lengths{{}};    // of the sequence variables: what an operator of at most kMaxSequence operands has room for

  explicit Shapes(const Rule& rule) {
    std::vector<int> uses(rule.value_names().size(), 0);
    each_term(rule, [&](int i) {
      if (rule.source(i).kind == Term::kVar) ++uses[rule.source(i).ref];
    });
    each_term(rule, [&](int i) {
      const Term& t = rule.source(i);
      if (t.kind != Term::kOp) return;
      // Two variables that occur nowhere else are one place either way.
      const auto free = [&](int c) { return rule.source(c).kind == Term::kVar && uses[rule.source(c).ref] == 1; };
      if (t.children.size() == 2 && any_commutative(t.ops) && !(free(t.children[0]) && free(t.children[1]))) swaps.push_back(i);
      if (any_variadic(t.ops) && t.projection == Term::kFirst && !is_root(rule, i)) firsts.push_back(i);
    });
    if (rule.star()) return;                // one operand a member
    for (size_t i = 0; i < rule.sequence_names().size() && lengths.size() <= kMaxLengths; ++i) extend_lengths();
    if (lengths.size() > kMaxLengths) return;                    // declined
    std::erase_if(lengths, [&](const std::vector<int>& shape) { return !has_room(rule, shape); });
  }
  size_t count() const { return lengths.size() << std::min<size_t>(swaps.size() + firsts.size(), 20); }
  bool swapped(int term, size_t shape) const { return bit(swaps, term, shape); }
  bool first(int term, size_t shape) const { return bit(firsts, term, shape >> swaps.size()); }
  int length(int sequence, size_t shape) const { return lengths[shape >> (swaps.size() + firsts.size())][sequence]; }

 private:
  void extend_lengths() {
    std::vector<std::vector<int>> longer;
    for (const auto& shape : lengths)
      for (int n = 0; n <= kMaxSequence; ++n) {
        longer.push_back(shape);
        longer.back().push_back(n);
      }
    lengths = std::move(longer);
  }
  // Every operator has one to kMaxSequence operands, and a sequence that stands alone for a whole list of operands is not empty.
  static bool has_room(const Rule& rule, const std::vector<int>& shape) {
    bool room = true;
    each_term(rule, [&](int i) {
      const Term& t = rule.source(i);
      int operands = 0, sequences = 0;
      for (const int child : t.children) {
        const Term& c = rule.source(child);
        sequences += c.kind == Term::kSeqVar;
        operands += c.kind == Term::kSeqVar ? shape[c.ref] : 1;
      }
      if (sequences > 0) room = room && operands >= 1 && operands <= kMaxSequence + static_cast<int>(t.children.size()) - sequences;
    });
    return room;
  }
  static bool bit(const std::vector<int>& terms, int term, size_t shape) {
    const auto it = std::find(terms.begin(), terms.end(), term);
    return it != terms.end() && shape >> (it - terms.begin()) & 1;
  }
};

// Variables of the pattern: the rule's values, then the elements of its sequences.
class Skeleton {
 public:
  Skeleton(const Rule& rule, const Shapes& shapes, size_t shape) : rule_(rule), shapes_(shapes), shape_(shape) {}
  static int variables(const Rule& rule) { return static_cast<int>(rule.value_names().size() + kMaxSequence * rule.sequence_names().size()); }
  Pattern compile(int root) {
    pattern_ = {};
    term(root);
    Pattern ordered;
    reorder(static_cast<int>(pattern_.nodes.size()) - 1, ordered);
    return ordered;
  }

 private:
  // Nodes in the order of a walk: patterns of one canonical text share their matches, so they must agree on which node is which.
  int reorder(int index, Pattern& out) const {
    PatternNode node = pattern_.nodes[index];
    if (node.variable >= 0) return out.add_variable(node.variable);
    for (int& child : node.children) child = reorder(child, out);
    return out.add(std::move(node));
  }
  int element(int sequence, int at) { return pattern_.add_variable(static_cast<int>(rule_.value_names().size()) + kMaxSequence * sequence + at); }
  int term(int index) {
    const Term& t = rule_.source(index);
    if (t.kind == Term::kVar) return pattern_.add_variable(t.ref);
    if (t.kind == Term::kAbsent) return pattern_.add({-1, {kAbsent}, false, 0, {}});
    PatternNode node;
    node.any_attr = true;
    for (const OpId op : t.ops.members) node.ops.push_back(op);
    std::sort(node.ops.begin(), node.ops.end());
    for (const int child : t.children) {
      const Term& c = rule_.source(child);
      const int length = c.kind != Term::kSeqVar ? 0 : rule_.star() ? 1 : shapes_.length(c.ref, shape_);
      for (int i = 0; i < length; ++i) node.children.push_back(element(c.ref, i));
      if (c.kind != Term::kSeqVar) node.children.push_back(term(child));
    }
    if (shapes_.swapped(index, shape_)) std::swap(node.children[0], node.children[1]);
    const int at = pattern_.add(std::move(node));
    if (t.projection == Term::kFirst && !shapes_.first(index, shape_)) return at;
    return pattern_.add({-1, {kOutputOf}, t.projection == Term::kBound, static_cast<uint32_t>(t.projection == Term::kIndexed ? t.output : 0), {at}});
  }
  const Rule& rule_;
  const Shapes& shapes_;
  size_t shape_;
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
    for (size_t k = 0; k < match.roots.size(); ++k) {
      const Pattern& pattern = patterns_[match.group ? 0 : k];
      for (size_t i = 0; i < pattern.nodes.size(); ++i) {
        const PatternNode& p = pattern.nodes[i];
        if (p.variable < 0) {
          const ENode& n = g.node(match.matched[k][i]);
          key_.push_back(n.op);
          key_.push_back(n.attr);
          continue;
        }
        const ClassId c = g.find(match.bound_of(k)[p.variable]);
        const auto known = std::find(leaves_.begin(), leaves_.end(), c);
        key_.push_back(static_cast<uint32_t>(known - leaves_.begin()));
        key_.push_back(g.data(c));
        if (known == leaves_.end()) leaves_.push_back(c);
      }
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
    if (roots.size() != match.roots.size()) return out;          // two roots became one
    std::vector<Bindings> found;
    if (match.group) {
      rlflow::Matcher(s, *rule_).match_star(join_value(g, match, place), [&](const Bindings& b, uint32_t) { found.push_back(b); });
    } else {
      for (const NodeId root : roots)
        rlflow::Matcher(s, *rule_).match_at(root, [&](const Bindings& b, uint32_t) {
          if (std::set<NodeId>(b.roots.begin(), b.roots.end()) == roots) found.push_back(b);
        });
    }
    for (const Bindings& b : found) {
      ChildGraph child;
      if (child.build(place.graph, *rule_, b)) out.push_back(read(*child.materialise(), place));
    }
    return out;
  }

  size_t leaf_of(const EGraph& g, ClassId c) const { return std::find(leaves_.begin(), leaves_.end(), g.find(c)) - leaves_.begin(); }

  ValueId join_value(const EGraph& g, const RuleMatch& match, const Place& place) const {
    const Term& root = rule_->source(rule_->source_roots()[0]);
    const int variable = rule_->source(root.children[rule_->join_child()]).ref;
    return place.graph->node(place.leaf[leaf_of(g, match.bound_of(0)[variable])]).out_begin;
  }

  bool small_graph(const EGraph& g, const RuleMatch& match, Place& place) const {
    GraphBuilder b;
    std::vector<ValueId> leaf;
    leaf.reserve(leaves_.size());
    for (size_t i = 0; i < leaves_.size(); ++i) leaf.push_back(table_leaf(b, language_->facts(g.data(leaves_[i])), static_cast<uint32_t>(i)));
    std::vector<ValueId> roots;
    for (size_t k = 0; k < match.roots.size(); ++k) {
      const Pattern& p = patterns_[match.group ? 0 : k];
      std::vector<ValueId> value(p.nodes.size(), kNoValue), in;
      for (size_t i = 0; i < p.nodes.size(); ++i) {
        const PatternNode& node = p.nodes[i];
        if (node.variable >= 0) {
          value[i] = leaf[leaf_of(g, match.bound_of(k)[node.variable])];
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
        const bool taken_apart = i + 1 < p.nodes.size() && p.nodes[i + 1].ops == std::vector<uint32_t>{kOutputOf};   // Skeleton puts it next
        if ((outputs != 1) != taken_apart) return false;         // the term stands for a whole node, and this one is a tuple
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
      const bool tuple = t.variable < 0 && node.out_count != 1;
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

// `independent` keeps a replacement from closing a cycle in a graph; it does not bear on what is equal. Here the cycle filter sees to that.
std::string declined(const Rule& rule) {
  if (rule.uses_fanout()) return "it asks for users(...): in an e-graph a value has the users of many graphs";
  std::string reason;
  each_term(rule, [&](int i) {
    const Term& t = rule.source(i);
    if (t.kind != Term::kVar && t.kind != Term::kAbsent && t.kind != Term::kOp && t.kind != Term::kSeqVar)
      reason = "its source holds a literal or a let";
    else if (t.star && !is_root(rule, i)) reason = "its source holds a starred term below the root";
    else if (t.projection == Term::kAll) reason = "its source takes all outputs of an operator";
    else if (t.kind == Term::kOp && (t.ops.contains(kOpOpaque) || t.ops.contains(kOpConstant)))
      reason = "its source looks into a constant or an unknown operator";
  });
  if (!reason.empty()) return reason;
  for (const int root : rule.source_roots())
    if (rule.source(root).kind != Term::kOp) return "a root of it is no operator";
    else if (rule.source(root).projection != Term::kFirst) return "a root of it is one output of several";
  if (Shapes(rule).count() > kMaxShapes) return "its source has too many shapes: operands to swap, sequences of any length";
  return "";
}

std::vector<RewriteRule> table_rules(const std::shared_ptr<TableLanguage>& language, const RulePtr& rule) {
  if (const std::string reason = declined(*rule); !reason.empty())
    throw Error(ErrorKind::kRule, "the e-graph declines the rule " + rule->name() + ": " + reason);
  const Shapes shapes(*rule);
  std::set<std::string> seen;
  std::vector<RewriteRule> out;
  for (size_t shape = 0; shape < shapes.count(); ++shape) {
    Skeleton skeleton(*rule, shapes, shape);
    RewriteRule r;
    r.name = rule->name();
    r.variables = Skeleton::variables(*rule);
    r.unordered = rule->ordered_roots();
    if (rule->star()) r.group = static_cast<int>(rule->value_names().size());
    for (const int root : rule->source_roots()) r.sources.push_back(skeleton.compile(root));
    std::vector<int> renaming;
    if (r.sources.size() == 1 && !seen.insert(r.sources[0].canonical_text(renaming)).second) continue;  // the small graph finds both
    r.applier = std::make_shared<TableApplier>(language, rule, r.sources);
    out.push_back(std::move(r));
  }
  return out;
}

}  // namespace rlflow::egraph
