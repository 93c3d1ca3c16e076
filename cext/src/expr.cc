#include "rlflow/expr.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>

#include "rlflow/rule.h"

namespace rlflow {

// ------------------------------------------------------------------------------------------------------------------ values

EVal EVal::boolean(bool v) {
  EVal e;
  e.kind = kBool;
  e.b = v;
  return e;
}
EVal EVal::tri(Tri v) { return v == Tri::kMaybe ? EVal{} : boolean(v == Tri::kTrue); }
EVal EVal::integer(Int v) {
  EVal e;
  if (v == kUnknown) return e;
  e.kind = kInt;
  e.i = v;
  return e;
}
EVal EVal::real(double v) {
  EVal e;
  e.kind = kFloat;
  e.f = v;
  return e;
}
EVal EVal::text(std::string v) {
  EVal e;
  e.kind = kString;
  e.s = std::move(v);
  return e;
}
EVal EVal::list(std::vector<EVal> v) {
  EVal e;
  e.kind = kList;
  e.l = std::move(v);
  return e;
}
EVal EVal::ints(const IntVec& v) {
  std::vector<EVal> l;
  l.reserve(v.size());
  for (Int x : v) l.push_back(integer(x));
  return list(std::move(l));
}
EVal EVal::from_attr(const AttrValue& v) {
  if (auto* i = std::get_if<Int>(&v)) return integer(*i);
  if (auto* d = std::get_if<double>(&v)) return real(*d);
  if (auto* s = std::get_if<std::string>(&v)) return text(*s);
  if (auto* l = std::get_if<IntVec>(&v)) return ints(*l);
  std::vector<EVal> out;
  if (auto* l = std::get_if<std::vector<double>>(&v))
    for (double x : *l) out.push_back(real(x));
  else if (auto* t = std::get_if<std::vector<std::string>>(&v))
    for (const auto& x : *t) out.push_back(text(x));
  else
    return unknown();
  return list(std::move(out));
}

Tri EVal::truth() const {
  switch (kind) {
    case kBool: return b ? Tri::kTrue : Tri::kFalse;
    case kInt: return tri_not(int_eq(i, 0));
    case kFloat: return f != 0 ? Tri::kTrue : Tri::kFalse;
    default: return Tri::kMaybe;
  }
}

AttrValue EVal::to_attr() const {
  switch (kind) {
    case kBool: return static_cast<Int>(b);
    case kInt: return i;
    case kFloat: return f;
    case kString: return s;
    case kNone: throw Error(ErrorKind::kType, "an attribute of the target is not known here");
    case kList: break;
  }
  IntVec ints;
  std::vector<double> floats;
  std::vector<std::string> strings;
  bool any_float = std::any_of(l.begin(), l.end(), [](const EVal& e) { return e.kind == kFloat; });
  for (const EVal& e : l) {
    if (e.kind == kString) strings.push_back(e.s);
    else if (any_float && e.is_number()) floats.push_back(e.number());
    else if (e.kind == kInt) ints.push_back(e.i);
    else if (e.kind == kBool) ints.push_back(e.b);
    else throw Error(ErrorKind::kType, "an element of a list attribute is not known here");
  }
  if (!strings.empty()) {
    if (strings.size() != l.size()) throw Error(ErrorKind::kType, "a list attribute mixes strings and numbers");
    return strings;
  }
  if (any_float) return floats;
  return ints;
}

std::string EVal::str() const {
  switch (kind) {
    case kNone: return "?";
    case kBool: return b ? "true" : "false";
    case kInt: return int_text(i);
    case kFloat: return attr_text(AttrValue(f));
    case kString: return "\"" + s + "\"";
    case kList: break;
  }
  std::string out = "[";
  for (size_t k = 0; k < l.size(); ++k) out += (k ? "," : "") + l[k].str();
  return out + "]";
}

Tri eval_equal(const EVal& a, const EVal& b) {
  if (!a.known() || !b.known()) return Tri::kMaybe;
  if (a.kind == EVal::kList && b.kind == EVal::kList) {
    if (a.l.size() != b.l.size()) return Tri::kFalse;
    Tri t = Tri::kTrue;
    for (size_t k = 0; k < a.l.size(); ++k) t = tri_and(t, eval_equal(a.l[k], b.l[k]));
    return t;
  }
  if (a.kind == EVal::kList || b.kind == EVal::kList) {
    const EVal& list = a.kind == EVal::kList ? a : b;
    const EVal& one = a.kind == EVal::kList ? b : a;
    Tri t = Tri::kTrue;
    for (const EVal& e : list.l) t = tri_and(t, eval_equal(e, one));
    return t;
  }
  if (a.kind == EVal::kInt && b.kind == EVal::kInt) return int_eq(a.i, b.i);
  if (a.is_number() && b.is_number()) return a.number() == b.number() ? Tri::kTrue : Tri::kFalse;
  if (a.kind == EVal::kString && b.kind == EVal::kString) return a.s == b.s ? Tri::kTrue : Tri::kFalse;
  if (a.kind == EVal::kBool || b.kind == EVal::kBool) {
    Tri x = a.truth(), y = b.truth();
    if (x == Tri::kMaybe || y == Tri::kMaybe) return Tri::kMaybe;
    return x == y ? Tri::kTrue : Tri::kFalse;
  }
  return Tri::kFalse;
}

// --------------------------------------------------------------------------------------------------------------- functions

namespace {

// Functions of a value of the graph. On a sequence they give the list of results (predicates: true for all).
enum ValueFn : int { kRank, kDim, kShape, kDtype, kIsFloat, kNumel, kConstant, kUniform, kScalar, kValueOf, kMinOf, kMaxOf, kFinite, kUsers, kIsScalar, kDataOf };
// Functions of several values, and of ordinary expressions.
enum PlainFn : int {
  kSameShape = 100, kSameType, kIndependent, kDims,
  kLen = 200, kSum, kProd, kCat, kSet, kInsert, kErase, kIota, kFill, kCompose, kInverse, kIndexOf, kStarts, kAllEqual, kAll, kAny, kSorted,
  kRev, kSelect, kDrop, kMin, kMax, kAbs, kSqrt, kFloatOf, kIntOf, kAttrOf, kHasAttr, kBroadcast, kPermIsSwap, kIsConstInt, kFlat, kKnown,
};

struct FunctionRow {
  const char* name;
  int id;
  int min_args, max_args;  // max < 0: any number
};
constexpr FunctionRow kFunctions[] = {
    {"rank", kRank, 1, 1}, {"dim", kDim, 2, 2}, {"shape", kShape, 1, 1}, {"dtype", kDtype, 1, 1}, {"is_float", kIsFloat, 1, 1},
    {"numel", kNumel, 1, 1}, {"constant", kConstant, 1, 1}, {"uniform", kUniform, 1, 1}, {"scalar", kScalar, 1, 1},
    {"value", kValueOf, 1, 1}, {"min_of", kMinOf, 1, 1}, {"max_of", kMaxOf, 1, 1}, {"finite", kFinite, 1, 1}, {"users", kUsers, 1, 1},
    {"is_scalar", kIsScalar, 1, 1}, {"data", kDataOf, 1, 1},
    {"same_shape", kSameShape, 1, -1}, {"same_type", kSameType, 1, -1}, {"independent", kIndependent, 1, -1}, {"dims", kDims, 2, 2},
    {"len", kLen, 1, 1}, {"sum", kSum, 1, 1}, {"prod", kProd, 1, 1}, {"cat", kCat, 0, -1}, {"set", kSet, 3, 3}, {"insert", kInsert, 3, 3},
    {"erase", kErase, 2, 2}, {"iota", kIota, 1, 1}, {"fill", kFill, 2, 2}, {"compose", kCompose, 2, 2}, {"inverse", kInverse, 1, 1},
    {"index", kIndexOf, 2, 2}, {"starts", kStarts, 1, 1}, {"all_equal", kAllEqual, 1, 1}, {"all", kAll, 1, 1}, {"any", kAny, 1, 1},
    {"sorted", kSorted, 1, 1}, {"rev", kRev, 1, 1}, {"select", kSelect, 2, 2}, {"drop", kDrop, 2, 2}, {"min", kMin, 1, -1}, {"max", kMax, 1, -1},
    {"abs", kAbs, 1, 1}, {"sqrt", kSqrt, 1, 1}, {"float", kFloatOf, 1, 1}, {"int", kIntOf, 1, 1}, {"attr", kAttrOf, 2, 3},
    {"has_attr", kHasAttr, 2, 2}, {"broadcast", kBroadcast, 2, -1}, {"perm_is_swap", kPermIsSwap, 1, 1}, {"is_const_int", kIsConstInt, 1, 1},
    {"flat", kFlat, 1, 1}, {"known", kKnown, 1, 1},
};

const FunctionRow* find_function(std::string_view name) {
  for (const auto& row : kFunctions)
    if (name == row.name) return &row;
  return nullptr;
}

enum BinaryOp : int { kAddOp, kSubOp, kMulOp, kDivOp, kModOp, kEq, kNe, kLt, kLe, kGt, kGe, kIn, kAnd, kOr };
enum UnaryOp : int { kNeg, kNot };

// ------------------------------------------------------------------------------------------------------------------ parser

class ExprParser {
 public:
  ExprParser(std::string_view text, const Resolver& resolve) : text_(text), resolve_(resolve) {}

