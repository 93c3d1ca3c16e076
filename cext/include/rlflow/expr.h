// Attribute expressions and conditions of rules: parsed once, evaluated against the bindings of a match. Three-valued: what is
// not known stays unknown, and an unknown condition never fires a rule.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rlflow/graph.h"

namespace rlflow {

struct EVal {
  enum Kind : uint8_t { kNone, kBool, kInt, kFloat, kString, kList };  // kNone: not known
  Kind kind = kNone;
  bool b = false;
  Int i = 0;
  double f = 0;
  std::string s;
  std::vector<EVal> l;

  static EVal unknown() { return {}; }
  static EVal boolean(bool v);
  static EVal tri(Tri v);
  static EVal integer(Int v);                   // kUnknown becomes kNone
  static EVal real(double v);
  static EVal text(std::string v);
  static EVal list(std::vector<EVal> v);
  static EVal ints(const IntVec& v);
  static EVal from_attr(const AttrValue& v);
  bool known() const { return kind != kNone; }
  bool is_number() const { return kind == kInt || kind == kFloat; }
  double number() const { return kind == kFloat ? f : static_cast<double>(i); }
  Tri truth() const;                            // kMaybe unless a known boolean (or number)
  // The attribute value, or throws Error(kType): unknown, or a list of mixed kinds.
  AttrValue to_attr() const;
  std::string str() const;
};
Tri eval_equal(const EVal& a, const EVal& b);   // a list against a number: every element equal

// What a name in an expression stands for.
enum class Sym : uint8_t { kValue, kSeq, kAttr, kRest, kOpVar, kLetExpr, kLetTerm };
struct Symbol {
  Sym kind;
  int index;
};

struct Expr {
  enum Kind : uint8_t { kConst, kAttr, kRest, kOpVar, kLet, kValue, kSeq, kRoot, kI, kN, kCall, kList, kIndex, kSlice, kUnary, kBinary, kIf };
  Kind kind = kConst;
  int ref = 0;                                  // symbol index, root number, function id or operator code
  EVal value;
  std::vector<std::unique_ptr<Expr>> args;
  std::string source;                           // the text it was read from
};
using ExprPtr = std::unique_ptr<Expr>;

// Finds a symbol; throws Error(kRule) when the name is unbound.
using Resolver = std::function<Symbol(std::string_view name, bool sequence)>;
ExprPtr parse_expr(std::string_view text, const Resolver& resolve);   // throws Error(kRule) with the position
bool expr_uses(const Expr& e, std::string_view function);             // a call of that function occurs in it
void expr_symbols(const Expr& e, Expr::Kind kind, std::vector<int>& refs);

// Where names get their values during evaluation.
struct EvalScope {
  const Graph* graph = nullptr;
  const struct Bindings* bindings = nullptr;
  const std::vector<EVal>* lets = nullptr;
  Int i = kUnknown, n = kUnknown;               // $i and $n inside a starred target term
};
EVal evaluate(const Expr& e, const EvalScope& scope);

}  // namespace rlflow
