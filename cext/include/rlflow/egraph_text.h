// Languages whose terms are S-expressions: numbers and names are leaves, everything else is an operator on children.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rlflow/egraph_run.h"

namespace rlflow::egraph {

class TextLanguage : public Language {
 public:
  static constexpr uint32_t kNumber = 0, kName = 1;              // operators of the leaves; the attribute is the number, or the name's symbol

  std::string attr_text(uint32_t op, uint32_t attr) const override;
  // Shared subterms become one class. Throws Error(kUsage) for text that cannot be read, Error(kType) for terms that cannot be.
  ClassId parse_term(EGraph& g, std::string_view text);
  // A rule from `lhs=>rhs` lines, one a root; names that begin with ? are variables. `unordered`: see RewriteRule; it has an effect only
  // where all left-hand sides are one pattern, as in Tensat. Throws Error(kRule), Error(kUsage).
  RewriteRule parse_rule(const std::string& name, const std::vector<std::string>& lines, bool unordered);
  virtual int op_of(std::string_view name) = 0;                  // -1 where there is no such operator
  virtual uint32_t op_count() const = 0;
  uint32_t symbol(std::string_view name);

 protected:
  std::vector<std::string> symbols_;

 private:
  std::map<std::string, uint32_t, std::less<>> symbol_ids_;
};

// Terms without meaning: every name is an operator, and no class has facts. For tests, and for rules that need none.
class TermLanguage : public TextLanguage {
 public:
  std::string op_name(uint32_t op) const override {
    if (op < 2) return op == kNumber ? "num" : "name";
    return op - 2 < names_.size() ? names_[op - 2] : "?";
  }
  std::string data_text(DataId) const override { return ""; }
  DataId merge(DataId kept, DataId) override { return kept; }
  int op_of(std::string_view name) override;
  uint32_t op_count() const override { return static_cast<uint32_t>(names_.size()) + 2; }

 protected:
  std::optional<DataId> infer(uint32_t, uint32_t, std::span<const DataId>) override { return 0; }

 private:
  std::vector<std::string> names_;
};

}  // namespace rlflow::egraph