  ExprPtr parse() {
    ExprPtr e = disjunction();
    skip();
    if (at_ != text_.size()) fail("unexpected '" + std::string(text_.substr(at_)) + "'");
    e->source = std::string(text_);
    return e;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorKind::kRule, "in the expression '" + std::string(text_) + "' at column " + std::to_string(at_ + 1) + ": " + why);
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool peek(std::string_view s) {
    skip();
    return text_.substr(at_, s.size()) == s;
  }
  bool take(std::string_view s) {
    if (!peek(s)) return false;
    at_ += s.size();
    return true;
  }
  static bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  bool take_word(std::string_view s) {
    if (!peek(s) || (at_ + s.size() < text_.size() && word_char(text_[at_ + s.size()]))) return false;
    at_ += s.size();
    return true;
  }
  std::string word() {
    size_t start = at_;
    while (at_ < text_.size() && word_char(text_[at_])) ++at_;
    return std::string(text_.substr(start, at_ - start));
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
    if (take("-")) {
      ExprPtr e = node(Expr::kUnary, kNeg);
      e->args.push_back(unary());
      return e;
    }
    return postfix();
  }
  ExprPtr postfix() {
    ExprPtr e = primary();
    while (at_ < text_.size() && text_[at_] == '[') {
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
    if (at_ >= text_.size()) fail("the expression ends too early");
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
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '.') return number();
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
    while (end < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[end])) || text_[end] == '.' || text_[end] == 'e' || text_[end] == 'E' ||
                                  ((text_[end] == '-' || text_[end] == '+') && (text_[end - 1] == 'e' || text_[end - 1] == 'E')))) {
      real = real || text_[end] == '.' || text_[end] == 'e' || text_[end] == 'E';
      ++end;
    }
    std::string digits(begin, text_.data() + end);
    at_ = end;
    ExprPtr e = node(Expr::kConst, 0);
    e->value = real ? EVal::real(std::strtod(digits.c_str(), nullptr)) : EVal::integer(std::strtoll(digits.c_str(), nullptr, 10));
    return e;
  }
  ExprPtr variable() {
    ++at_;
    std::string name = "?" + word();
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
    std::string name = word();
    if (name == "i") return node(Expr::kI, 0);
    if (name == "n") return node(Expr::kN, 0);
    if (!name.empty() && std::all_of(name.begin(), name.end(), [](char ch) { return std::isdigit(static_cast<unsigned char>(ch)); }))
      return node(Expr::kRoot, std::atoi(name.c_str()));
    fail("'$" + name + "' is not known ($i, $n, $0, $1, ...)");
  }
  ExprPtr named() {
    std::string name = word();
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
    if (given < row->min_args || (row->max_args >= 0 && given > row->max_args)) fail("'" + name + "' was given " + std::to_string(given) + " arguments");
    bool of_value = row->id < 100 || (row->id >= kSameShape && row->id <= kDims);
    auto is_value = [](const Expr& a) { return a.kind == Expr::kValue || a.kind == Expr::kSeq || a.kind == Expr::kRoot; };
    if (of_value && !is_value(*e.args[0])) fail("'" + name + "' is a function of a value (?x, ?xs..., $0)");
  }

  std::string_view text_;
  const Resolver& resolve_;
  size_t at_ = 0;
};

