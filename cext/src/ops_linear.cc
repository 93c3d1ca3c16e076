// Matrix products: MatMul, Gemm, MatMulInteger, Einsum, Det, Attention; the rotation of its operands, RotaryEmbedding.
#include <algorithm>
#include <map>

#include "ops_common.h"

namespace rlflow::detail {

namespace {
double last_dim(TypeId type) {
  const TensorType& t = type_of(type);
  return t.rank > 0 && is_plain(t.dims.back()) ? static_cast<double>(t.dims.back()) : 1;
}
// The contracted extent, from whichever operand knows it.
double inner_extent(TypeId a, TypeId b) {
  const TensorType& t = type_of(b);
  size_t row = t.rank >= 2 ? static_cast<size_t>(t.rank - 2) : 0;
  double rows = t.rank > 0 && is_plain(t.dims[row]) ? static_cast<double>(t.dims[row]) : 1;
  return std::max(last_dim(a), rows);
}
double product_flops(TypeId a, TypeId b, TypeId out) { return 2 * count(out) * inner_extent(a, b); }
}  // namespace

// Shape of a numpy-style matrix product of inputs `a` and `b`, set on output 0.
void set_matmul(Ctx& c, size_t a, size_t b, int dtype) {
  require_rank(c, a, 1);
  require_rank(c, b, 1);
  const TensorType &x = in(c, a), &y = in(c, b);
  if (!ranked(x) || !ranked(y)) return set_unranked(c, 0, dtype);
  IntVec left = x.dims, right = y.dims;
  if (x.rank == 1) left.insert(left.begin(), 1);
  if (y.rank == 1) right.push_back(1);
  Int k = left.back(), k2 = right[right.size() - 2];
  if (int_eq(k, k2) == Tri::kFalse)
    fail(c, "inner dimensions differ: " + type_text(c.inputs[a].type) + " x " + type_text(c.inputs[b].type) + " (" + int_text(k) + " against " +
                int_text(k2) + ")");
  IntVec out = broadcast_dims(c, IntVec(left.begin(), left.end() - 2), IntVec(right.begin(), right.end() - 2));
  if (x.rank > 1) out.push_back(left[left.size() - 2]);
  if (y.rank > 1) out.push_back(right.back());
  set(c, 0, dtype, out);
}

namespace {

void infer_matmul(Ctx& c) { set_matmul(c, 0, 1, common_dtype(c, 0, 1)); }
void infer_matmul_integer(Ctx& c) { set_matmul(c, 0, 1, kI32); }

double matmul_flops(const AttrSet&, std::span<const TypeId> in, std::span<const TypeId> out) { return product_flops(in[0], in[1], out[0]); }

void infer_gemm(Ctx& c) {
  int dtype = common_dtype(c, 0, 1);
  if (present(c, 2)) common_dtype(c, 0, 2);
  require_rank(c, 0, 2, 2);
  require_rank(c, 1, 2, 2);
  for (const char* name : {"transA", "transB"}) c.attrs.set(name, Int{c.attrs.get_int(name) != 0});
  bool ta = c.attrs.get_int("transA") != 0, tb = c.attrs.get_int("transB") != 0;
  const TensorType &a = in(c, 0), &b = in(c, 1);
  Int m = ranked(a) ? a.dims[ta ? 1 : 0] : kUnknown, k = ranked(a) ? a.dims[ta ? 0 : 1] : kUnknown;
  Int n = ranked(b) ? b.dims[tb ? 0 : 1] : kUnknown, k2 = ranked(b) ? b.dims[tb ? 1 : 0] : kUnknown;
  unify(c, k, k2, "inner dimensions");
  IntVec out{m, n};
  const TensorType& bias = in(c, 2);
  if (present(c, 2) && ranked(bias)) {
    require_rank(c, 2, 0, 2);
    for (size_t i = 0; i < bias.dims.size(); ++i) {
      Int d = bias.dims[bias.dims.size() - 1 - i], o = out[1 - i];
      if (is_plain(d) && d != 1 && is_plain(o) && d != o)
        fail(c, "the addend does not broadcast to the product: " + shapes(c) + " (" + int_text(d) + " against " + int_text(o) + ")");
    }
  }
  set(c, 0, dtype, out);
}

double gemm_flops(const AttrSet& attrs, std::span<const TypeId> in, std::span<const TypeId> out) {
  auto extent = [](TypeId type, size_t i) {
    const TensorType& t = type_of(type);
    return t.rank == 2 && is_plain(t.dims[i]) ? static_cast<double>(t.dims[i]) : 1;
  };
  double k = std::max(extent(in[0], attrs.get_int("transA", Int{0}) ? 0 : 1), extent(in[1], attrs.get_int("transB", Int{0}) ? 1 : 0));
  return count(out[0]) * (2 * k + (in.size() > 2 ? 1 : 0));
}

// ---- Einsum -----------------------------------------------------------------------------------------------------------------
constexpr char kEllipsis = '.';

struct Equation {
  std::vector<std::string> operands;  // labels; one kEllipsis stands for "..."
  std::string output;
  std::string text() const {
    auto spelled = [](const std::string& term) {
      std::string s;
      for (char ch : term) s += ch == kEllipsis ? std::string("...") : std::string(1, ch);
      return s;
    };
    std::string out;
    for (const std::string& term : operands) out += (out.empty() && &term == &operands[0] ? "" : ",") + spelled(term);
    return out + "->" + spelled(output);
  }
};

bool is_label(char ch) { return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z'); }

// Equations that differ in their letters only look equal: the letters go by the order in which they first occur.
Equation renamed(Equation e) {
  std::map<char, char> letters;
  auto rename = [&](std::string& term) {
    for (char& ch : term)
      if (ch != kEllipsis) ch = letters.try_emplace(ch, static_cast<char>((letters.size() < 26 ? 'a' : 'A' - 26) + letters.size())).first->second;
  };
  for (std::string& term : e.operands) rename(term);
  rename(e.output);
  return e;
}

// Returns "" and fills `term`, or what is wrong.
std::string read_term(std::string_view text, std::string& term) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_label(text[i])) {
      term += text[i];
    } else if (text.substr(i, 3) == "..." && term.find(kEllipsis) == std::string::npos) {
      term += kEllipsis;
      i += 2;
    } else {
      return "unexpected '" + std::string(1, text[i]) + "'";
    }
  }
  return "";
}

