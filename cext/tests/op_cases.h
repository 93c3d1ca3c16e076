// Shape-rule cases in text form.
//
// A case: "Op{attr=value, ...}", inputs, expected.
//   inputs    "f32[2,N] | i64[2]=[3,N] | f32[]#0.5 | _"   types; "=" known elements, "#" a constant's floats, "_" an absent input
//   expected  "f32[2] | i64[2]=[1,?]"  output types (and known elements, which must be absent where none are written),
//             " @ {attr=value}" canonical attributes (all of them) where the case is about them,
//             or "! part of the sentence" of an error of kind kType, or "!! ..." of kind kGraph.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "rlflow/ops.h"

namespace rlflow::testing {

struct Case {
  const char* call;
  const char* inputs;
  const char* expected;
};

inline std::string trim(const std::string& s) {
  size_t a = s.find_first_not_of(' '), b = s.find_last_not_of(' ');
  return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}
inline std::vector<std::string> split(const std::string& s, char separator) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  bool quoted = false;
  for (char ch : s) {
    quoted ^= ch == '"';
    if (!quoted) depth += (ch == '[') - (ch == ']');
    if (ch == separator && depth == 0 && !quoted) {
      parts.push_back(trim(part));
      part.clear();
    } else {
      part += ch;
    }
  }
  if (!trim(part).empty() || !parts.empty()) parts.push_back(trim(part));
  return parts;
}
inline IntVec ints_of(const std::string& s) {  // "[1,N]" or "5"
  IntVec out;
  if (s.front() != '[') return {int_parse(s)};
  for (const std::string& p : split(s.substr(1, s.size() - 2), ',')) out.push_back(int_parse(p));
  return out;
}
inline bool is_float(const std::string& s) {
  return s == "inf" || (s.find('.') != std::string::npos && s.find_first_not_of("-0123456789.e+") == std::string::npos);
}
inline AttrValue value_of(const std::string& s) {
  if (s.front() == '"') return s.substr(1, s.size() - 2);
  if (is_float(s)) return std::strtod(s.c_str(), nullptr);
  if (s.front() != '[') return int_parse(s);
  auto parts = split(s.substr(1, s.size() - 2), ',');
  if (std::none_of(parts.begin(), parts.end(), is_float)) return ints_of(s);
  std::vector<double> floats;
  for (const std::string& p : parts) floats.push_back(std::strtod(p.c_str(), nullptr));
  return floats;
}
inline AttrSet attrs_in(const std::string& braces) {
  AttrSet a;
  if (braces.size() < 2) return a;
  for (const std::string& item : split(braces.substr(1, braces.size() - 2), ',')) {
    size_t eq = item.find('=');
    a.set(item.substr(0, eq), value_of(item.substr(eq + 1)));
  }
  return a;
}

// Owns what InferInput points to.
struct Inputs {
  std::vector<InferInput> items;
  std::vector<std::unique_ptr<IntVec>> data;
  explicit Inputs(const std::string& text) {
    for (const std::string& part : split(text, '|')) {
      InferInput in;
      size_t mark = part.find_first_of("=#");
      if (part != "_") {
        in.present = true;
        in.type = type_parse(part.substr(0, mark));
      }
      if (mark != std::string::npos && part[mark] == '=') {
        data.push_back(std::make_unique<IntVec>(ints_of(part.substr(mark + 1))));
        in.data = data.back().get();
      } else if (mark != std::string::npos) {
        AttrValue v = value_of(part.substr(mark + 1));
        auto* one = std::get_if<double>(&v);
        auto floats = one ? std::vector<double>{*one} : std::get<std::vector<double>>(v);
        in.constant = &const_of(inline_const(type_of(in.type).dtype, type_of(in.type).dims, floats));
      }
      items.push_back(in);
    }
  }
};

inline std::string spelled(const std::vector<InferOutput>& outputs) {
  std::string out;
  for (const InferOutput& o : outputs) {
    out += (out.empty() ? "" : " | ") + type_text(o.type);
    if (o.has_data) out += "=" + attr_text(AttrValue(o.data));
  }
  return out;
}

struct Answer {
  std::string outputs, attrs;
};
inline Answer answer(const std::string& call, const std::string& inputs, int wanted) {
  size_t brace = call.find('{');
  AttrSet attrs = attrs_in(brace == std::string::npos ? "" : call.substr(brace));
  OpId op = find_op(call.substr(0, brace));
  Inputs in(inputs);
  std::vector<InferOutput> outputs;
  infer(op, attrs, in.items, outputs, wanted);
  // Canonical attributes are a fixed point: inferring again changes neither them nor the types.
  AttrSet again = attrs;
  std::vector<InferOutput> second;
  infer(op, again, in.items, second, static_cast<int>(outputs.size()));
  std::string text = attrs_text(intern_attrs(attrs));
  if (!(again == attrs)) return {"(attributes change when inferred again: " + text + " to " + attrs_text(intern_attrs(again)) + ")", text};
  if (spelled(second) != spelled(outputs)) return {"(types change when inferred again: " + spelled(outputs) + " to " + spelled(second) + ")", text};
  return {spelled(outputs), text};
}

// "" when the case holds, else what is wrong.
inline std::string problem(const Case& c) {
  std::string expected = c.expected;
  bool fails = expected.starts_with("!"), graph = expected.starts_with("!!");
  size_t at = expected.find(" @ ");
  std::string want = trim(expected.substr(0, at));
  int wanted = fails ? 0 : static_cast<int>(std::count(want.begin(), want.end(), '|')) + 1;
  std::string call = c.call;
  if (size_t colon = call.rfind(':'); colon != std::string::npos && call.find('"') == std::string::npos) {  // "Split{...}:3" wants 3 outputs
    wanted = std::stoi(call.substr(colon + 1));
    call = call.substr(0, colon);
  }
  try {
    Answer got = answer(call, c.inputs, wanted);
    if (fails) return "found " + got.outputs + " " + got.attrs;
    if (got.outputs != want) return "found " + got.outputs + " " + got.attrs;
    if (at != std::string::npos && got.attrs != trim(expected.substr(at + 3))) return "found attributes " + got.attrs;
    return "";
  } catch (const Error& e) {
    bool right_kind = e.kind() == (graph ? ErrorKind::kGraph : ErrorKind::kType);
    if (fails && right_kind && std::string(e.what()).find(trim(expected.substr(graph ? 2 : 1))) != std::string::npos) return "";
    return std::string("threw kind ") + std::to_string(static_cast<int>(e.kind())) + " " + e.what();
  }
}

template <size_t N>
void run_cases(const Case (&cases)[N]) {
  std::string report;
  for (const Case& c : cases)
    if (std::string p = problem(c); !p.empty()) report += std::string("\n  ") + c.call + "(" + c.inputs + "): " + p + "\n    expected " + c.expected;
  CHECK_EQ(report, std::string());
}

}  // namespace rlflow::testing