// -------------------------------------------------------------------------------------------------------------- evaluation

EVal arithmetic(int op, const EVal& a, const EVal& b) {
  if (!a.known() || !b.known()) return EVal::unknown();
  if (a.kind == EVal::kList || b.kind == EVal::kList) {
    std::vector<EVal> out;
    if (a.kind == EVal::kList && b.kind == EVal::kList) {
      if (a.l.size() != b.l.size()) return EVal::unknown();
      for (size_t k = 0; k < a.l.size(); ++k) out.push_back(arithmetic(op, a.l[k], b.l[k]));
    } else if (a.kind == EVal::kList) {
      for (const EVal& e : a.l) out.push_back(arithmetic(op, e, b));
    } else {
      for (const EVal& e : b.l) out.push_back(arithmetic(op, a, e));
    }
    return EVal::list(std::move(out));
  }
  if (!a.is_number() || !b.is_number()) return EVal::unknown();
  if (a.kind == EVal::kInt && b.kind == EVal::kInt) {
    switch (op) {
      case kAddOp: return EVal::integer(int_add(a.i, b.i));
      case kSubOp: return EVal::integer(int_sub(a.i, b.i));
      case kMulOp: return EVal::integer(int_mul(a.i, b.i));
      case kDivOp: return b.i == 0 ? EVal::unknown() : EVal::integer(int_div(a.i, b.i));
      default: return b.i == 0 ? EVal::unknown() : EVal::integer(int_mod(a.i, b.i));
    }
  }
  if ((a.kind == EVal::kInt && !is_plain(a.i)) || (b.kind == EVal::kInt && !is_plain(b.i))) return EVal::unknown();
  double x = a.number(), y = b.number();
  switch (op) {
    case kAddOp: return EVal::real(x + y);
    case kSubOp: return EVal::real(x - y);
    case kMulOp: return EVal::real(x * y);
    case kDivOp: return y == 0 ? EVal::unknown() : EVal::real(x / y);
    default: return EVal::unknown();
  }
}