// Without "->", the output has the labels that occur once, sorted, after the ellipsis.
std::string implicit_output(const std::vector<std::string>& operands) {
  std::map<char, int> seen;
  for (const std::string& term : operands)
    for (char ch : term) ++seen[ch];
  std::string out;
  if (seen.contains(kEllipsis)) out += kEllipsis;
  for (auto [ch, times] : seen)
    if (ch != kEllipsis && times == 1) out += ch;
  return out;
}

std::string parse_equation(std::string_view source, Equation& e) {
  std::string text;
  for (char ch : source)
    if (ch != ' ') text += ch;
  size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow), problem;
  for (size_t at = 0; at <= left.size() && problem.empty();) {
    size_t comma = std::min(left.find(',', at), left.size());
    problem = read_term(std::string_view(left).substr(at, comma - at), e.operands.emplace_back());
    at = comma + 1;
  }
  if (!problem.empty()) return problem;
  if (arrow == std::string::npos) {
    e.output = implicit_output(e.operands);
    return "";
  }
  problem = read_term(std::string_view(text).substr(arrow + 2), e.output);
  for (char ch : e.output) {
    if (std::count(e.output.begin(), e.output.end(), ch) > 1) return std::string("output label '") + ch + "' occurs twice";
    bool bound = std::any_of(e.operands.begin(), e.operands.end(), [&](const auto& t) { return t.find(ch) != std::string::npos; });
    if (!bound && ch != kEllipsis) return std::string("output label '") + ch + "' is in no operand";
  }
  return problem;
}

// What the operands say about the labels; `known` is false where an operand's rank is not known.
struct Extents {
  std::map<char, Int> label;
  IntVec ellipsis;
  bool ellipsis_known = true;
};

std::string bind_operand(const std::string& term, const TensorType& t, IntVec& ellipsis, std::vector<std::pair<char, Int>>& labels) {
  bool dots = term.find(kEllipsis) != std::string::npos;
  size_t named = term.size() - (dots ? 1 : 0), rank = t.dims.size();
  if (dots ? rank < named : rank != named) return "operand '" + term + "' names " + std::to_string(named) + " axes of rank " + std::to_string(rank);
  size_t axis = 0;
  for (char ch : term) {
    if (ch == kEllipsis)
      for (size_t i = 0; i < rank - named; ++i) ellipsis.push_back(t.dims[axis++]);
    else labels.emplace_back(ch, t.dims[axis++]);
  }
  return "";
}

