// A substitution: parsed, checked and compiled once (DESIGN C3; the term language is described in docs/rules.md).
#pragma once
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rlflow/expr.h"

namespace rlflow {

struct OpClass {
  enum Kind : uint8_t { kOne, kUnary, kUnaryZero, kMonotone, kBinary, kReduce, kSet };
  Kind kind = kOne;
  std::vector<OpId> members;                    // every operator it stands for
  std::vector<uint64_t> bits;                   // the same as a bitmap
  void add(OpId op);
  bool contains(OpId op) const { return op / 64u < bits.size() && bits[op / 64u] >> (op % 64u) & 1; }
};

struct AttrPattern {
  std::string name;
  int var = -1;                                 // binds / compares an attribute variable
  ExprPtr expr;                                 // else: must be equal to this
  bool absent = false;                          // else: must not be there
};

// A node of a source or target term, stored in one array per rule; children are indices into it.
struct Term {
  enum Kind : uint8_t { kVar, kSeqVar, kOp, kAbsent, kLet, kLiteral, kInts };
  Kind kind = kOp;
  int ref = -1;                                 // value, sequence or let-term index
  OpClass ops;
  int op_var = -1;                              // ?f; carries attributes (and extra operands) too when op_carries is set
  bool op_carries = false;
  std::vector<AttrPattern> attrs;
  int rest = -1;                                // ..?rest
  std::vector<std::string> excluded;            // what ..?rest leaves out: the named attributes
  std::vector<int> children;
  enum Projection : uint8_t { kFirst, kIndexed, kBound, kAll };
  Projection projection = kFirst;
  int output = 0;                               // kIndexed: the number; kBound: the attribute variable
  bool star = false;                            // *term
  bool has_sequence = false;                    // a child is a sequence variable or starred
  ExprPtr literal;                              // kLiteral, kInts
  int like = -1;                                // kLiteral: the value variable whose dtype it takes
  bool like_sequence = false;
};

struct RestBinding {
  AttrId attrs = 0;
  const std::vector<std::string>* excluded = nullptr;
};
struct OpBinding {
  bool bound = false;
  OpId op = 0;
  AttrId attrs = 0;
  std::vector<ValueId> extra;
};

// What a match binds. Attribute values point into interned storage and live for ever.
struct Bindings {
  std::vector<ValueId> values;
  std::vector<std::vector<ValueId>> sequences;
  std::vector<const AttrValue*> attrs;
  std::vector<RestBinding> rests;
  std::vector<OpBinding> ops;
  std::vector<NodeId> nodes;                    // matched operator nodes, roots' terms in preorder
  std::vector<NodeId> roots;                    // root nodes, in rule order (members of a star group in canonical order)
};

struct LetExpr {
  std::string name;
  ExprPtr expr;
};

class Rule {
 public:
  // Throws Error(kRule) with the reason: syntax, unknown operator or attribute, unbound variable, unconstrained attribute, ...
  Rule(std::string name, std::vector<std::string> source, std::vector<std::string> target, std::vector<std::string> where,
       std::vector<std::pair<std::string, std::string>> let);

  const std::string& name() const { return name_; }
  const Hash128& digest() const { return digest_; }           // of the statement, not of the name
  std::string text() const;                                   // source => target where ...
  std::vector<std::string> operators() const;                 // names used on either side, sorted
  std::vector<OpId> target_operators() const;

  const Term& source(int i) const { return source_[i]; }
  const Term& target(int i) const { return target_[i]; }
  const std::vector<int>& source_roots() const { return source_roots_; }
  const std::vector<int>& target_roots() const { return target_roots_; }
  bool star() const { return star_; }                         // the single source root is starred
  int join_child() const { return join_child_; }              // star: the child position of the plain join variable
  bool ordered_roots() const { return ordered_roots_; }       // the roots are renamings of each other: match them in canonical order only
  int depth() const { return depth_; }                        // operator levels of the deepest source term
  bool uses_global() const { return uses_global_; }           // `independent`, or roots that share nothing: may change by a rewrite anywhere
  bool uses_fanout() const { return uses_fanout_; }           // `users`
  const std::vector<ExprPtr>& where() const { return where_; }
  const std::vector<LetExpr>& let_exprs() const { return let_exprs_; }
  int let_term(int i) const { return let_terms_[i]; }
  Bindings fresh_bindings() const;
  const std::vector<std::string>& source_text() const { return source_text_; }
  // The same pattern and the same variables as another rule's: what one binds, the other binds too.
  bool same_source(const Rule& other) const;
  const std::vector<std::string>& value_names() const { return value_names_; }
  const std::vector<std::string>& sequence_names() const { return sequence_names_; }
  const std::vector<std::string>& attr_names() const { return attr_names_; }

 private:
  friend class RuleParser;  // rule_parser.h
  friend class TermParser;
  std::string name_;
  Hash128 digest_;
  std::vector<std::string> source_text_, target_text_, where_text_;
  std::vector<std::pair<std::string, std::string>> let_text_;
  std::vector<Term> source_, target_;
  std::vector<int> source_roots_, target_roots_;
  bool star_ = false, ordered_roots_ = false, uses_global_ = false, uses_fanout_ = false;
  int join_child_ = -1, depth_ = 1;
  std::vector<ExprPtr> where_;
  std::vector<LetExpr> let_exprs_;
  std::vector<int> let_terms_;
  std::vector<std::string> value_names_, sequence_names_, attr_names_, rest_names_, op_names_;
};
using RulePtr = std::shared_ptr<const Rule>;

// The set a search uses: rules in a fixed order, indexed by the operators their first root may be.
class RuleSet {
 public:
  explicit RuleSet(std::vector<RulePtr> rules);
  size_t size() const { return rules_.size(); }
  const Rule& rule(size_t i) const { return *rules_[i]; }
  // A cheap necessary condition for rule `r` at `node`: what the root's operands must be computed by. Most rules fail here, before
  // anything is bound.
  bool may_match(uint32_t r, const Graph& g, NodeId node) const;
  // The same for a star rule: two readers of `join` that its members may be.
  bool may_gather(uint32_t r, const Graph& g, ValueId join) const;
  const std::vector<RulePtr>& rules() const { return rules_; }
  // Rules that share a pattern are matched together: the first of them leads, and family(leader) names them all.
  std::span<const uint32_t> family(uint32_t leader) const { return families_[leader]; }
  bool leads(uint32_t r) const { return !families_[r].empty(); }
  // Single- and multi-root leaders whose first root may be `op`.
  const std::vector<uint32_t>& rooted_at(OpId op) const { return by_root_[op]; }
  const std::vector<uint32_t>& star_rules() const { return star_; }
  int depth() const { return depth_; }
  bool uses_fanout() const { return uses_fanout_; }
  const Hash128& digest() const { return digest_; }

 private:
  std::vector<RulePtr> rules_;
  std::vector<std::vector<uint32_t>> by_root_;
  struct OperandTest {
    int child;                                  // operand position, or -1: some operand
    OpClass ops;
  };
  std::vector<std::vector<OperandTest>> tests_; // per rule
  std::vector<uint32_t> star_;
  std::vector<std::vector<uint32_t>> families_;   // by leader; empty for the others
  int depth_ = 1;
  bool uses_fanout_ = false;
  Hash128 digest_;
};
using RuleSetPtr = std::shared_ptr<const RuleSet>;

}  // namespace rlflow