Tri less(const EVal& a, const EVal& b) {
  if (a.kind == EVal::kList || b.kind == EVal::kList) {  // a list against a number: every element
    if (a.kind == b.kind) return Tri::kMaybe;
    const EVal& list = a.kind == EVal::kList ? a : b;
    Tri t = Tri::kTrue;
    for (const EVal& e : list.l) t = tri_and(t, a.kind == EVal::kList ? less(e, b) : less(a, e));
    return t;
  }
  if (!a.is_number() || !b.is_number()) return Tri::kMaybe;
  if (a.kind == EVal::kInt && b.kind == EVal::kInt) return int_lt(a.i, b.i);
  return a.number() < b.number() ? Tri::kTrue : Tri::kFalse;
}

EVal contains(const EVal& item, const EVal& list) {
  if (!item.known() || list.kind != EVal::kList) return EVal::unknown();
  Tri t = Tri::kFalse;
  for (const EVal& e : list.l) t = tri_or(t, eval_equal(e, item));
  return EVal::tri(t);
}

EVal compare(int op, const EVal& a, const EVal& b) {
  switch (op) {
    case kEq: return EVal::tri(eval_equal(a, b));
    case kNe: return EVal::tri(tri_not(eval_equal(a, b)));
    case kLt: return EVal::tri(less(a, b));
    case kGt: return EVal::tri(less(b, a));
    case kLe: return EVal::tri(a.kind == EVal::kList || b.kind == EVal::kList ? tri_or(less(a, b), eval_equal(a, b)) : tri_not(less(b, a)));
    default: return EVal::tri(a.kind == EVal::kList || b.kind == EVal::kList ? tri_or(less(b, a), eval_equal(a, b)) : tri_not(less(a, b)));
  }
}

// ---- of one value

EVal inline_values(const ConstInfo& c) {
  if (!c.inline_values) return EVal::unknown();
  std::vector<EVal> out;
  for (Int v : c.ints) out.push_back(EVal::integer(v));
  for (double v : c.floats) out.push_back(EVal::real(v));
  return EVal::list(std::move(out));
}

struct Range {
  bool known = false;
  double min = 0, max = 0;
  bool uniform = false, finite = false;
};
Range range_of(const ConstInfo& c) {
  Range r;
  if (c.inline_values) {
    r.finite = true;
    bool first = true;
    auto see = [&](double v) {
      if (!std::isfinite(v)) r.finite = false;
      r.min = first ? v : std::min(r.min, v);
      r.max = first ? v : std::max(r.max, v);
      first = false;
    };
    for (Int v : c.ints) see(static_cast<double>(v));
    for (double v : c.floats) see(v);
    r.known = !first && r.finite;
    r.uniform = r.known && r.min == r.max;
  } else if (c.has_facts) {
    r = {true, c.min, c.max, c.uniform, c.finite};
  }
  return r;
}

EVal of_value(int fn, const Graph& g, ValueId v, const EVal& argument) {
  const TensorType& t = type_of(g.type(v));
  switch (fn) {
    case kRank: return t.rank < 0 ? EVal::unknown() : EVal::integer(t.rank);
    case kShape: return t.rank < 0 ? EVal::unknown() : EVal::ints(t.dims);
    case kDim: {
      if (t.rank < 0 || argument.kind != EVal::kInt) return EVal::unknown();
      Int k = argument.i < 0 ? argument.i + t.rank : argument.i;
      return k < 0 || k >= t.rank ? EVal::unknown() : EVal::integer(t.dims[k]);
    }
    case kDtype: return t.dtype == kUndefined ? EVal::unknown() : EVal::text(std::string(dtype_name(t.dtype)));
    case kIsFloat: return t.dtype == kUndefined ? EVal::unknown() : EVal::boolean(dtype_is_float(t.dtype));
    case kNumel: {
      if (t.rank < 0) return EVal::unknown();
      Int n = 1;
      for (Int d : t.dims) n = int_mul(n, d);
      return EVal::integer(n);
    }
    case kIsScalar: {
      if (t.rank < 0) return EVal::unknown();
      Tri one = Tri::kTrue;
      for (Int d : t.dims) one = tri_and(one, int_eq(d, 1));
      return EVal::tri(one);
    }
    case kConstant: return EVal::boolean(g.is_const(v));
    case kUsers: return EVal::integer(static_cast<Int>(g.users(v).size()) + g.output_uses(v));
    case kDataOf: {
      const IntVec* d = g.data(v);
      return d ? EVal::ints(*d) : EVal::unknown();
    }
    default: break;
  }
  const ConstInfo* c = g.constant(v);
  if (!c) return EVal::unknown();
  Range r = range_of(*c);
  switch (fn) {
    case kValueOf: return inline_values(*c);
    case kUniform: return r.known || c->inline_values ? EVal::boolean(r.uniform) : EVal::unknown();
    case kFinite: return r.known || c->inline_values ? EVal::boolean(r.finite) : EVal::unknown();
    case kMinOf: return r.known ? EVal::real(r.min) : EVal::unknown();
    case kMaxOf: return r.known ? EVal::real(r.max) : EVal::unknown();
    case kScalar:
      if (!r.known || !r.uniform) return EVal::unknown();
      return c->inline_values && !c->ints.empty() ? EVal::integer(c->ints[0]) : EVal::real(r.min);
    default: return EVal::unknown();
  }
}