Extents measure(Ctx& c, const Equation& e) {
  Extents x;
  for (size_t i = 0; i < e.operands.size(); ++i) {
    const std::string& term = e.operands[i];
    bool dots = term.find(kEllipsis) != std::string::npos;
    if (!ranked(in(c, i))) {
      x.ellipsis_known &= !dots;
      for (char ch : term) x.label.try_emplace(ch, kUnknown);
      continue;
    }
    IntVec middle;
    std::vector<std::pair<char, Int>> labels;
    std::string problem = bind_operand(term, in(c, i), middle, labels);
    if (!problem.empty()) fail(c, problem + " in equation \"" + e.text() + "\" (" + shapes(c) + ")");
    x.ellipsis = broadcast_dims(c, x.ellipsis, middle);
    for (auto [ch, d] : labels) {
      auto [at, fresh] = x.label.try_emplace(ch, d);
      if (fresh) continue;
      Int a = at->second;
      if (is_plain(a) && is_plain(d) && a != d && a != 1 && d != 1)
        fail(c, std::string("label '") + ch + "' has two extents: " + shapes(c) + " (" + int_text(a) + " against " + int_text(d) + ")");
      at->second = a == kUnknown ? d : d == kUnknown ? a : broadcast_dim(c, a, d);
    }
  }
  return x;
}

// With letters for the ellipsis, where it stands for axes of the same extents in every operand.
Equation spelled_out(Ctx& c, Equation e) {
  IntVec axes;
  bool met = false;
  for (size_t i = 0; i < e.operands.size(); ++i) {
    if (e.operands[i].find(kEllipsis) == std::string::npos) continue;
    IntVec own;
    std::vector<std::pair<char, Int>> labels;
    if (!ranked(in(c, i)) || !bind_operand(e.operands[i], in(c, i), own, labels).empty() || (met && own != axes)) return e;
    axes = own;
    met = true;
  }
  bool unknown = std::find(axes.begin(), axes.end(), kUnknown) != axes.end();
  if (!met || unknown || e.output.find(kEllipsis) == std::string::npos) return e;
  std::string terms = e.output, letters;
  for (const std::string& term : e.operands) terms += term;
  for (char ch = 'A'; ch <= 'z' && letters.size() < axes.size(); ++ch)
    if (is_label(ch) && terms.find(ch) == std::string::npos) letters += ch;
  if (letters.size() < axes.size()) return e;
  auto spell = [&](std::string& term) {
    if (size_t at = term.find(kEllipsis); at != std::string::npos) term.replace(at, 1, letters);
  };
  for (std::string& term : e.operands) spell(term);
  spell(e.output);
  return e;
}

void infer_einsum(Ctx& c) {
  int dtype = in(c, 0).dtype;
  for (size_t i = 1; i < c.inputs.size(); ++i) dtype = common_dtype(c, 0, i);
  Equation e;
  std::string equation = c.attrs.get_string("equation"), problem = parse_equation(equation, e);
  if (!problem.empty()) fail(c, "equation \"" + equation + "\": " + problem);
  if (e.operands.size() != c.inputs.size())
    fail(c, "equation \"" + equation + "\" has " + std::to_string(e.operands.size()) + " operands, found " + std::to_string(c.inputs.size()) +
                " inputs");
  e = spelled_out(c, e);
  c.attrs.set("equation", renamed(e).text());
  Extents x = measure(c, e);
  IntVec out;
  for (char ch : e.output) {
    if (ch == kEllipsis) {
      if (!x.ellipsis_known) return set_unranked(c, 0, dtype);
      out.insert(out.end(), x.ellipsis.begin(), x.ellipsis.end());
    } else {
      out.push_back(x.label.at(ch));
    }
  }
  set(c, 0, dtype, out);
}

double einsum_flops(const AttrSet& attrs, std::span<const TypeId> inputs, std::span<const TypeId> outputs) {
  Equation e;
  if (!parse_equation(attrs.get_string("equation"), e).empty() || e.operands.size() != inputs.size()) return 0;
  std::map<char, double> extent;
  double ellipsis = 1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    IntVec middle;
    std::vector<std::pair<char, Int>> labels;
    if (type_of(inputs[i]).rank < 0 || !bind_operand(e.operands[i], type_of(inputs[i]), middle, labels).empty()) return count(outputs[0]);
    double n = 1;
    for (Int d : middle) n *= is_plain(d) ? static_cast<double>(d) : 1;
    ellipsis = std::max(ellipsis, n);
    for (auto [ch, d] : labels) {
      double& known = extent.try_emplace(ch, 1.0).first->second;
      if (is_plain(d)) known = d == 0 ? 0 : std::max(known, static_cast<double>(d));
    }
  }
  double n = ellipsis;
  for (auto [ch, d] : extent) n *= d;
  return n * static_cast<double>(std::max<size_t>(inputs.size(), 1));
}

