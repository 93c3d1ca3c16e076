// A rule as a whole: its names, its parts in their order, and what must hold between them.
#include "rule_parser.h"

#include <algorithm>
#include <cctype>

namespace rlflow {

void refuse_rule(const std::string& why) { throw Error(ErrorKind::kRule, why); }

namespace {

constexpr size_t kMostTexts = 256;

bool is_let_term(const std::string& name) { return !name.empty() && name[0] == '?'; }

// The end of the name that starts with the '?' at `at`.
size_t name_end(const std::string& text, size_t at) {
  size_t end = at + 1;
  while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
  return end;
}

using Renaming = std::map<std::string, std::string>;

// The text with its names renamed and runs of blanks as one.
std::string renamed(const std::string& text, const Renaming& to) {
  std::string out;
  for (size_t k = 0; k < text.size();) {
    if (text[k] != '?') {
      if (!std::isspace(static_cast<unsigned char>(text[k]))) out += text[k];
      else if (!out.empty() && out.back() != ' ') out += ' ';
      ++k;
      continue;
    }
    size_t end = name_end(text, k);
    std::string name = text.substr(k, end - k);
    auto it = to.find(name);
    out += it == to.end() ? name : it->second;
    k = end;
  }
  return out;
}

std::vector<std::string> renamed_and_sorted(const std::vector<std::string>& texts, const Renaming& to) {
  std::vector<std::string> out;
  out.reserve(texts.size());
  for (const auto& text : texts) out.push_back(renamed(text, to));
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> out;
  for (size_t k = 0; k < text.size(); ++k) {
    if (text[k] != '?') continue;
    std::string name = text.substr(k, name_end(text, k) - k);
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  return out;
}

// ---- names

const Symbol* RuleNames::find(const std::string& name) const {
  auto it = symbols_.find(name);
  return it == symbols_.end() ? nullptr : &it->second;
}

Symbol RuleNames::lookup(std::string_view name, bool sequence) const {
  const Symbol* known = find(std::string(name));
  if (!known) refuse_rule("'" + std::string(name) + "' is not bound by the source (rule " + rule_ + ")");
  if (sequence && known->kind != Sym::kSeq) refuse_rule("'" + std::string(name) + "...' is not a sequence variable (rule " + rule_ + ")");
  return *known;
}

ExprPtr RuleNames::expression(const std::string& text) const {
  return parse_expr(text, [this](std::string_view name, bool sequence) { return lookup(name, sequence); });
}

// ---- the rule as a whole

void RuleParser::parse() {
  check_counts();
  sources();
  check_star();
  lets();
  for (const auto& text : rule_.target_text_) rule_.target_roots_.push_back(target_root(text));
  conditions();
  check_roots();
  rule_.uses_global_ |= !roots_joined();
  for (int root : rule_.source_roots_) rule_.depth_ = std::max(rule_.depth_, depth_of(root));
  rule_.ordered_roots_ = roots_symmetric();
}

void RuleParser::check_counts() const {
  if (rule_.source_text_.empty()) refuse_rule("the rule has no source term");
  const std::string most = "; expected " + std::to_string(kMostTexts) + " at most";
  for (const auto* texts : {&rule_.source_text_, &rule_.target_text_, &rule_.where_text_})
    if (texts->size() > kMostTexts) refuse_rule("the rule has " + std::to_string(texts->size()) + " terms or conditions of one kind" + most);
  if (rule_.let_text_.size() > kMostTexts) refuse_rule("the rule has " + std::to_string(rule_.let_text_.size()) + " names of its own" + most);
}

void RuleParser::sources() {
  std::vector<TermParser::Pending> pending;
  for (const auto& text : rule_.source_text_) {
    TermParser term(rule_, names_, text, false);
    rule_.source_roots_.push_back(term.root());
    pending.insert(pending.end(), term.pending().begin(), term.pending().end());
  }
  for (const auto& [term, index, text] : pending) rule_.source_[term].attrs[index].expr = names_.expression(text);
}

void RuleParser::conditions() {
  for (const auto& text : rule_.where_text_) {
    rule_.where_.push_back(names_.expression(text));
    rule_.uses_global_ |= expr_uses(*rule_.where_.back(), "independent");
    rule_.uses_fanout_ |= expr_uses(*rule_.where_.back(), "users");
  }
}

// Values (and, below zero, sequences) that a source term reads.
void RuleParser::reads(int term, std::vector<int>& out) const {
  const Term& t = rule_.source_[term];
  if (t.kind == Term::kVar) out.push_back(t.ref);
  if (t.kind == Term::kSeqVar) out.push_back(-1 - t.ref);
  for (int child : t.children) reads(child, out);
}

// Whether every root reads something that the first reads: what changes near one of them is then near a value of the first.
bool RuleParser::roots_joined() const {
  if (rule_.source_roots_.size() == 1) return true;
  std::vector<int> first;
  reads(rule_.source_roots_[0], first);
  return std::all_of(rule_.source_roots_.begin(), rule_.source_roots_.end(), [&](int root) {
    std::vector<int> mine;
    reads(root, mine);
    return std::any_of(mine.begin(), mine.end(), [&](int v) { return std::find(first.begin(), first.end(), v) != first.end(); });
  });
}

void RuleParser::check_star() {
  for (int root : rule_.source_roots_) rule_.star_ |= rule_.source_[root].star;
  if (!rule_.star_) return;
  if (rule_.source_roots_.size() != 1) refuse_rule("a starred source root must be the only root");
  const Term& root = rule_.source_[rule_.source_roots_[0]];
  for (size_t k = 0; k < root.children.size(); ++k) {
    const Term& c = rule_.source_[root.children[k]];
    if (c.kind == Term::kVar && rule_.join_child_ < 0) rule_.join_child_ = static_cast<int>(k);
  }
  if (rule_.join_child_ < 0) refuse_rule("a starred source root needs a plain variable among its operands, which all members share");
  if (rule_.sequence_names_.empty()) refuse_rule("a starred source root needs a variable written ?x..., which differs from member to member");
}

void RuleParser::lets() {
  for (const auto& [name, text] : rule_.let_text_) {
    if (names_.find(name)) refuse_rule("the let name '" + name + "' is taken");
    if (is_let_term(name)) {
      int index = target_root(text);
      names_.bind(name, Symbol{Sym::kLetTerm, static_cast<int>(rule_.let_terms_.size())});
      rule_.let_terms_.push_back(index);
    } else {
      LetExpr e{name, names_.expression(text)};
      rule_.uses_fanout_ |= expr_uses(*e.expr, "users");
      names_.bind(name, Symbol{Sym::kLetExpr, static_cast<int>(rule_.let_exprs_.size())});
      rule_.let_exprs_.push_back(std::move(e));
    }
  }
}

// Roots that are renamings of each other (conditions included) match in every order; canonical order is enough. It holds for all
// roots when it holds for each neighbouring pair, because neighbouring swaps make every order.
bool RuleParser::roots_symmetric() const {
  const auto& source = rule_.source_text_;
  if (source.size() < 2 || !rule_.let_text_.empty()) return false;
  for (size_t r = 0; r + 1 < source.size(); ++r) {
    auto a = names_in(source[r]), b = names_in(source[r + 1]);
    if (a.size() != b.size()) return false;
    Renaming swap;
    for (size_t k = 0; k < a.size(); ++k) {
      swap[a[k]] = b[k];
      swap[b[k]] = a[k];
    }
    if (renamed(source[r], swap) != renamed(source[r + 1], {}) || renamed(source[r + 1], swap) != renamed(source[r], {})) return false;
    if (renamed_and_sorted(rule_.where_text_, {}) != renamed_and_sorted(rule_.where_text_, swap)) return false;
  }
  return true;
}

void RuleParser::check_roots() const {
  size_t s = rule_.source_roots_.size(), t = rule_.target_roots_.size();
  if (t == 0) refuse_rule("the rule has no target term");
  bool spread = t == 1 && (rule_.target_[rule_.target_roots_[0]].star || rule_.target_[rule_.target_roots_[0]].projection == Term::kAll);
  if (rule_.star_ && !spread) refuse_rule("a starred source needs a target that gives one value per member (term:* or *term)");
  if (!rule_.star_ && s != t && !spread)
    refuse_rule("the rule has " + std::to_string(s) + " source roots and " + std::to_string(t) + " target terms");
}

int RuleParser::depth_of(int index) const {
  const Term& t = rule_.source_[index];
  if (t.kind != Term::kOp) return 0;
  int deepest = 0;
  for (int c : t.children) deepest = std::max(deepest, depth_of(c));
  return deepest + 1;
}

}  // namespace rlflow