bool is_predicate(int fn) { return fn == kConstant || fn == kUniform || fn == kFinite || fn == kIsFloat || fn == kIsScalar; }

std::vector<ValueId> values_of(const Expr& e, const EvalScope& s) {
  switch (e.kind) {
    case Expr::kValue: return {s.bindings->values[e.ref]};
    case Expr::kSeq: {
      const auto& seq = s.bindings->sequences[e.ref];
      if (s.i != kUnknown && s.i >= 0 && s.i < static_cast<Int>(seq.size())) return {seq[s.i]};
      return seq;
    }
    case Expr::kRoot:
      if (e.ref >= static_cast<int>(s.bindings->roots.size())) throw Error(ErrorKind::kRule, "there is no root $" + std::to_string(e.ref));
      return {s.graph->node(s.bindings->roots[e.ref]).out_begin};
    default: throw Error(ErrorKind::kRule, "'" + e.source + "' is not a value of the graph");
  }
}

EVal value_function(const Expr& e, const EvalScope& s) {
  EVal argument = e.args.size() > 1 ? evaluate(*e.args[1], s) : EVal{};
  std::vector<ValueId> values = values_of(*e.args[0], s);
  bool one = e.args[0]->kind != Expr::kSeq || s.i != kUnknown;
  if (one) return values[0] == kNoValue ? EVal::unknown() : of_value(e.ref, *s.graph, values[0], argument);
  if (is_predicate(e.ref)) {
    Tri t = Tri::kTrue;
    for (ValueId v : values) t = tri_and(t, of_value(e.ref, *s.graph, v, argument).truth());
    return EVal::tri(t);
  }
  std::vector<EVal> out;
  for (ValueId v : values) out.push_back(of_value(e.ref, *s.graph, v, argument));
  return EVal::list(std::move(out));
}

EVal independent(const EvalScope& s, const std::vector<ValueId>& values) {
  for (size_t a = 0; a < values.size(); ++a)
    for (size_t b = a + 1; b < values.size(); ++b) {
      NodeId x = s.graph->producer(values[a]), y = s.graph->producer(values[b]);
      if (x == y) continue;
      if (s.graph->depends_on(x, y) || s.graph->depends_on(y, x)) return EVal::boolean(false);
    }
  // No value may depend on a root that is to be replaced together with it.
  for (ValueId v : values)
    for (NodeId root : s.bindings->roots)
      if (s.graph->depends_on(s.graph->producer(v), root)) return EVal::boolean(false);
  return EVal::boolean(true);
}

EVal several_values(const Expr& e, const EvalScope& s) {
  EvalScope whole = s;
  whole.i = kUnknown;
  std::vector<ValueId> values;
  for (const auto& a : e.args) {
    if (e.ref == kDims && &a != &e.args[0]) break;
    for (ValueId v : values_of(*a, whole)) values.push_back(v);
  }
  const Graph& g = *s.graph;
  if (e.ref == kIndependent) return independent(s, values);
  if (e.ref == kDims) {
    EVal k = evaluate(*e.args[1], s);
    std::vector<EVal> out;
    for (ValueId v : values) out.push_back(of_value(kDim, g, v, k));
    return EVal::list(std::move(out));
  }
  Tri t = Tri::kTrue;
  for (size_t k = 1; k < values.size(); ++k) {
    const TensorType &a = type_of(g.type(values[0])), &b = type_of(g.type(values[k]));
    if (a.rank < 0 || b.rank < 0) return EVal::unknown();
    t = tri_and(t, eval_equal(EVal::ints(a.dims), EVal::ints(b.dims)));
    if (e.ref == kSameType) t = tri_and(t, a.dtype == b.dtype && a.dtype != kUndefined ? Tri::kTrue : Tri::kFalse);
  }
  return EVal::tri(t);
}