void infer_det(Ctx& c) {
  require_rank(c, 0, 2);
  const TensorType& x = in(c, 0);
  if (!ranked(x)) return set_unranked(c, 0, x.dtype);
  unify(c, x.dims[x.dims.size() - 2], x.dims.back(), "the last two dimensions");
  set(c, 0, x.dtype, IntVec(x.dims.begin(), x.dims.end() - 2));
}

// ---- Attention --------------------------------------------------------------------------------------------------------------
// Queries, keys and values are [batch, heads, length, size], or [batch, length, heads * size] with the heads as attributes.
Int heads_of(const Ctx& c, size_t i) {
  Int heads = c.attrs.get_int(i == 0 ? "q_num_heads" : "kv_num_heads", Int{0});
  if (!is_plain(heads) || heads < 1) fail(c, "operands of rank 3 need q_num_heads and kv_num_heads, found " + int_text(heads));
  return heads;
}

// The size of one head of operand i, which has rank 3.
Int head_size(const Ctx& c, size_t i) {
  Int heads = heads_of(c, i), width = in(c, i).dims[2];
  if (!is_plain(width)) return kUnknown;
  if (width % heads != 0) fail(c, int_text(width) + " columns do not divide into " + int_text(heads) + " heads (" + shapes(c) + ")");
  return width / heads;
}

void check_groups(const Ctx& c, Int queries, Int keys) {
  if (is_plain(queries) && is_plain(keys) && keys > 0 && queries % keys != 0)
    fail(c, int_text(keys) + " heads of keys do not divide " + int_text(queries) + " heads of queries (" + shapes(c) + ")");
}

IntVec attention_of_rows(Ctx& c, const TensorType& q, const TensorType& k, const TensorType& v) {
  check_groups(c, heads_of(c, 0), heads_of(c, 1));
  unify(c, head_size(c, 0), head_size(c, 1), "the sizes of a head");
  unify(c, k.dims[1], v.dims[1], "the lengths of keys and values");
  Int size = head_size(c, 2);
  return {q.dims[0], q.dims[1], is_plain(size) ? heads_of(c, 0) * size : kUnknown};
}

IntVec attention_of_heads(Ctx& c, const TensorType& q, const TensorType& k, const TensorType& v) {
  c.attrs.erase("q_num_heads");
  c.attrs.erase("kv_num_heads");
  check_groups(c, q.dims[1], unify(c, k.dims[1], v.dims[1], "the heads of keys and values"));
  unify(c, q.dims[3], k.dims[3], "the sizes of a head");
  unify(c, k.dims[2], v.dims[2], "the lengths of keys and values");
  return {q.dims[0], q.dims[1], q.dims[2], v.dims[3]};
}

// The mask broadcasts to the scores, [batch, heads, queries, keys].
void check_mask(const Ctx& c, const IntVec& scores) {
  if (!present(c, 3) || !ranked(in(c, 3))) return;
  require_rank(c, 3, 2, 4);
  const IntVec& mask = in(c, 3).dims;
  for (size_t i = 1; i <= mask.size(); ++i) {
    Int have = mask[mask.size() - i], want = scores[4 - i];
    if (is_plain(have) && is_plain(want) && have != 1 && have != want)
      fail(c, "the mask does not broadcast to the scores: " + shapes(c) + " (" + int_text(have) + " against " + int_text(want) + ")");
  }
}

void infer_attention(Ctx& c) {
  int dtype = common_dtype(c, 0, 1);
  common_dtype(c, 0, 2);
  for (size_t i = 0; i < 3; ++i) require_rank(c, i, 3, 4);
  const TensorType &q = in(c, 0), &k = in(c, 1), &v = in(c, 2);
  if (!ranked(q) || !ranked(k) || !ranked(v)) return set_unranked(c, 0, dtype);
  if (q.rank != k.rank || k.rank != v.rank) fail(c, "queries, keys and values differ in rank (" + shapes(c) + ")");
  unify(c, unify(c, q.dims[0], k.dims[0], "batches"), v.dims[0], "batches");
  bool rows = q.rank == 3;
  set(c, 0, dtype, rows ? attention_of_rows(c, q, k, v) : attention_of_heads(c, q, k, v));
  check_mask(c, {q.dims[0], rows ? heads_of(c, 0) : q.dims[1], q.dims[rows ? 1 : 2], k.dims[rows ? 1 : 2]});
}

