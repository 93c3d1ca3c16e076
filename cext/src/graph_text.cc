// The text form of graphs: prints and parses (graph.h has the grammar by example).
#include <cctype>
#include <cstdlib>
#include <map>

#include "rlflow/graph.h"

namespace rlflow {
namespace {

// The text between commas of the nesting level 0.
std::vector<std::string> split_top(std::string_view s, char separator = ',') {
  std::vector<std::string> parts;
  int depth = 0;
  bool quoted = false;
  std::string part;
  for (char c : s) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '[' || c == '{' || c == '(')) ++depth;
    if (!quoted && (c == ']' || c == '}' || c == ')')) --depth;
    if (c == separator && depth == 0 && !quoted) {
      parts.push_back(part);
      part.clear();
    } else {
      part += c;
    }
  }
  if (!part.empty() || !parts.empty()) parts.push_back(part);
  return parts;
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return s;
}

bool looks_float(std::string_view s) {
  if (s == "inf" || s == "-inf" || s == "nan") return true;
  if (s.empty() || !(std::isdigit(static_cast<unsigned char>(s[0])) || s[0] == '-' || s[0] == '+' || s[0] == '.')) return false;
  return s.find_first_of(".eE") != std::string_view::npos && s.find('*') == std::string_view::npos;
}

double parse_float(std::string_view s) {
  std::string copy(s);
  char* end = nullptr;
  double v = std::strtod(copy.c_str(), &end);
  if (end == copy.c_str() || *end) throw Error(ErrorKind::kUsage, "'" + shown(copy) + "' is not a number");
  return v;
}

std::string unquote(std::string_view s) {
  std::string out;
  for (size_t i = 1; i + 1 < s.size(); ++i) {
    if (s[i] == '\\' && i + 2 < s.size()) ++i;
    out += s[i];
  }
  return out;
}

AttrValue parse_value(std::string_view text) {
  std::string_view s = trim(text);
  if (s.empty()) throw Error(ErrorKind::kUsage, "an attribute has no value");
  if (s.front() == '"') return unquote(s);
  if (s.front() != '[') {
    if (looks_float(s)) return parse_float(s);
    return int_parse(s);
  }
  if (s.back() != ']') throw Error(ErrorKind::kUsage, "a list is not closed: " + shown(s));
  auto parts = split_top(s.substr(1, s.size() - 2));
  IntVec ints;
  std::vector<double> floats;
  std::vector<std::string> strings;
  bool any_float = false;
  for (const auto& p : parts) any_float = any_float || looks_float(trim(p));
  for (const auto& p : parts) {
    std::string_view e = trim(p);
    if (!e.empty() && e.front() == '"') strings.push_back(unquote(e));
    else if (any_float) floats.push_back(parse_float(e));
    else ints.push_back(int_parse(e));
  }
  if (!strings.empty()) return strings;
  if (any_float) return floats;
  return ints;
}

class Parser {
 public:
  GraphPtr parse(std::string_view text) {
    int line_number = 0;
    while (!text.empty()) {
      size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
      ++line_number;
      try {
        statement(trim(without_comment(line)));
      } catch (const Error& e) {
        throw Error(e.kind() == ErrorKind::kUsage ? ErrorKind::kGraph : e.kind(), "line " + std::to_string(line_number) + ": " + shown(e.what()));
      }
    }
    if (!returned_) throw Error(ErrorKind::kGraph, "the graph text has no `return` line");
    return builder_.finish(outputs_);
  }