// ---- of ordinary expressions

const std::vector<EVal>* as_list(const EVal& v) { return v.kind == EVal::kList ? &v.l : nullptr; }

// An index into a list of length n; negative counts from the end; -1 when it is out of range or not a plain integer.
int64_t position(const EVal& v, size_t n, bool end_allowed = false) {
  if (v.kind != EVal::kInt || !is_plain(v.i)) return -1;
  Int k = v.i < 0 ? v.i + static_cast<Int>(n) : v.i;
  return k < 0 || k > static_cast<Int>(n) || (k == static_cast<Int>(n) && !end_allowed) ? -1 : k;
}

EVal fold(const std::vector<EVal>& l, int op, EVal start) {
  for (const EVal& e : l) start = arithmetic(op, start, e);
  return start;
}

EVal extreme(const std::vector<EVal>& args, bool smallest) {
  const std::vector<EVal>& items = args.size() == 1 && args[0].kind == EVal::kList ? args[0].l : args;
  if (items.empty()) return EVal::unknown();
  EVal best = items[0];
  for (const EVal& e : items) {
    Tri t = smallest ? less(e, best) : less(best, e);
    if (t == Tri::kMaybe && eval_equal(e, best) != Tri::kTrue) return EVal::unknown();
    if (t == Tri::kTrue) best = e;
  }
  return best;
}

EVal permute(const std::vector<EVal>& p, const std::vector<EVal>& q) {
  std::vector<EVal> out;
  for (const EVal& k : q) {
    int64_t at = position(k, p.size());
    if (at < 0) return EVal::unknown();
    out.push_back(p[at]);
  }
  return EVal::list(std::move(out));
}

EVal inverse(const std::vector<EVal>& p) {
  std::vector<EVal> out(p.size());
  for (size_t k = 0; k < p.size(); ++k) {
    int64_t at = position(p[k], p.size());
    if (at < 0) return EVal::unknown();
    out[at] = EVal::integer(static_cast<Int>(k));
  }
  return EVal::list(std::move(out));
}

EVal perm_is_swap(const std::vector<EVal>& p) {
  size_t n = p.size();
  if (n < 2) return EVal::boolean(false);
  for (size_t k = 0; k < n; ++k) {
    Int want = k == n - 2 ? static_cast<Int>(n - 1) : k == n - 1 ? static_cast<Int>(n - 2) : static_cast<Int>(k);
    if (p[k].kind != EVal::kInt || p[k].i != want) return EVal::boolean(false);
  }
  return EVal::boolean(true);
}

EVal broadcast_shapes(const std::vector<EVal>& args) {
  std::vector<EVal> out;
  for (const EVal& a : args) {
    if (a.kind != EVal::kList) return EVal::unknown();
    if (a.l.size() > out.size()) out.insert(out.begin(), a.l.size() - out.size(), EVal::integer(1));
    size_t shift = out.size() - a.l.size();
    for (size_t k = 0; k < a.l.size(); ++k) {
      EVal &x = out[shift + k];
      const EVal& y = a.l[k];
      if (eval_equal(x, y) == Tri::kTrue || eval_equal(y, EVal::integer(1)) == Tri::kTrue) continue;
      if (eval_equal(x, EVal::integer(1)) == Tri::kTrue) x = y;
      else x = EVal::unknown();
    }
  }
  return EVal::list(std::move(out));
}

EVal rest_attribute(const Expr& e, const EvalScope& s) {
  if (e.args[0]->kind != Expr::kRest && e.args[0]->kind != Expr::kOpVar) throw Error(ErrorKind::kRule, "attr() and has_attr() look into a ..?rest or ?f variable");
  AttrId id = e.args[0]->kind == Expr::kRest ? s.bindings->rests[e.args[0]->ref].attrs : s.bindings->ops[e.args[0]->ref].attrs;
  EVal name = evaluate(*e.args[1], s);
  const AttrValue* v = attrs_of(id).find(name.s);
  if (e.ref == kHasAttr) return EVal::boolean(v != nullptr);
  if (v) return EVal::from_attr(*v);
  return e.args.size() > 2 ? evaluate(*e.args[2], s) : EVal::unknown();
}