// Two products and a Softmax of the scores between them.
double attention_flops(const AttrSet& attrs, std::span<const TypeId> in, std::span<const TypeId> out) {
  const TensorType &q = type_of(in[0]), &k = type_of(in[1]);
  auto extent = [](const TensorType& t, size_t i) { return i < t.dims.size() && is_plain(t.dims[i]) ? static_cast<double>(t.dims[i]) : 1; };
  bool rows = q.rank == 3;
  double keys = extent(k, rows ? 1 : 2), queries = extent(q, 0) * extent(q, rows ? 1 : 2);
  double heads = rows ? static_cast<double>(attrs.get_int("q_num_heads", Int{1})) : extent(q, 1);
  return 2 * keys * (count(in[0]) + count(out[0])) + 12 * queries * heads * keys;
}

// ---- RotaryEmbedding --------------------------------------------------------------------------------------------------------
// The operand is [batch, heads, length, size], or [batch, length, heads * size]. The tables of cosines and sines are
// [batch, length, columns / 2], or [positions, columns / 2] where the positions are the fourth operand.
void infer_rotary_embedding(Ctx& c) {
  int dtype = common_dtype(c, 0, 1);
  common_dtype(c, 0, 2);
  require_rank(c, 0, 3, 4);
  const TensorType& x = in(c, 0);
  int rank = present(c, 3) ? 2 : 3;
  for (size_t table : {1, 2}) require_rank(c, table, rank, rank);
  if (!ranked(x)) return set_unranked(c, 0, dtype);
  Int columns = c.attrs.get_int("rotary_embedding_dim", Int{0});
  if (columns == 0 && x.rank == 4) columns = x.dims[3];
  if (is_plain(columns) && columns % 2 != 0) fail(c, "an odd number of columns, " + int_text(columns) + ", is rotated");
  for (size_t table : {1, 2}) {
    if (!ranked(in(c, table))) continue;
    Int half = in(c, table).dims.back();
    if (is_plain(columns) && columns > 0 && is_plain(half) && half * 2 != columns)
      fail(c, "tables of " + int_text(half) + " columns for " + int_text(columns) + " that are rotated (" + shapes(c) + ")");
  }
  set(c, 0, dtype, x.dims);
}

}  // namespace

// clang-format off
void add_linear_rows(Table& t) {
  constexpr auto anchor = FusionClass::kAnchor;
  t.add({.name = "MatMul", .since = 1, .min_inputs = 2, .max_inputs = 2, .outputs = 1, .flags = kPure, .fusion = anchor,
         .infer = infer_matmul, .flops = matmul_flops});
  t.add({.name = "Gemm", .since = 7, .min_inputs = 2, .max_inputs = 3, .outputs = 1, .flags = kPure, .fusion = anchor,
         .infer = infer_gemm,
         .defaults = {{"alpha", 1.0}, {"beta", 1.0}, {"transA", Int{0}}, {"transB", Int{0}}}, .flops = gemm_flops});
  t.add({.name = "MatMulInteger", .since = 10, .min_inputs = 2, .max_inputs = 4, .outputs = 1, .flags = kPure, .fusion = anchor,
         .infer = infer_matmul_integer, .flops = matmul_flops});
  t.add({.name = "Einsum", .since = 12, .min_inputs = 1, .max_inputs = -1, .outputs = 1, .flags = kPure, .fusion = anchor,
         .infer = infer_einsum, .extra = {"equation"}, .flops = einsum_flops});
  t.add({.name = "Det", .since = 11, .min_inputs = 1, .max_inputs = 1, .outputs = 1, .flags = kPure, .fusion = FusionClass::kOpaque,
         .infer = infer_det, .flops_per_input = 8});
  t.add({.name = "Attention", .since = 23, .min_inputs = 3, .max_inputs = 4, .outputs = 1, .flags = kPure, .fusion = anchor,
         .infer = infer_attention, .defaults = {{"is_causal", Int{0}}, {"softcap", 0.0}},
         .extra = {"kv_num_heads", "q_num_heads", "scale"}, .flops = attention_flops});
  t.add({.name = "RotaryEmbedding", .since = 23, .min_inputs = 3, .max_inputs = 4, .outputs = 1, .flags = kPure,
         .fusion = FusionClass::kMovement, .infer = infer_rotary_embedding,
         .defaults = {{"interleaved", Int{0}}, {"num_heads", Int{0}}, {"rotary_embedding_dim", Int{0}}}, .flops_per_output = 6});
}
// clang-format on

}  // namespace rlflow::detail
