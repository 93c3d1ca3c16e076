#include "rlflow/rule.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

namespace rlflow {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::kRule, why); }

bool is_let_term(const std::string& name) { return !name.empty() && name[0] == '?'; }

// "?x" and "?x..." names of a text, in order of first appearance.
std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> out;
  for (size_t k = 0; k < text.size(); ++k) {
    if (text[k] != '?') continue;
    size_t end = k + 1;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
    std::string name = text.substr(k, end - k);
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  return out;
}

std::string rename(const std::string& text, const std::map<std::string, std::string>& to) {
  std::string out;
  for (size_t k = 0; k < text.size();) {
    if (text[k] != '?') {
      if (!std::isspace(static_cast<unsigned char>(text[k]))) out += text[k];
      else if (!out.empty() && out.back() != ' ') out += ' ';
      ++k;
      continue;
    }
    size_t end = k + 1;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
    std::string name = text.substr(k, end - k);
    auto it = to.find(name);
    out += it == to.end() ? name : it->second;
    k = end;
  }
  return out;
}

// Roots that are renamings of each other (conditions included) match in every order; canonical order is enough. It holds for all
// roots when it holds for each neighbouring pair, because neighbouring swaps make every order.
bool roots_symmetric(const std::vector<std::string>& source, const std::vector<std::string>& where,
                     const std::vector<std::pair<std::string, std::string>>& let) {
  if (source.size() < 2 || !let.empty()) return false;
  for (size_t r = 0; r + 1 < source.size(); ++r) {
    auto a = names_in(source[r]), b = names_in(source[r + 1]);
    if (a.size() != b.size()) return false;
    std::map<std::string, std::string> swap;
    for (size_t k = 0; k < a.size(); ++k) {
      swap[a[k]] = b[k];
      swap[b[k]] = a[k];
    }
    if (rename(source[r], swap) != rename(source[r + 1], {}) || rename(source[r + 1], swap) != rename(source[r], {})) return false;
    std::vector<std::string> before, after;
    for (const auto& w : where) {
      before.push_back(rename(w, {}));
      after.push_back(rename(w, swap));
    }
    std::sort(before.begin(), before.end());
    std::sort(after.begin(), after.end());
    if (before != after) return false;
  }
  return true;
}

}  // namespace

void OpClass::add(OpId op) {
  members.push_back(op);
  if (bits.size() <= op / 64u) bits.resize(op / 64u + 1, 0);
  bits[op / 64u] |= uint64_t{1} << (op % 64u);
}

class RuleParser {
 public:
  explicit RuleParser(Rule& rule) : rule_(rule) {}

  void parse() {
    if (rule_.source_text_.empty()) refuse("the rule has no source term");
    for (const auto* texts : {&rule_.source_text_, &rule_.target_text_, &rule_.where_text_})
      if (texts->size() > kMostTexts)
        refuse("the rule has " + std::to_string(texts->size()) + " terms or conditions of one kind; expected " + std::to_string(kMostTexts) +
               " at most");
    if (rule_.let_text_.size() > kMostTexts)
      refuse("the rule has " + std::to_string(rule_.let_text_.size()) + " names of its own; expected " + std::to_string(kMostTexts) + " at most");
    target_ = false;
    for (const auto& text : rule_.source_text_) rule_.source_roots_.push_back(parse_root(text));
    for (auto& [term, index, text] : pending_) rule_.source_[term].attrs[index].expr = expression(text);
    check_star();
    lets();
    target_ = true;
    for (const auto& text : rule_.target_text_) rule_.target_roots_.push_back(parse_root(text));
    for (const auto& text : rule_.where_text_) {
      rule_.where_.push_back(expression(text));
      rule_.uses_global_ |= expr_uses(*rule_.where_.back(), "independent");
      rule_.uses_fanout_ |= expr_uses(*rule_.where_.back(), "users");
    }
    check_roots();
    rule_.uses_global_ |= !roots_joined();
    for (int root : rule_.source_roots_) rule_.depth_ = std::max(rule_.depth_, depth_of(root));
    rule_.ordered_roots_ = roots_symmetric(rule_.source_text_, rule_.where_text_, rule_.let_text_);
  }

