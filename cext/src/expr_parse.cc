// Expressions of rules: reading them.
#include <algorithm>
#include <cstdlib>

#include "expr_functions.h"
#include "rlflow/expr.h"
#include "rlflow/rule.h"
#include "text_reader.h"

namespace rlflow {
namespace {

class ExprParser : private TextReader {
 public:
  ExprParser(std::string_view text, const Resolver& resolve) : TextReader("expression", text), resolve_(resolve) {}

  ExprPtr parse() {
    check_length();
    ExprPtr e = disjunction();
    check_end();
    e->source = std::string(text_);
    return e;
  }

 private:
  bool take_word(std::string_view s) {
    if (!peek(s) || (at_ + s.size() < text_.size() && word_char(text_[at_ + s.size()]))) return false;
    at_ += s.size();
    return true;
  }
  static ExprPtr node(Expr::Kind kind, int ref) {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->ref = ref;
    return e;
  }
  static ExprPtr binary(int op, ExprPtr a, ExprPtr b) {
    ExprPtr e = node(Expr::kBinary, op);
    e->args.push_back(std::move(a));
    e->args.push_back(std::move(b));
    return e;
  }

  ExprPtr disjunction() {
    Level level(depth_);
    if (level.too_deep()) fail("it is nested too deeply");
    ExprPtr e = conjunction();
    while (take_word("or")) e = binary(kOr, std::move(e), conjunction());
    return e;
  }
  ExprPtr conjunction() {
    ExprPtr e = negation();
    while (take_word("and")) e = binary(kAnd, std::move(e), negation());
    return e;
  }
  ExprPtr negation() {
    Level level(depth_);
    if (level.too_deep()) fail("it is nested too deeply");
    if (take_word("not")) {
      ExprPtr e = node(Expr::kUnary, kNot);
      e->args.push_back(negation());
      return e;
    }
    return comparison();
  }
  ExprPtr comparison() {
    ExprPtr e = additive();
    static constexpr std::pair<const char*, int> kOps[] = {{"==", kEq}, {"!=", kNe}, {"<=", kLe}, {">=", kGe}, {"<", kLt}, {">", kGt}};
    for (auto [s, op] : kOps)
      if (take(s)) return binary(op, std::move(e), additive());
    if (take_word("in")) return binary(kIn, std::move(e), additive());
    return e;
  }
  ExprPtr additive() {
    ExprPtr e = multiplicative();
    for (;;) {
      if (take("+")) e = binary(kAddOp, std::move(e), multiplicative());
      else if (take("-")) e = binary(kSubOp, std::move(e), multiplicative());
      else return e;
    }
  }
  ExprPtr multiplicative() {
    ExprPtr e = unary();
    for (;;) {
      if (take("*")) e = binary(kMulOp, std::move(e), unary());
      else if (take("/")) e = binary(kDivOp, std::move(e), unary());
      else if (take("%")) e = binary(kModOp, std::move(e), unary());
      else return e;
    }
  }
  ExprPtr unary() {
    Level level(depth_);
    if (level.too_deep()) fail("it is nested too deeply");
    if (take("-")) {
      ExprPtr e = node(Expr::kUnary, kNeg);
      e->args.push_back(unary());
      return e;
    }
    return postfix();
  }
  ExprPtr postfix() {
    ExprPtr e = primary();
    while (next_is('[')) {
      ++at_;
      ExprPtr lo;
      if (!peek(":")) lo = disjunction();
      if (take(":")) {
        ExprPtr s = node(Expr::kSlice, 0);
        s->args.push_back(std::move(e));
        if (!lo) {
          lo = node(Expr::kConst, 0);
          lo->value = EVal::integer(0);
        }
        s->args.push_back(std::move(lo));
        if (!peek("]")) s->args.push_back(disjunction());
        e = std::move(s);
      } else {
        ExprPtr s = node(Expr::kIndex, 0);
        s->args.push_back(std::move(e));
        s->args.push_back(std::move(lo));
        e = std::move(s);
      }
      if (!take("]")) fail("expected ']'");
    }
    return e;
  }
  ExprPtr primary() {
    skip();
    if (at_end()) fail("the expression ends too early");
    char c = text_[at_];
    if (c == '(') {
      ++at_;
      ExprPtr e = disjunction();
      if (!take(")")) fail("expected ')'");
      return e;
    }
    if (c == '[') return list();
    if (c == '"') return string();
    if (c == '?') return variable();
    if (c == '$') return builtin();
    if (is_digit(c) || c == '.') return number();
    if (!word_char(c)) fail(std::string("unexpected '") + c + "'");
    return named();
  }
  ExprPtr list() {
    ++at_;
    ExprPtr e = node(Expr::kList, 0);
    while (!take("]")) {
      e->args.push_back(disjunction());
      if (!take(",") && !peek("]")) fail("expected ',' or ']'");
    }
    return e;
  }
  ExprPtr string() {
    size_t end = text_.find('"', at_ + 1);
    if (end == std::string_view::npos) fail("a string is not closed");
    ExprPtr e = node(Expr::kConst, 0);
    e->value = EVal::text(std::string(text_.substr(at_ + 1, end - at_ - 1)));
    at_ = end + 1;
    return e;
  }
  ExprPtr number() {
    const char* begin = text_.data() + at_;
    size_t end = at_;
    bool real = false;
    while (end < text_.size() && (is_digit(text_[end]) || text_[end] == '.' || text_[end] == 'e' || text_[end] == 'E' ||
                                  ((text_[end] == '-' || text_[end] == '+') && (text_[end - 1] == 'e' || text_[end - 1] == 'E')))) {
      real = real || text_[end] == '.' || text_[end] == 'e' || text_[end] == 'E';
      ++end;
    }
    std::string digits(begin, text_.data() + end);
    at_ = end;
    ExprPtr e = node(Expr::kConst, 0);
    if (!real && digits.size() > 18) fail("a whole number of " + std::to_string(digits.size()) + " digits; expected 18 at most");
    e->value = real ? EVal::real(std::strtod(digits.c_str(), nullptr)) : EVal::integer(std::strtoll(digits.c_str(), nullptr, 10));
    return e;
  }
  ExprPtr variable() {
    ++at_;
    std::string name = "?" + letters();
    bool sequence = take("...");
    Symbol s = resolve_(name, sequence);
    switch (s.kind) {
      case Sym::kValue: return node(Expr::kValue, s.index);
      case Sym::kSeq: return node(Expr::kSeq, s.index);
      case Sym::kAttr: return node(Expr::kAttr, s.index);
      case Sym::kRest: return node(Expr::kRest, s.index);
      case Sym::kOpVar: return node(Expr::kOpVar, s.index);
      default: fail("'" + name + "' is a term and cannot stand in an expression");
    }
  }
  ExprPtr builtin() {
    ++at_;
    std::string name = letters();
    if (name == "i") return node(Expr::kI, 0);
    if (name == "n") return node(Expr::kN, 0);
    if (!name.empty() && std::all_of(name.begin(), name.end(), is_digit) && name.size() < 7) return node(Expr::kRoot, std::stoi(name));
    fail("'$" + name + "' is not known ($i, $n, $0, $1, ...)");
  }
  ExprPtr named() {
    std::string name = letters();
    if (name == "true" || name == "false") {
      ExprPtr e = node(Expr::kConst, 0);
      e->value = EVal::boolean(name == "true");
      return e;
    }
    if (!peek("(")) {
      Symbol s = resolve_(name, false);
      return node(Expr::kLet, s.index);
    }
    take("(");
    ExprPtr e;
    if (name == "if") {
      e = node(Expr::kIf, 0);
    } else {
      const FunctionRow* row = find_function(name);
      if (!row) fail("the function '" + name + "' is not known");
      e = node(Expr::kCall, row->id);
    }
    while (!take(")")) {
      e->args.push_back(disjunction());
      if (!take(",") && !peek(")")) fail("expected ',' or ')'");
    }
    check_arity(*e, name);
    return e;
  }
  void check_arity(const Expr& e, const std::string& name) {
    int given = static_cast<int>(e.args.size());
    if (e.kind == Expr::kIf) {
      if (given != 3) fail("if(condition, then, else) takes three arguments");
      return;
    }
    const FunctionRow* row = find_function(name);
    if (given < row->min_args || (row->max_args >= 0 && given > row->max_args))
      fail("'" + name + "' was given " + std::to_string(given) + " arguments");
    bool of_value = row->id < 100 || (row->id >= kSameShape && row->id <= kDims);
    auto is_value = [](const Expr& a) { return a.kind == Expr::kValue || a.kind == Expr::kSeq || a.kind == Expr::kRoot; };
    if (of_value && !is_value(*e.args[0])) fail("'" + name + "' is a function of a value (?x, ?xs..., $0)");
  }

  const Resolver& resolve_;
  int depth_ = 0;
};

}  // namespace

ExprPtr parse_expr(std::string_view text, const Resolver& resolve) { return ExprParser(text, resolve).parse(); }

bool expr_uses(const Expr& e, std::string_view function) {
  const FunctionRow* row = find_function(function);
  if (e.kind == Expr::kCall && row && e.ref == row->id) return true;
  return std::any_of(e.args.begin(), e.args.end(), [&](const ExprPtr& a) { return expr_uses(*a, function); });
}

void expr_symbols(const Expr& e, Expr::Kind kind, std::vector<int>& refs) {
  if (e.kind == kind) refs.push_back(e.ref);
  for (const auto& a : e.args) expr_symbols(*a, kind, refs);
}

}  // namespace rlflow
