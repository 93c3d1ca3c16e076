// Terms of rules: reading them, checking operators, operands and attributes against the operator table.
#include <algorithm>

#include "rule_parser.h"

namespace rlflow {

std::string TermParser::word() {
  skip();
  std::string name = letters();
  if (name.empty()) fail("expected a name");
  return name;
}

// Up to a comma or the closing brace of this nesting level.
std::string TermParser::expression_text() {
  size_t start = at_;
  int depth = 0;
  bool quoted = false;
  for (; !at_end(); ++at_) {
    char c = text_[at_];
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (depth == 0 && (c == ',' || c == '}')) break;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
  }
  std::string s(text_.substr(start, at_ - start));
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.pop_back();
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.erase(s.begin());
  if (s.empty()) fail("an attribute has no value");
  return s;
}

Symbol TermParser::declare(const std::string& name, Sym kind, std::vector<std::string>& list) {
  if (const Symbol* known = names_.find(name)) {
    if (known->kind != kind) fail("'" + name + "' is used as two different kinds of variable");
    return *known;
  }
  if (target_) fail("the variable '" + name + "' is not bound by the source");
  Symbol s{kind, static_cast<int>(list.size())};
  list.push_back(name);
  names_.bind(name, s);
  return s;
}

int TermParser::push(Term t) {
  terms_.push_back(std::move(t));
  return static_cast<int>(terms_.size()) - 1;
}

int TermParser::root() {
  check_length();
  int index = child(true);
  check_end();
  if (!target_ && terms_[index].kind != Term::kOp) fail("a source root must be an operator");
  return index;
}

int TermParser::child(bool root) {
  Level level(nesting_);
  if (level.too_deep()) fail("it is nested too deeply");
  bool star = take("*");
  if (star && !target_ && !root) fail("in a source only a root may be starred");
  int index;
  if (peek("(")) {
    index = operation();
  } else if (take("_")) {
    Term t;
    t.kind = Term::kAbsent;
    index = push(std::move(t));
  } else if (peek("?")) {
    index = variable();
  } else {
    fail("expected a term, a variable or '_'");
  }
  projection(index);
  terms_[index].star = star;
  return index;
}

int TermParser::variable() {
  take("?");
  std::string name = "?" + word();
  bool sequence = take("...");
  Term t;
  if (const Symbol* known = names_.find(name); known && known->kind == Sym::kLetTerm) {
    t.kind = Term::kLet;
    t.ref = known->index;
    return push(std::move(t));
  }
  t.kind = sequence ? Term::kSeqVar : Term::kVar;
  t.ref = declare(name, sequence ? Sym::kSeq : Sym::kValue, sequence ? rule_.sequence_names_ : rule_.value_names_).index;
  return push(std::move(t));
}

void TermParser::projection(int index) {
  if (!next_is(':')) return;
  ++at_;
  Term& t = terms_[index];
  if (t.kind != Term::kOp && t.kind != Term::kLet) fail("only a term has outputs to pick with ':'");
  if (take("*")) {
    if (!target_) fail("':*' stands in targets only");
    t.projection = Term::kAll;
  } else if (take("?")) {
    t.projection = Term::kBound;
    t.output = declare("?" + word(), Sym::kAttr, rule_.attr_names_).index;
  } else {
    t.projection = Term::kIndexed;
    t.output = output_number();
  }
}

int TermParser::output_number() {
  std::string digits = word();
  if (digits.size() > 6 || !std::all_of(digits.begin(), digits.end(), is_digit))
    fail("expected the number of an output, found '" + shown(digits) + "'");
  return std::stoi(digits);
}

void TermParser::head(Term& t) {
  if (!peek("?")) {
    t.ops.kind = OpClass::kOne;
    std::string name = word();
    if (target_ && (name == "Literal" || name == "Ints")) {
      t.kind = name == "Literal" ? Term::kLiteral : Term::kInts;
      return;
    }
    t.ops.add(operator_named(name));
    return;
  }
  take("?");
  std::string name = "?" + word();
  bool known = names_.find(name) != nullptr;
  t.op_var = declare(name, Sym::kOpVar, rule_.op_names_).index;
  if (take(":")) {
    if (known) fail("the class of '" + name + "' is given twice");
    t.ops = op_class();
    names_.op_class(name) = t.ops;
  } else {
    if (!known) fail("the operator variable '" + name + "' has no class (?f:unary, ?f:binary, ?f:reduce, ?f:unary0, ?f:monotone, ?f:{A,B})");
    t.ops = names_.op_class(name);
  }
}

OpId TermParser::operator_named(const std::string& name) const {
  if (!has_op(name)) fail("the operator '" + name + "' is not in the table");
  return find_op(name);
}

namespace {
const std::map<std::string, std::pair<OpClass::Kind, uint32_t>> kClasses = {
    {"unary", {OpClass::kUnary, kUnary}},    {"unary0", {OpClass::kUnaryZero, kUnary | kZeroPreserving}},
    {"binary", {OpClass::kBinary, kBinary}}, {"monotone", {OpClass::kMonotone, kUnary | kMonotone}},
    {"reduce", {OpClass::kReduce, kReduce}},
};
}  // namespace

OpClass TermParser::op_class() {
  OpClass c;
  if (take("{")) {
    c.kind = OpClass::kSet;
    while (!take("}")) {
      c.add(operator_named(word()));
      take(",");
    }
    return c;
  }
  std::string name = word();
  auto it = kClasses.find(name);
  if (it == kClasses.end()) fail("'" + name + "' is not a class of operators (unary, unary0, monotone, binary, reduce, {A,B})");
  c.kind = it->second.first;
  uint32_t want = it->second.second | kPure;
  for (const OpInfo& op : op_table())
    if ((op.flags & want) == want) c.add(op.id);
  return c;
}

int TermParser::operation() {
  take("(");
  Term t;
  head(t);
  int index = push(std::move(t));
  if (next_is('{')) attributes(index);
  else if (terms_[index].op_var >= 0) terms_[index].op_carries = true;
  while (!take(")")) {
    skip();
    if (at_end()) fail("a parenthesis is not closed");
    int c = child(false);
    Term& parent = terms_[index];
    parent.children.push_back(c);
    const Term& k = terms_[c];
    if (k.kind == Term::kSeqVar || k.star || k.projection == Term::kAll) parent.has_sequence = true;
  }
  check_operation(index);
  return index;
}

void TermParser::attributes(int index) {
  take("{");
  while (!take("}")) {
    skip();
    if (at_end()) fail("a brace is not closed");
    if (take("..")) {
      if (!take("?")) fail("expected '..?name'");
      terms_[index].rest = declare("?" + word(), Sym::kRest, rule_.rest_names_).index;
    } else {
      attribute(index);
    }
    if (!take(",") && !peek("}")) fail("expected ',' or '}'");
  }
}

void TermParser::attribute(int index) {
  std::string name = word();
  if (!take("=")) fail("expected '=' after the attribute '" + name + "'");
  skip();
  std::string text = expression_text();
  Term::Kind kind = terms_[index].kind;
  if (kind == Term::kLiteral || kind == Term::kInts) return literal_attribute(index, name, text);
  AttrPattern p;
  p.name = name;
  if (!target_) {
    auto names = names_in(text);
    if (names.size() == 1 && names[0] == text) p.var = declare(text, Sym::kAttr, rule_.attr_names_).index;
    else pending_.push_back({index, static_cast<int>(terms_[index].attrs.size()), text});
  } else {
    p.expr = names_.expression(text);
  }
  terms_[index].excluded.push_back(name);
  terms_[index].attrs.push_back(std::move(p));
}

void TermParser::literal_attribute(int index, const std::string& name, const std::string& text) {
  if (name == "value") {
    terms_[index].literal = names_.expression(text);
  } else if (name == "like" && terms_[index].kind == Term::kLiteral) {
    bool sequence = text.size() > 3 && text.substr(text.size() - 3) == "...";
    Symbol s = names_.lookup(sequence ? text.substr(0, text.size() - 3) : text, sequence);
    if (s.kind != Sym::kValue && s.kind != Sym::kSeq) fail("'like' names a value variable");
    terms_[index].like = s.index;
    terms_[index].like_sequence = s.kind == Sym::kSeq;
  } else {
    fail("'" + name + "' is not an attribute of a literal (value, like)");
  }
}

void TermParser::check_operation(int index) {
  Term& t = terms_[index];
  if (t.kind == Term::kLiteral || t.kind == Term::kInts) {
    if (!t.literal || !t.children.empty()) fail("a literal is written (Literal{value=..., like=?x}) or (Ints{value=[...]})");
    if (t.kind == Term::kLiteral && t.like < 0) fail("a Literal needs like=?x for its element type");
    return;
  }
  if (t.ops.members.empty()) fail("no operator is in this class");
  check_operands(t);
  check_attributes(t);
}

void TermParser::check_operands(const Term& t) const {
  const OpInfo& op = op_info(t.ops.members[0]);
  int given = static_cast<int>(t.children.size());
  bool one = t.ops.kind == OpClass::kOne || t.ops.kind == OpClass::kSet;
  if (one && !t.has_sequence && (given < op.min_inputs || (op.max_inputs >= 0 && given > op.max_inputs)))
    fail(op.name + " does not take " + std::to_string(given) + " inputs");
  if (one) return;
  int want = t.ops.kind == OpClass::kBinary ? 2 : 1;
  if (given != want) fail("an operator of this class has " + std::to_string(want) + " operand(s) in a term");
}

void TermParser::check_attributes(Term& t) {
  for (OpId id : t.ops.members) {
    const OpInfo& op = op_info(id);
    for (const auto& a : t.attrs)
      if (std::find(op.attributes.begin(), op.attributes.end(), a.name) == op.attributes.end()) fail(op.name + " has no attribute '" + a.name + "'");
  }
  if (target_ || t.rest >= 0 || t.op_carries) return;
  for (OpId id : t.ops.members) require_defaults(t, id);
}

// Attributes that the source does not speak of have their defaults; one without a default must not be there.
void TermParser::require_defaults(Term& t, OpId id) {
  const OpInfo& op = op_info(id);
  for (const std::string& name : op.attributes) {
    if (std::find(t.excluded.begin(), t.excluded.end(), name) != t.excluded.end()) continue;
    auto d = std::find_if(op.defaults.begin(), op.defaults.end(), [&](const AttrDefault& x) { return x.name == name; });
    AttrPattern p;
    p.name = name;
    p.expr = std::make_unique<Expr>();
    p.absent = d == op.defaults.end();
    if (!p.absent) p.expr->value = EVal::from_attr(d->value);
    t.excluded.push_back(name);
    t.attrs.push_back(std::move(p));
  }
}

}  // namespace rlflow
