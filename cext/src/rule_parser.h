// How the text of a rule becomes terms (private to the core): names, terms, then the rule as a whole.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rlflow/rule.h"
#include "text_reader.h"

namespace rlflow {

[[noreturn]] void refuse_rule(const std::string& why);
// "?x" and "?x..." names of a text, in order of first appearance.
std::vector<std::string> names_in(const std::string& text);

// What the names of one rule stand for: its source binds them, conditions, lets and targets look them up.
class RuleNames {
 public:
  explicit RuleNames(const std::string& rule) : rule_(rule) {}
  const Symbol* find(const std::string& name) const;
  Symbol lookup(std::string_view name, bool sequence) const;  // throws Error(kRule) where nothing binds it
  void bind(const std::string& name, Symbol symbol) { symbols_.emplace(name, symbol); }
  OpClass& op_class(const std::string& name) { return classes_[name]; }  // of an operator variable
  ExprPtr expression(const std::string& text) const;

 private:
  const std::string& rule_;
  std::map<std::string, Symbol> symbols_;
  std::map<std::string, OpClass> classes_;
};

// Reads one term, into the rule's source or its target.
class TermParser : private TextReader {
 public:
  TermParser(Rule& rule, RuleNames& names, const std::string& text, bool target)
      : TextReader("term", text), rule_(rule), names_(names), target_(target), terms_(target ? rule.target_ : rule.source_) {}

  int root();  // the index of the root term
  // Attributes of the source that are expressions: read when the whole source is, because they may name variables of other roots.
  struct Pending {
    int term, index;
    std::string text;
  };
  const std::vector<Pending>& pending() const { return pending_; }

 private:
  std::string word();
  std::string expression_text();
  Symbol declare(const std::string& name, Sym kind, std::vector<std::string>& list);
  int push(Term t);

  int child(bool root);
  int variable();
  void projection(int index);
  int output_number();
  int operation();
  void head(Term& t);
  OpClass op_class();
  OpId operator_named(const std::string& name) const;
  void attributes(int index);
  void attribute(int index);
  void literal_attribute(int index, const std::string& name, const std::string& text);
  void check_operation(int index);
  void check_operands(const Term& t) const;
  void check_attributes(Term& t);
  void require_defaults(Term& t, OpId id);

  Rule& rule_;
  RuleNames& names_;
  const bool target_;
  std::vector<Term>& terms_;
  int nesting_ = 0;
  std::vector<Pending> pending_;
};

// Reads all parts of a rule and checks what concerns the rule as a whole.
class RuleParser {
 public:
  explicit RuleParser(Rule& rule) : rule_(rule), names_(rule.name_) {}
  void parse();

 private:
  void check_counts() const;
  void sources();
  void lets();
  void conditions();
  int target_root(const std::string& text) { return TermParser(rule_, names_, text, true).root(); }
  void check_star();
  void check_roots() const;
  bool roots_joined() const;
  bool roots_symmetric() const;
  void reads(int term, std::vector<int>& out) const;
  int depth_of(int index) const;

  Rule& rule_;
  RuleNames names_;
};

}  // namespace rlflow
