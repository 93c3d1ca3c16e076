// Values of expressions: making, comparing and printing them.
#include "rlflow/expr.h"

namespace rlflow {

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
  else return unknown();
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

}  // namespace rlflow
