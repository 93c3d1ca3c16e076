// S-expressions: terms and rules.
#include <algorithm>
#include <cctype>
#include <charconv>

#include "rlflow/egraph_text.h"
#include "rlflow/error.h"

namespace rlflow::egraph {
namespace {

struct Reader {
  std::string_view text;
  size_t at = 0;

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kUsage, "cannot read the S-expression at character " + std::to_string(at) + ": " + what);
  }
  void skip() {
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
  }
  bool take(char c) {
    skip();
    if (at >= text.size() || text[at] != c) return false;
    ++at;
    return true;
  }
  std::string_view atom() {
    skip();
    const size_t begin = at;
    while (at < text.size() && text[at] != '(' && text[at] != ')' && !std::isspace(static_cast<unsigned char>(text[at]))) ++at;
    if (at == begin) fail(at < text.size() ? "expected a name or a number" : "it ends too early");
    return text.substr(begin, at - begin);
  }
};

// Reads one expression from the leaves up: `leaf(atom)` and `node(op, children)` give what stands for a subterm.
template <class Value, class Leaf, class Node>
Value read(TextLanguage& language, Reader& in, Leaf leaf, Node node, int depth = 0) {
  if (depth > 20000) in.fail("it is nested too deeply");
  if (!in.take('(')) return leaf(in.atom());
  const std::string_view name = in.atom();
  const int op = language.op_of(name);
  if (op < 0) in.fail("there is no operator '" + std::string(name) + "'");
  std::vector<Value> children;
  while (!in.take(')')) children.push_back(read<Value>(language, in, leaf, node, depth + 1));
  return node(static_cast<uint32_t>(op), children);
}

bool is_number(std::string_view atom, int& value) {
  const auto [rest, error] = std::from_chars(atom.data(), atom.data() + atom.size(), value);
  return error == std::errc{} && rest == atom.data() + atom.size();
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return s;
}

template <class Value, class Leaf, class Node>
Value read_all(TextLanguage& language, std::string_view text, Leaf leaf, Node node) {
  Reader in{text};
  const Value value = read<Value>(language, in, leaf, node);
  in.skip();
  if (in.at != text.size()) in.fail("something follows the end");
  return value;
}

}  // namespace

std::string TextLanguage::attr_text(uint32_t op, uint32_t attr) const {
  if (op == kNumber) return std::to_string(static_cast<int>(attr));
  return op == kName && attr < symbols_.size() ? symbols_[attr] : "";
}

uint32_t TextLanguage::symbol(std::string_view name) {
  if (const auto it = symbol_ids_.find(name); it != symbol_ids_.end()) return it->second;
  const auto id = static_cast<uint32_t>(symbols_.size());
  symbols_.emplace_back(name);
  symbol_ids_.emplace(name, id);
  return id;
}

int TermLanguage::op_of(std::string_view name) {
  const auto it = std::find(names_.begin(), names_.end(), name);
  if (it != names_.end()) return static_cast<int>(it - names_.begin()) + 2;
  names_.emplace_back(name);
  return static_cast<int>(names_.size()) + 1;
}

ClassId TextLanguage::parse_term(EGraph& g, std::string_view text) {
  const auto leaf = [&](std::string_view atom) {
    int value = 0;
    return is_number(atom, value) ? g.add(kNumber, static_cast<uint32_t>(value), {}) : g.add(kName, symbol(atom), {});
  };
  return read_all<ClassId>(*this, text, leaf, [&](uint32_t op, const std::vector<ClassId>& children) { return g.add(op, 0, children); });
}

RewriteRule TextLanguage::parse_rule(const std::string& name, const std::vector<std::string>& lines, bool unordered) {
  std::vector<std::string> variables;
  const auto number_of = [&](std::string_view atom) {
    const auto it = std::find(variables.begin(), variables.end(), atom);
    if (it != variables.end()) return static_cast<int>(it - variables.begin());
    variables.emplace_back(atom);
    return static_cast<int>(variables.size()) - 1;
  };
  RewriteRule rule;
  rule.name = name;
  rule.unordered = unordered && lines.size() > 1;
  std::vector<std::string_view> right;
  for (const std::string& line : lines) {
    const size_t arrow = line.find("=>");
    if (arrow == std::string::npos) throw Error(ErrorKind::kRule, "rule " + name + ": '" + line + "' holds no '=>'");
    right.push_back(trimmed(std::string_view(line).substr(arrow + 2)));
    Pattern p;
    const auto leaf = [&](std::string_view atom) {
      int value = 0;
      if (atom.starts_with('?')) return p.add_variable(number_of(atom));
      const bool plain = is_number(atom, value);
      return p.add({-1, {plain ? kNumber : kName}, false, plain ? static_cast<uint32_t>(value) : symbol(atom), {}});
    };
    read_all<int>(*this, trimmed(std::string_view(line).substr(0, arrow)), leaf,
                  [&](uint32_t op, const std::vector<int>& children) { return p.add({-1, {op}, false, 0, children}); });
    rule.sources.push_back(std::move(p));
  }
  rule.variables = static_cast<int>(variables.size());
  std::vector<TermNode> terms;
  std::vector<int> targets;
  const auto add = [&](TermNode t) {        // equal subterms of all right-hand sides are one
    for (size_t i = 0; i < terms.size(); ++i)
      if (terms[i].variable == t.variable && terms[i].op == t.op && terms[i].attr == t.attr && terms[i].children == t.children)
        return static_cast<int>(i);
    terms.push_back(std::move(t));
    return static_cast<int>(terms.size()) - 1;
  };
  for (const std::string_view text : right) {
    const auto leaf = [&](std::string_view atom) {
      int value = 0;
      if (atom.starts_with('?')) {
        const int variable = number_of(atom);
        if (variable >= rule.variables)
          throw Error(ErrorKind::kRule, "rule " + name + ": the right-hand side uses " + std::string(atom) + ", which the left does not bind");
        return add({variable, 0, 0, {}});
      }
      const bool plain = is_number(atom, value);
      return add({-1, plain ? kNumber : kName, plain ? static_cast<uint32_t>(value) : symbol(atom), {}});
    };
    targets.push_back(read_all<int>(*this, text, leaf, [&](uint32_t op, const std::vector<int>& children) { return add({-1, op, 0, children}); }));
  }
  // Tensat looks at unordered pairs only where both left-hand sides are one pattern.
  std::vector<int> renaming;
  for (const Pattern& p : rule.sources)
    if (p.canonical_text(renaming) != rule.sources[0].canonical_text(renaming)) rule.unordered = false;
  rule.applier = std::make_shared<TermApplier>(std::move(terms), std::move(targets));
  return rule;
}

}  // namespace rlflow::egraph