EVal list_function(int fn, std::vector<EVal>& a) {
  const std::vector<EVal>* l = a.empty() ? nullptr : as_list(a[0]);
  auto need = [&](size_t k) { return k < a.size() && a[k].kind == EVal::kList; };
  switch (fn) {
    case kKnown: return EVal::boolean(a[0].known() && (!l || std::all_of(l->begin(), l->end(), [](const EVal& e) { return e.known(); })));
    case kCat: {
      std::vector<EVal> out;
      for (const EVal& e : a) {
        if (e.kind != EVal::kList) return EVal::unknown();
        out.insert(out.end(), e.l.begin(), e.l.end());
      }
      return EVal::list(std::move(out));
    }
    case kMin: return extreme(a, true);
    case kMax: return extreme(a, false);
    case kBroadcast: return broadcast_shapes(a);
    case kAbs:
      if (a[0].kind == EVal::kInt && is_plain(a[0].i)) return EVal::integer(std::llabs(a[0].i));
      return a[0].kind == EVal::kFloat ? EVal::real(std::fabs(a[0].f)) : EVal::unknown();
    case kSqrt: return a[0].is_number() && a[0].number() >= 0 ? EVal::real(std::sqrt(a[0].number())) : EVal::unknown();
    case kFloatOf: return a[0].is_number() && (a[0].kind == EVal::kFloat || is_plain(a[0].i)) ? EVal::real(a[0].number()) : EVal::unknown();
    case kIntOf:
      if (a[0].kind == EVal::kInt) return a[0];
      return a[0].kind == EVal::kFloat && a[0].f == std::floor(a[0].f) && std::fabs(a[0].f) < 1e15 ? EVal::integer(static_cast<Int>(a[0].f)) : EVal::unknown();
    case kIsConstInt: return EVal::boolean(a[0].kind == EVal::kInt && is_plain(a[0].i));
    case kIota: {
      if (a[0].kind != EVal::kInt || !is_plain(a[0].i) || a[0].i < 0 || a[0].i > 4096) return EVal::unknown();
      std::vector<EVal> out;
      for (Int k = 0; k < a[0].i; ++k) out.push_back(EVal::integer(k));
      return EVal::list(std::move(out));
    }
    case kFill:
      if (a[0].kind != EVal::kInt || !is_plain(a[0].i) || a[0].i < 0 || a[0].i > 4096) return EVal::unknown();
      return EVal::list(std::vector<EVal>(static_cast<size_t>(a[0].i), a[1]));
    default: break;
  }
  if (!l) return EVal::unknown();
  const Int n = static_cast<Int>(l->size());
  switch (fn) {
    case kLen: return EVal::integer(n);
    case kSum: return fold(*l, kAddOp, EVal::integer(0));
    case kProd: return fold(*l, kMulOp, EVal::integer(1));
    case kSet:
    case kErase: {
      int64_t at = position(a[1], l->size());
      if (at < 0) return EVal::unknown();
      std::vector<EVal> out = *l;
      if (fn == kErase) out.erase(out.begin() + at);
      else out[at] = a[2];
      return EVal::list(std::move(out));
    }
    case kInsert: {
      int64_t at = position(a[1], l->size(), true);
      if (at < 0) return EVal::unknown();
      std::vector<EVal> out = *l;
      out.insert(out.begin() + at, a[2]);
      return EVal::list(std::move(out));
    }
    case kCompose: return need(1) ? permute(*l, a[1].l) : EVal::unknown();
    case kSelect: return need(1) ? permute(*l, a[1].l) : EVal::unknown();
    case kInverse: return inverse(*l);
    case kPermIsSwap: return perm_is_swap(*l);
    case kIndexOf: {
      for (size_t k = 0; k < l->size(); ++k) {
        Tri t = eval_equal((*l)[k], a[1]);
        if (t == Tri::kMaybe) return EVal::unknown();
        if (t == Tri::kTrue) return EVal::integer(static_cast<Int>(k));
      }
      return EVal::integer(-1);
    }
    case kStarts: {
      std::vector<EVal> out;
      EVal sum = EVal::integer(0);
      for (const EVal& e : *l) {
        out.push_back(sum);
        sum = arithmetic(kAddOp, sum, e);
      }
      return EVal::list(std::move(out));
    }
    case kAllEqual: {
      Tri t = Tri::kTrue;
      for (const EVal& e : *l) t = tri_and(t, eval_equal((*l)[0], e));
      return EVal::tri(t);
    }
    case kAll:
    case kAny: {
      Tri t = fn == kAll ? Tri::kTrue : Tri::kFalse;
      for (const EVal& e : *l) t = fn == kAll ? tri_and(t, e.truth()) : tri_or(t, e.truth());
      return EVal::tri(t);
    }
    case kSorted: {
      for (const EVal& e : *l)
        if (e.kind != EVal::kInt || !is_plain(e.i)) return EVal::unknown();
      std::vector<EVal> out = *l;
      std::stable_sort(out.begin(), out.end(), [](const EVal& x, const EVal& y) { return x.i < y.i; });
      return EVal::list(std::move(out));
    }
    case kRev: return EVal::list(std::vector<EVal>(l->rbegin(), l->rend()));
    case kDrop: {
      if (!need(1)) return EVal::unknown();
      std::vector<EVal> out;
      for (size_t k = 0; k < l->size(); ++k) {
        EVal in = contains(EVal::integer(static_cast<Int>(k)), a[1]);
        if (!in.known()) return EVal::unknown();
        if (!in.b) out.push_back((*l)[k]);
      }
      return EVal::list(std::move(out));
    }
    case kFlat: {
      std::vector<EVal> out;
      for (const EVal& e : *l) {
        if (e.kind == EVal::kList) out.insert(out.end(), e.l.begin(), e.l.end());
        else out.push_back(e);
      }
      return EVal::list(std::move(out));
    }
    default: return EVal::unknown();
  }
}