 private:
  static std::string_view without_comment(std::string_view line) {
    bool quoted = false;
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '"') quoted = !quoted;
      if (line[i] == '#' && !quoted) return line.substr(0, i);
    }
    return line;
  }

  ValueId lookup(std::string_view name) {
    auto it = names_.find(std::string(name));
    if (it == names_.end()) throw Error(ErrorKind::kGraph, "the value '" + shown(name) + "' is used before it is defined");
    return it->second;
  }

  void define(std::string_view name, ValueId v) {
    if (name.empty()) throw Error(ErrorKind::kGraph, "a value without a name");
    if (!names_.emplace(std::string(name), v).second) throw Error(ErrorKind::kGraph, "the value '" + shown(name) + "' is defined twice");
  }

  void statement(std::string_view s) {
    if (s.empty()) return;
    if (returned_) throw Error(ErrorKind::kGraph, "text after `return`");
    if (s.substr(0, 7) == "return " || s == "return") {
      for (const auto& p : split_top(s.substr(6))) outputs_.push_back(lookup(trim(p)));
      returned_ = true;
      return;
    }
    size_t eq = find_assignment(s);
    if (eq == std::string_view::npos) throw Error(ErrorKind::kGraph, "expected `name = Op(...)`, found '" + shown(s) + "'");
    std::string_view left = trim(s.substr(0, eq)), right = trim(s.substr(eq + 1));
    if (right == "input" || right.substr(0, 5) == "const") return source(left, right);
    operation(left, right);
  }

  static size_t find_assignment(std::string_view s) {
    int depth = 0;
    for (size_t i = 0; i < s.size(); ++i) {
      if (s[i] == '[' || s[i] == '{') ++depth;
      if (s[i] == ']' || s[i] == '}') --depth;
      if (s[i] == '=' && depth == 0) return i;
    }
    return std::string_view::npos;
  }

  void source(std::string_view left, std::string_view right) {
    size_t colon = left.find(':');
    if (colon == std::string_view::npos) throw Error(ErrorKind::kGraph, "an input or constant needs a type: `x: f32[2,3] = input`");
    std::string_view name = trim(left.substr(0, colon));
    TypeId type = type_parse(trim(left.substr(colon + 1)));
    if (right == "input") return define(name, builder_.input(name, type));
    define(name, builder_.constant(intern_const(constant_info(name, type, trim(right.substr(5))))));
  }

  static ConstInfo constant_info(std::string_view name, TypeId type, std::string_view rest) {
    ConstInfo c;
    c.type = type;
    if (rest.empty()) {
      Hasher h(11);
      h.add_bytes(name);
      h.add(type_digest(type));
      c.digest = h.finish();
      return c;
    }
    if (rest.front() == '@') {
      c.digest = from_hex(rest.substr(1, 32));
      facts(c, rest.substr(std::min<size_t>(33, rest.size())));
      return c;
    }
    const TensorType& t = type_of(type);
    std::vector<double> values;
    if (rest.front() == '[') {
      if (rest.back() != ']') throw Error(ErrorKind::kGraph, "a constant's list is not closed");
      for (const auto& p : split_top(rest.substr(1, rest.size() - 2))) values.push_back(scalar(trim(p)));
    } else {
      values.push_back(scalar(rest));
    }
    auto count = element_count(t);
    if (!count || *count != static_cast<int64_t>(values.size()))
      throw Error(ErrorKind::kGraph, "the constant of type " + type_text(type) + " has " + std::to_string(values.size()) + " values");
    return const_of(inline_const(t.dtype, t.dims, values));
  }

  static double scalar(std::string_view s) {
    if (s == "true") return 1;
    if (s == "false") return 0;
    return parse_float(s);
  }

  static void facts(ConstInfo& c, std::string_view rest) {
    for (const auto& word : split_top(rest, ' ')) {
      std::string_view w = trim(word);
      if (w.empty()) continue;
      if (w.substr(0, 4) == "min=") c.min = parse_float(w.substr(4)), c.has_facts = true;
      else if (w.substr(0, 4) == "max=") c.max = parse_float(w.substr(4));
      else if (w == "uniform") c.uniform = true;
      else if (w == "finite") c.finite = true;
      else if (w == "nonfinite") c.finite = false;
      else throw Error(ErrorKind::kGraph, "'" + shown(w) + "' is not a fact of a constant (min=, max=, uniform, finite, nonfinite)");
    }
  }

  void operation(std::string_view left, std::string_view right) {
    size_t open = right.find('('), brace = right.find('{');
    std::string_view name;
    AttrSet attrs;
    if (brace != std::string_view::npos && (open == std::string_view::npos || brace < open)) {
      name = trim(right.substr(0, brace));
      size_t close = closing(right, brace);
      for (const auto& item : split_top(right.substr(brace + 1, close - brace - 1))) {
        size_t eq = item.find('=');
        if (eq == std::string::npos) throw Error(ErrorKind::kGraph, "an attribute is written name=value, found '" + shown(item) + "'");
        attrs.set(trim(std::string_view(item).substr(0, eq)), parse_value(std::string_view(item).substr(eq + 1)));
      }
      open = right.find('(', close);
    } else {
      name = trim(right.substr(0, open));
    }
    if (open == std::string_view::npos || right.back() != ')') throw Error(ErrorKind::kGraph, "expected `Op(...)`, found '" + shown(right) + "'");
    std::vector<ValueId> in;
    for (const auto& p : split_top(right.substr(open + 1, right.size() - open - 2))) {
      std::string_view v = trim(p);
      in.push_back(v == "_" ? kNoValue : lookup(v));
    }
    auto lhs = split_top(left);
    ValueId first = name == "Opaque" ? opaque(attrs, in) : builder_.add(find_op(name), attrs, in, static_cast<int>(lhs.size()));
    for (size_t k = 0; k < lhs.size(); ++k) {
      std::string_view l = trim(lhs[k]);
      define(trim(l.substr(0, l.find(':'))), first + static_cast<ValueId>(k));
    }
  }

  ValueId opaque(const AttrSet& attrs, std::span<const ValueId> in) {
    const AttrValue* list = attrs.find("types");
    std::vector<TypeId> types;
    if (list && std::holds_alternative<std::vector<std::string>>(*list))
      for (const auto& t : std::get<std::vector<std::string>>(*list)) types.push_back(type_parse(t));
    if (types.empty()) throw Error(ErrorKind::kGraph, "an Opaque node needs types=[\"f32[2]\", ...]");
    return builder_.opaque(attrs.get_string("name"), attrs.get_string("payload", ""), !attrs.find("instance"), in, types);
  }

  static size_t closing(std::string_view s, size_t open) {
    int depth = 0;
    bool quoted = false;
    for (size_t i = open; i < s.size(); ++i) {
      if (s[i] == '"') quoted = !quoted;
      if (quoted) continue;
      if (s[i] == '{' || s[i] == '[') ++depth;
      if (s[i] == '}' || s[i] == ']') --depth;
      if (depth == 0) return i;
    }
    throw Error(ErrorKind::kGraph, "a brace is not closed");
  }

  GraphBuilder builder_;
  std::map<std::string, ValueId> names_;
  std::vector<ValueId> outputs_;
  bool returned_ = false;
};