 private:
  static constexpr size_t kMostTexts = 256;
  struct Pending {
    int term, index;
    std::string text;
  };

  // Values (and, below zero, sequences) that a source term reads.
  void reads(int term, std::vector<int>& out) const {
    const Term& t = rule_.source_[term];
    if (t.kind == Term::kVar) out.push_back(t.ref);
    if (t.kind == Term::kSeqVar) out.push_back(-1 - t.ref);
    for (int child : t.children) reads(child, out);
  }

  // Whether every root reads something that the first reads: what changes near one of them is then near a value of the first.
  bool roots_joined() const {
    if (rule_.source_roots_.size() == 1) return true;
    std::vector<int> first;
    reads(rule_.source_roots_[0], first);
    return std::all_of(rule_.source_roots_.begin(), rule_.source_roots_.end(), [&](int root) {
      std::vector<int> mine;
      reads(root, mine);
      return std::any_of(mine.begin(), mine.end(), [&](int v) { return std::find(first.begin(), first.end(), v) != first.end(); });
    });
  }

  // ---- characters
  [[noreturn]] void fail(const std::string& why) const {
    refuse("in the term '" + shown(text_) + "' at column " + std::to_string(at_ + 1) + ": " + why);
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool peek(char c) {
    skip();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(char c) {
    if (!peek(c)) return false;
    ++at_;
    return true;
  }
  bool take(const std::string& s) {
    skip();
    if (text_.compare(at_, s.size(), s)) return false;
    at_ += s.size();
    return true;
  }
  std::string word() {
    skip();
    size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    if (at_ == start) fail("expected a name");
    return text_.substr(start, at_ - start);
  }
  // Up to a comma or the closing brace of this nesting level.
  std::string expression_text() {
    size_t start = at_;
    int depth = 0;
    bool quoted = false;
    for (; at_ < text_.size(); ++at_) {
      char c = text_[at_];
      if (c == '"') quoted = !quoted;
      if (quoted) continue;
      if (depth == 0 && (c == ',' || c == '}')) break;
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == ')' || c == ']' || c == '}') --depth;
    }
    std::string s = text_.substr(start, at_ - start);
    while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.pop_back();
    while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.erase(s.begin());
    if (s.empty()) fail("an attribute has no value");
    return s;
  }

  // ---- symbols
  Symbol declare(const std::string& name, Sym kind, std::vector<std::string>& list) {
    auto it = symbols_.find(name);
    if (it != symbols_.end()) {
      if (it->second.kind != kind) fail("'" + name + "' is used as two different kinds of variable");
      return it->second;
    }
    if (target_) fail("the variable '" + name + "' is not bound by the source");
    Symbol s{kind, static_cast<int>(list.size())};
    list.push_back(name);
    symbols_.emplace(name, s);
    return s;
  }
  Symbol lookup(std::string_view name, bool sequence) const {
    auto it = symbols_.find(std::string(name));
    if (it == symbols_.end()) refuse("'" + std::string(name) + "' is not bound by the source (rule " + rule_.name_ + ")");
    if (sequence && it->second.kind != Sym::kSeq) refuse("'" + std::string(name) + "...' is not a sequence variable (rule " + rule_.name_ + ")");
    return it->second;
  }
  ExprPtr expression(const std::string& text) {
    return parse_expr(text, [this](std::string_view name, bool sequence) { return lookup(name, sequence); });
  }

  // ---- terms
  std::vector<Term>& terms() { return target_ ? rule_.target_ : rule_.source_; }
  int push(Term t) {
    terms().push_back(std::move(t));
    return static_cast<int>(terms().size()) - 1;
  }

  int parse_root(const std::string& text) {
    text_ = text;
    at_ = 0;
    if (text_.size() > kLongestText)
      fail("it has " + std::to_string(text_.size()) + " characters; expected " + std::to_string(kLongestText) + " at most");
    int root = child(true);
    skip();
    if (at_ != text_.size()) fail("unexpected '" + shown(text_.substr(at_)) + "'");
    if (!target_ && terms()[root].kind != Term::kOp) fail("a source root must be an operator");
    return root;
  }

  int child(bool root) {
    Level level(nesting_);
    if (level.too_deep()) fail("it is nested too deeply");
    bool star = take('*');
    if (star && !target_ && !root) fail("in a source only a root may be starred");
    int index;
    if (peek('(')) {
      index = operation();
    } else if (take('_')) {
      Term t;
      t.kind = Term::kAbsent;
      index = push(std::move(t));
    } else if (peek('?')) {
      index = variable();
    } else {
      fail("expected a term, a variable or '_'");
    }
    projection(index);
    terms()[index].star = star;
    return index;
  }

  int variable() {
    take('?');
    std::string name = "?" + word();
    bool sequence = take("...");
    Term t;
    auto it = symbols_.find(name);
    if (it != symbols_.end() && it->second.kind == Sym::kLetTerm) {
      t.kind = Term::kLet;
      t.ref = it->second.index;
      return push(std::move(t));
    }
    t.kind = sequence ? Term::kSeqVar : Term::kVar;
    t.ref = declare(name, sequence ? Sym::kSeq : Sym::kValue, sequence ? rule_.sequence_names_ : rule_.value_names_).index;
    return push(std::move(t));
  }

  void projection(int index) {
    if (!(at_ < text_.size() && text_[at_] == ':')) return;
    ++at_;
    Term& t = terms()[index];
    if (t.kind != Term::kOp && t.kind != Term::kLet) fail("only a term has outputs to pick with ':'");
    if (take('*')) {
      if (!target_) fail("':*' stands in targets only");
      t.projection = Term::kAll;
    } else if (peek('?')) {
      take('?');
      std::string name = "?" + word();
      t.projection = Term::kBound;
      int symbol = declare(name, Sym::kAttr, rule_.attr_names_).index;
      terms()[index].output = symbol;
    } else {
      t.projection = Term::kIndexed;
      std::string digits = word();
      if (digits.empty() || digits.size() > 6 ||
          !std::all_of(digits.begin(), digits.end(), [](char c) { return std::isdigit(static_cast<unsigned char>(c)); }))
        fail("expected the number of an output, found '" + shown(digits) + "'");
      t.output = std::stoi(digits);
    }
  }

  void head(Term& t) {
    if (!peek('?')) {
      t.ops.kind = OpClass::kOne;
      std::string name = word();
      if (target_ && (name == "Literal" || name == "Ints")) {
        t.kind = name == "Literal" ? Term::kLiteral : Term::kInts;
        return;
      }
      if (!has_op(name)) fail("the operator '" + name + "' is not in the table");
      t.ops.add(find_op(name));
      return;
    }
    take('?');
    std::string name = "?" + word();
    bool known = symbols_.count(name);
    t.op_var = declare(name, Sym::kOpVar, rule_.op_names_).index;
    if (take(':')) {
      if (known) fail("the class of '" + name + "' is given twice");
      t.ops = op_class();
      classes_[name] = t.ops;
    } else {
      if (!known) fail("the operator variable '" + name + "' has no class (?f:unary, ?f:binary, ?f:reduce, ?f:unary0, ?f:monotone, ?f:{A,B})");
      t.ops = classes_[name];
    }
  }

  OpClass op_class() {
    OpClass c;
    if (take('{')) {
      c.kind = OpClass::kSet;
      while (!take('}')) {
        std::string name = word();
        if (!has_op(name)) fail("the operator '" + name + "' is not in the table");
        c.add(find_op(name));
        take(',');
      }
      return c;
    }
    static const std::map<std::string, std::pair<OpClass::Kind, uint32_t>> kClasses = {{"unary", {OpClass::kUnary, kUnary}},
                                                                                       {"unary0", {OpClass::kUnaryZero, kUnary | kZeroPreserving}},
                                                                                       {"monotone", {OpClass::kMonotone, kUnary | kMonotone}},
                                                                                       {"binary", {OpClass::kBinary, kBinary}},
                                                                                       {"reduce", {OpClass::kReduce, kReduce}}};
    std::string name = word();
    auto it = kClasses.find(name);
    if (it == kClasses.end()) fail("'" + name + "' is not a class of operators (unary, unary0, monotone, binary, reduce, {A,B})");
    c.kind = it->second.first;
    uint32_t want = it->second.second | kPure;
    for (const OpInfo& op : op_table())
      if ((op.flags & want) == want) c.add(op.id);
    return c;
  }

  int operation() {
    take('(');
    Term t;
    head(t);
    int index = push(std::move(t));
    if (at_ < text_.size() && text_[at_] == '{') attributes(index);
    else if (terms()[index].op_var >= 0) terms()[index].op_carries = true;
    while (!take(')')) {
      skip();
      if (at_ >= text_.size()) fail("a parenthesis is not closed");
      int c = child(false);
      Term& parent = terms()[index];
      parent.children.push_back(c);
      const Term& k = terms()[c];
      if (k.kind == Term::kSeqVar || k.star || k.projection == Term::kAll) parent.has_sequence = true;
    }
    check_operation(index);
    return index;
  }

  void attributes(int index) {
    take('{');
    while (!take('}')) {
      skip();
      if (at_ >= text_.size()) fail("a brace is not closed");
      if (take("..")) {
        if (!take('?')) fail("expected '..?name'");
        std::string name = "?" + word();
        int rest = declare(name, Sym::kRest, rule_.rest_names_).index;
        terms()[index].rest = rest;
      } else {
        attribute(index);
      }
      if (!take(',') && !peek('}')) fail("expected ',' or '}'");
    }
  }

  void attribute(int index) {
    std::string name = word();
    if (!take('=')) fail("expected '=' after the attribute '" + name + "'");
    skip();
    std::string text = expression_text();
    Term::Kind kind = terms()[index].kind;
    if (kind == Term::kLiteral || kind == Term::kInts) return literal_attribute(index, name, text);
    AttrPattern p;
    p.name = name;
    if (!target_) {
      auto names = names_in(text);
      if (names.size() == 1 && names[0] == text) p.var = declare(text, Sym::kAttr, rule_.attr_names_).index;
      else pending_.push_back({index, static_cast<int>(terms()[index].attrs.size()), text});
    } else {
      p.expr = expression(text);
    }
    terms()[index].excluded.push_back(name);
    terms()[index].attrs.push_back(std::move(p));
  }

  void literal_attribute(int index, const std::string& name, const std::string& text) {
    if (name == "value") {
      terms()[index].literal = expression(text);
    } else if (name == "like" && terms()[index].kind == Term::kLiteral) {
      bool sequence = text.size() > 3 && text.substr(text.size() - 3) == "...";
      Symbol s = lookup(sequence ? text.substr(0, text.size() - 3) : text, sequence);
      if (s.kind != Sym::kValue && s.kind != Sym::kSeq) fail("'like' names a value variable");
      terms()[index].like = s.index;
      terms()[index].like_sequence = s.kind == Sym::kSeq;
    } else {
      fail("'" + name + "' is not an attribute of a literal (value, like)");
    }
  }

  void check_operation(int index) {
    Term& t = terms()[index];
    if (t.kind == Term::kLiteral || t.kind == Term::kInts) {
      if (!t.literal || !t.children.empty()) fail("a literal is written (Literal{value=..., like=?x}) or (Ints{value=[...]})");
      if (t.kind == Term::kLiteral && t.like < 0) fail("a Literal needs like=?x for its element type");
      return;
    }
    if (t.ops.members.empty()) fail("no operator is in this class");
    const OpInfo& op = op_info(t.ops.members[0]);
    int given = static_cast<int>(t.children.size());
    bool one = t.ops.kind == OpClass::kOne || t.ops.kind == OpClass::kSet;
    if (one && !t.has_sequence && (given < op.min_inputs || (op.max_inputs >= 0 && given > op.max_inputs)))
      fail(op.name + " does not take " + std::to_string(given) + " inputs");
    if (!one) {
      int want = t.ops.kind == OpClass::kBinary ? 2 : 1;
      if (given != want) fail("an operator of this class has " + std::to_string(want) + " operand(s) in a term");
    }
    check_attributes(t);
  }

  void check_attributes(Term& t) {
    for (OpId id : t.ops.members) {
      const OpInfo& op = op_info(id);
      for (const auto& a : t.attrs)
        if (std::find(op.attributes.begin(), op.attributes.end(), a.name) == op.attributes.end())
          fail(op.name + " has no attribute '" + a.name + "'");
    }
    if (target_ || t.rest >= 0 || t.op_carries) return;
    for (OpId id : t.ops.members) {
      const OpInfo& op = op_info(id);
      for (const std::string& name : op.attributes) {
        if (std::find(t.excluded.begin(), t.excluded.end(), name) != t.excluded.end()) continue;
        auto d = std::find_if(op.defaults.begin(), op.defaults.end(), [&](const AttrDefault& x) { return x.name == name; });
        AttrPattern p;
        p.name = name;
        p.expr = std::make_unique<Expr>();
        p.absent = d == op.defaults.end();  // an optional attribute that the rule does not speak of must not be there
        if (!p.absent) p.expr->value = EVal::from_attr(d->value);
        t.excluded.push_back(name);
        t.attrs.push_back(std::move(p));
      }
    }
  }

  // ---- the rule as a whole
  void check_star() {
    for (int root : rule_.source_roots_) rule_.star_ |= rule_.source_[root].star;
    if (!rule_.star_) {
      return;
    }
    if (rule_.source_roots_.size() != 1) refuse("a starred source root must be the only root");
    const Term& root = rule_.source_[rule_.source_roots_[0]];
    for (size_t k = 0; k < root.children.size(); ++k) {
      const Term& c = rule_.source_[root.children[k]];
      if (c.kind == Term::kVar && rule_.join_child_ < 0) rule_.join_child_ = static_cast<int>(k);
    }
    if (rule_.join_child_ < 0) refuse("a starred source root needs a plain variable among its operands, which all members share");
    if (rule_.sequence_names_.empty()) refuse("a starred source root needs a variable written ?x..., which differs from member to member");
  }

  void lets() {
    target_ = true;
    for (const auto& [name, text] : rule_.let_text_) {
      if (symbols_.count(name)) refuse("the let name '" + name + "' is taken");
      if (is_let_term(name)) {
        int index = parse_root(text);
        symbols_.emplace(name, Symbol{Sym::kLetTerm, static_cast<int>(rule_.let_terms_.size())});
        rule_.let_terms_.push_back(index);
      } else {
        LetExpr e{name, expression(text)};
        rule_.uses_fanout_ |= expr_uses(*e.expr, "users");
        symbols_.emplace(name, Symbol{Sym::kLetExpr, static_cast<int>(rule_.let_exprs_.size())});
        rule_.let_exprs_.push_back(std::move(e));
      }
    }
  }

  void check_roots() {
    size_t s = rule_.source_roots_.size(), t = rule_.target_roots_.size();
    if (t == 0) refuse("the rule has no target term");
    bool spread = t == 1 && (rule_.target_[rule_.target_roots_[0]].star || rule_.target_[rule_.target_roots_[0]].projection == Term::kAll);
    if (rule_.star_ && !spread) refuse("a starred source needs a target that gives one value per member (term:* or *term)");
    if (!rule_.star_ && s != t && !spread) refuse("the rule has " + std::to_string(s) + " source roots and " + std::to_string(t) + " target terms");
  }

  int depth_of(int index) const {
    const Term& t = rule_.source_[index];
    if (t.kind != Term::kOp) return 0;
    int deepest = 0;
    for (int c : t.children) deepest = std::max(deepest, depth_of(c));
    return deepest + 1;
  }

  Rule& rule_;
  bool target_ = false;
  int nesting_ = 0;
  std::string text_;
  size_t at_ = 0;
  std::map<std::string, Symbol> symbols_;
  std::map<std::string, OpClass> classes_;
  std::vector<Pending> pending_;
};

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