EVal call(const Expr& e, const EvalScope& s) {
  if (e.ref < 100) return value_function(e, s);
  if (e.ref <= kDims) return several_values(e, s);
  if (e.ref == kAttrOf || e.ref == kHasAttr) return rest_attribute(e, s);
  std::vector<EVal> args;
  args.reserve(e.args.size());
  for (const auto& a : e.args) {
    if (e.ref == kLen && a->kind == Expr::kSeq) return EVal::integer(static_cast<Int>(s.bindings->sequences[a->ref].size()));
    args.push_back(evaluate(*a, s));
  }
  return list_function(e.ref, args);
}

EVal binary(const Expr& e, const EvalScope& s) {
  EVal a = evaluate(*e.args[0], s);
  if (e.ref == kAnd || e.ref == kOr) {
    Tri x = a.truth();
    if (e.ref == kAnd && x == Tri::kFalse) return EVal::boolean(false);
    if (e.ref == kOr && x == Tri::kTrue) return EVal::boolean(true);
    Tri y = evaluate(*e.args[1], s).truth();
    return EVal::tri(e.ref == kAnd ? tri_and(x, y) : tri_or(x, y));
  }
  EVal b = evaluate(*e.args[1], s);
  if (e.ref == kIn) return contains(a, b);
  if (e.ref >= kEq) return compare(e.ref, a, b);
  return arithmetic(e.ref, a, b);
}

EVal slice(const Expr& e, const EvalScope& s) {
  EVal list = evaluate(*e.args[0], s);
  if (list.kind != EVal::kList) return EVal::unknown();
  size_t n = list.l.size();
  auto bound = [&](const EVal& v) -> int64_t {
    if (v.kind != EVal::kInt || !is_plain(v.i)) return -1;
    Int k = v.i < 0 ? v.i + static_cast<Int>(n) : v.i;
    return std::clamp<Int>(k, 0, static_cast<Int>(n));
  };
  int64_t lo = bound(evaluate(*e.args[1], s));
  int64_t hi = e.args.size() > 2 ? bound(evaluate(*e.args[2], s)) : static_cast<int64_t>(n);
  if (lo < 0 || hi < 0) return EVal::unknown();
  if (hi < lo) hi = lo;
  return EVal::list(std::vector<EVal>(list.l.begin() + lo, list.l.begin() + hi));
}

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

EVal evaluate(const Expr& e, const EvalScope& s) {
  switch (e.kind) {
    case Expr::kConst: return e.value;
    case Expr::kAttr: {
      const AttrValue* v = s.bindings->attrs[e.ref];
      return v ? EVal::from_attr(*v) : EVal::unknown();
    }
    case Expr::kLet: return s.lets ? (*s.lets)[e.ref] : EVal::unknown();
    case Expr::kI: return EVal::integer(s.i);
    case Expr::kN: return EVal::integer(s.n);
    case Expr::kCall: return call(e, s);
    case Expr::kList: {
      std::vector<EVal> out;
      for (const auto& a : e.args) out.push_back(evaluate(*a, s));
      return EVal::list(std::move(out));
    }
    case Expr::kIndex: {
      EVal list = evaluate(*e.args[0], s), k = evaluate(*e.args[1], s);
      if (list.kind != EVal::kList) return EVal::unknown();
      int64_t at = position(k, list.l.size());
      return at < 0 ? EVal::unknown() : list.l[at];
    }
    case Expr::kSlice: return slice(e, s);
    case Expr::kUnary: {
      EVal a = evaluate(*e.args[0], s);
      if (e.ref == kNot) return EVal::tri(tri_not(a.truth()));
      return arithmetic(kSubOp, EVal::integer(0), a);
    }
    case Expr::kBinary: return binary(e, s);
    case Expr::kIf: {
      Tri t = evaluate(*e.args[0], s).truth();
      if (t == Tri::kMaybe) return EVal::unknown();
      return evaluate(*e.args[t == Tri::kTrue ? 1 : 2], s);
    }
    default: throw Error(ErrorKind::kRule, "a variable of the graph stands where a number was expected");
  }
}

}  // namespace rlflow