std::string number(double v, bool integer) {
  if (integer) return std::to_string(static_cast<int64_t>(v));
  return attr_text(AttrValue(v));
}

std::string constant_text(const ConstInfo& c) {
  if (!c.inline_values) {
    std::string s = "const @" + to_hex(c.digest);
    if (!c.has_facts) return s;
    return s + " min=" + attr_text(AttrValue(c.min)) + " max=" + attr_text(AttrValue(c.max)) + (c.uniform ? " uniform" : "") +
           (c.finite ? " finite" : " nonfinite");
  }
  std::vector<std::string> parts;
  for (Int v : c.ints) parts.push_back(std::to_string(v));
  for (double v : c.floats) parts.push_back(number(v, false));
  if (type_of(c.type).rank == 0 && parts.size() == 1) return "const " + parts[0];
  std::string s = "const [";
  for (size_t i = 0; i < parts.size(); ++i) s += (i ? ", " : "") + parts[i];
  return s + "]";
}

bool is_identifier(const std::string& s) {
  if (s.empty() || !(std::isalpha(static_cast<unsigned char>(s[0])) || s[0] == '_')) return false;
  for (char c : s)
    if (!(std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '/' || c == '-')) return false;
  return s != "_" && s != "return" && s != "input";
}

}  // namespace

GraphPtr parse_graph(std::string_view text) { return Parser().parse(text); }

std::string Graph::text() const {
  std::string s;
  std::vector<std::string> name(value_capacity());
  std::map<std::string, int> taken;
  size_t counter = 0;
  auto list = [&](NodeId n) {
    std::string l;
    auto in = inputs(n);
    for (size_t i = 0; i < in.size(); ++i) l += (i ? ", " : "") + (in[i] == kNoValue ? std::string("_") : name[in[i]]);
    return l;
  };
  for (NodeId n : graph_inputs_) taken[input_name(*this, n)] = 1;
  for (NodeId n : order_) {
    const Node& node = nodes_[n];
    for (uint32_t k = 0; k < node.out_count; ++k) {
      std::string& v = name[node.out_begin + k];
      if (node.op == kOpInput && is_identifier(input_name(*this, n))) {
        v = input_name(*this, n);
        continue;
      }
      do v = "v" + std::to_string(counter++);
      while (taken.contains(v));
    }
    std::string left;
    for (uint32_t k = 0; k < node.out_count; ++k) {
      ValueId v = node.out_begin + k;
      left += (k ? ", " : "") + name[v] + (node.out_count == 1 ? ": " + type_text(value_type_[v]) : "");
    }
    std::string right;
    if (node.op == kOpInput) right = "input";
    else if (node.op == kOpConstant) right = constant_text(*constant(node.out_begin));
    else right = op(n).name + attrs_text(node.attrs) + "(" + list(n) + ")";
    s += left + " = " + right + "\n";
  }
  s += "return ";
  for (size_t i = 0; i < outputs_.size(); ++i) s += (i ? ", " : "") + name[outputs_[i]];
  return s + "\n";
}

}  // namespace rlflow
