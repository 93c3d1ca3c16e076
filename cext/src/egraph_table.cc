#include "rlflow/egraph_table.h"

#include <algorithm>

#include "rlflow/error.h"

namespace rlflow::egraph {
namespace {

using Facts = TableLanguage::Facts;
using Value = TableLanguage::Value;

bool plain_ints(const IntVec& v) {
  return std::all_of(v.begin(), v.end(), [](Int x) { return is_plain(x); });
}

[[noreturn]] void contradiction(const std::string& a, const std::string& b) {
  throw Error(ErrorKind::kType, "two values that were found equal are known to differ: " + a + " and " + b + "; a rule must be false");
}

Value merged(const Value& a, const Value& b) {
  const TensorType &x = type_of(a.type), &y = type_of(b.type);
  TensorType t = x;
  if (t.dtype == kUndefined) t.dtype = y.dtype;
  if (y.dtype != kUndefined && t.dtype != y.dtype) contradiction(type_text(a.type), type_text(b.type));
  if (t.rank < 0) {
    t.rank = y.rank;
    t.dims = y.dims;
  } else if (y.rank >= 0) {
    if (t.rank != y.rank) contradiction(type_text(a.type), type_text(b.type));
    for (int k = 0; k < t.rank; ++k) {
      if (t.dims[k] == kUnknown) t.dims[k] = y.dims[k];
      else if (int_eq(t.dims[k], y.dims[k]) == Tri::kFalse) contradiction(type_text(a.type), type_text(b.type));
    }
  }
  Value out{intern_type(t), a.has_data, a.data};
  if (!a.has_data && b.has_data) {
    out.has_data = true;
    out.data = b.data;
  } else if (a.has_data && b.has_data) {
    if (a.data.size() != b.data.size()) contradiction("a list of " + std::to_string(a.data.size()), "one of " + std::to_string(b.data.size()));
    for (size_t k = 0; k < a.data.size(); ++k) {
      if (out.data[k] == kUnknown) out.data[k] = b.data[k];
      else if (b.data[k] != kUnknown && int_eq(out.data[k], b.data[k]) == Tri::kFalse) contradiction(int_text(out.data[k]), int_text(b.data[k]));
    }
  }
  return out;
}

}  // namespace

TableLanguage::TableLanguage() { symbol(0, 1); }

std::string TableLanguage::op_name(uint32_t op) const {
  if (op == kOutputOf || op == kAbsent) return op == kOutputOf ? "Output" : "Absent";
  return op < op_table().size() ? op_info(static_cast<OpId>(op)).name : "?";
}

std::string TableLanguage::attr_text(uint32_t op, uint32_t attr) const {
  if (op == kOutputOf) return std::to_string(attr);
  if (op == kAbsent || attr >= symbols_.size()) return "";
  const std::string text = attrs_text(symbols_[attr].first);
  return text.size() > 1 ? text.substr(1, text.size() - 2) : text;
}

std::string TableLanguage::data_text(DataId data) const {
  const Facts& f = *facts_[data];
  if (f.absent) return "absent";
  std::string out;
  for (const Value& v : f.values) {
    out += (out.empty() ? "" : ", ") + type_text(v.type);
    if (!v.has_data) continue;
    out += " = [";
    for (size_t k = 0; k < v.data.size(); ++k) out += (k ? "," : "") + int_text(v.data[k]);
    out += ']';
  }
  return (f.tuple ? "(" + out + ")" : out) + (f.constant ? " const" : "");
}

DataId TableLanguage::intern(const Facts& facts) {
  const auto [it, fresh] = ids_.emplace(facts, static_cast<DataId>(facts_.size()));
  if (fresh) facts_.push_back(&it->first);
  return it->second;
}

uint32_t TableLanguage::symbol(AttrId attrs, uint32_t outputs) {
  const auto [it, fresh] = symbol_ids_.emplace(std::pair{attrs, outputs}, static_cast<uint32_t>(symbols_.size()));
  if (fresh) symbols_.emplace_back(attrs, outputs);
  return it->second;
}

DataId TableLanguage::merge(DataId kept, DataId absorbed) {
  if (kept == absorbed) return kept;
  const Facts &a = *facts_[kept], &b = *facts_[absorbed];
  if (a.tuple != b.tuple || a.absent != b.absent || a.values.size() != b.values.size()) contradiction(data_text(kept), data_text(absorbed));
  Facts out = a;
  for (size_t i = 0; i < a.values.size(); ++i) out.values[i] = merged(a.values[i], b.values[i]);
  out.constant = a.constant || b.constant;
  if (out.const_id == kNone) out.const_id = b.const_id;
  return intern(out);
}

std::optional<DataId> TableLanguage::infer(uint32_t op, uint32_t attr, std::span<const DataId> children) {
  Facts out;
  if (op == kAbsent) {
    out.absent = true;
    return intern(out);
  }
  if (op == kOutputOf) {
    const Facts& tuple = *facts_[children[0]];
    if (!tuple.tuple || attr >= tuple.values.size()) return std::nullopt;
    out.values = {tuple.values[attr]};
    out.constant = tuple.constant;
    return intern(out);
  }
  const auto id = static_cast<OpId>(op);
  const auto [attr_id, outputs] = symbols_[attr];
  if (id == kOpConstant) {
    const ConstId c = std::get<ConstRef>(*attrs_of(attr_id).find("value")).id;
    const ConstInfo& info = const_of(c);
    const TensorType& t = type_of(info.type);
    const bool listed = info.inline_values && (t.dtype == kI64 || t.dtype == kI32) && t.rank <= 1 && info.ints.size() <= 64;
    out.values = {{info.type, listed, listed ? info.ints : IntVec{}}};
    out.constant = true;
    out.const_id = c;
    return intern(out);
  }
  if (id == kOpInput || id == kOpOpaque) return std::nullopt;    // add_graph knows their types
  const OpInfo& row = op_info(id);
  std::vector<InferInput> in(children.size());
  bool constant = row.has(kPure) && !children.empty();
  for (size_t i = 0; i < children.size(); ++i) {
    const Facts& f = *facts_[children[i]];
    if (f.tuple) return std::nullopt;
    if (f.absent) continue;
    const Value& v = f.values[0];
    in[i] = {true, v.type, v.has_data ? &v.data : nullptr, f.const_id == kNone ? nullptr : &const_of(f.const_id)};
    constant = constant && f.constant;
  }
  std::vector<InferOutput> results;
  AttrSet attrs = attrs_of(attr_id);
  if (!infers(id, attrs, in, results, static_cast<int>(outputs))) return std::nullopt;
  out.tuple = results.size() != 1;
  out.constant = constant;
  for (const InferOutput& r : results) out.values.push_back({r.type, r.has_data, r.has_data ? r.data : IntVec{}});
  return intern(out);
}

// ---------------------------------------------------------------------------------------------------------------- graphs

namespace {

TableLanguage& table_of(const EGraph& g) {
  auto* language = dynamic_cast<TableLanguage*>(&g.language());
  if (!language) throw Error(ErrorKind::kUsage, "the language of this e-graph is not the operator table");
  return *language;
}

}  // namespace

std::vector<ClassId> add_graph(EGraph& g, const Graph& graph) {
  TableLanguage& language = table_of(g);
  std::vector<ClassId> cls(graph.value_capacity(), kNone), children;
  for (const NodeId n : graph.order()) {
    const Node& node = graph.node(n);
    children.clear();
    for (const ValueId v : graph.inputs(n)) children.push_back(v == kNoValue ? g.add(kAbsent, 0, {}) : cls[v]);
    Facts facts;
    facts.tuple = node.out_count != 1;
    facts.constant = graph.is_const(node.out_begin);
    for (ValueId v = node.out_begin; v < node.out_begin + node.out_count; ++v) {
      const IntVec* data = graph.data(v);
      facts.values.push_back({graph.type(v), data != nullptr, data ? *data : IntVec{}});
    }
    if (node.op == kOpConstant) facts.const_id = std::get<ConstRef>(*graph.attrs(n).find("value")).id;
    const ClassId c = g.add(node.op, language.symbol(node.attrs, node.out_count), children, language.intern(facts));
    for (uint32_t k = 0; k < node.out_count; ++k) cls[node.out_begin + k] = facts.tuple ? g.add(kOutputOf, k, std::span(&c, 1)) : c;
  }
  g.rebuild();
  return cls;
}

namespace {

// Writes chosen e-nodes as nodes of a graph.
struct Writer {
  const EGraph& g;
  TableLanguage& language;
  GraphBuilder builder{};
  std::unordered_map<ClassId, ValueId> value{};                  // the first output, for a tuple

  void write(ENodeId n, ClassId cls) {
    const ENode& node = g.node(n);
    if (node.op == kAbsent) {
      value[cls] = kNoValue;
      return;
    }
    if (node.op == kOutputOf) {
      value[cls] = value.at(g.find(g.children(n)[0])) + node.attr;
      return;
    }
    const auto [attr_id, outputs] = language.attributes(node.attr);
    const AttrSet& attrs = attrs_of(attr_id);
    std::vector<ValueId> in;
    for (const ClassId c : g.children(n)) in.push_back(value.at(g.find(c)));
    if (node.op == kOpConstant) {
      value[cls] = builder.constant(std::get<ConstRef>(*attrs.find("value")).id);
    } else if (node.op == kOpOpaque) {
      std::vector<TypeId> types;
      for (const Value& v : language.facts(g.data(cls)).values) types.push_back(v.type);
      value[cls] = builder.opaque(attrs.get_string("name"), attrs.get_string("payload"), !attrs.find("instance"), in, types);
    } else {
      value[cls] = builder.add(static_cast<OpId>(node.op), attrs, in, static_cast<int>(outputs));
    }
  }
};

}  // namespace

GraphPtr chosen_graph(const EGraph& g, const Graph& like, std::span<const ClassId> roots, const Extraction& e, const Choice& choice,
                      std::span<const ENodeId> node, std::span<const ClassId> cls) {
  Writer w{g, table_of(g)};
  std::unordered_map<uint32_t, ValueId> input;                   // by attribute symbol
  for (const NodeId n : like.graph_inputs()) {
    const Node& in = like.node(n);
    input[w.language.symbol(in.attrs, in.out_count)] = w.builder.input(input_name(like, n), like.type(in.out_begin));
  }
  std::vector<uint8_t> state(e.classes, 0);
  std::vector<uint32_t> todo(e.roots.rbegin(), e.roots.rend());
  while (!todo.empty()) {
    const uint32_t c = todo.back();
    if (state[c] == 2 || choice[c] == kNone) {
      if (state[c] != 2) throw Error(ErrorKind::kUsage, "the choice names no node for class #" + std::to_string(cls[c]) + ", which it needs");
      todo.pop_back();
      continue;
    }
    if (state[c] == 0) {
      state[c] = 1;
      const auto below = e.children(choice[c]);
      for (size_t i = below.size(); i-- > 0;) {
        if (state[below[i]] == 1) throw Error(ErrorKind::kUsage, "the choice is cyclic at class #" + std::to_string(cls[below[i]]));
        todo.push_back(below[i]);
      }
      continue;
    }
    state[c] = 2;
    todo.pop_back();
    const ENode& chosen = g.node(node[choice[c]]);
    if (chosen.op == kOpInput) w.value[cls[c]] = input.at(chosen.attr);
    else w.write(node[choice[c]], cls[c]);
  }
  std::vector<ValueId> outputs;
  for (const ClassId r : roots) outputs.push_back(w.value.at(g.find(r)));
  return w.builder.finish(outputs);
}

// ------------------------------------------------------------------------------------------------------------------ prices

ValueId table_leaf(GraphBuilder& b, const TableLanguage::Facts& f, uint32_t number) {
  const TableLanguage::Value& v = f.values[0];
  if (f.const_id != kNone) return b.constant(f.const_id);
  const TensorType& t = type_of(v.type);
  if (v.has_data && plain_ints(v.data) && (t.dtype == kI64 || t.dtype == kI32)) {
    std::vector<double> values(v.data.begin(), v.data.end());
    return b.constant(inline_const(t.dtype, t.dims, values));
  }
  if (!f.constant) return b.input("leaf" + std::to_string(number), v.type);
  ConstInfo info;
  info.type = v.type;
  info.digest = hash_bytes("constant class " + std::to_string(number) + " " + type_text(v.type));
  return b.constant(intern_const(info));
}

namespace {

double price_alone(const EGraph& g, ENodeId n, TableLanguage& language, const Pricer& pricer) {
  const ENode& node = g.node(n);
  GraphBuilder b;
  std::vector<ValueId> in;
  std::unordered_map<ClassId, ValueId> seen;
  for (const ClassId child : g.children(n)) {
    const Facts& f = language.facts(g.data(child));
    if (f.absent) {
      in.push_back(kNoValue);
    } else {
      const auto [it, fresh] = seen.emplace(g.find(child), kNoValue);
      if (fresh) it->second = table_leaf(b, f, static_cast<uint32_t>(seen.size()));
      in.push_back(it->second);
    }
  }
  const auto [attr_id, outputs] = language.attributes(node.attr);
  const AttrSet& attrs = attrs_of(attr_id);
  std::vector<ValueId> out;
  if (node.op == kOpOpaque) {
    std::vector<TypeId> types;
    for (const Value& v : language.facts(g.data(node.cls)).values) types.push_back(v.type);
    out = {b.opaque(attrs.get_string("name"), attrs.get_string("payload"), true, in, types)};
  } else {
    const ValueId first = b.add(static_cast<OpId>(node.op), attrs, in, static_cast<int>(outputs));
    for (uint32_t k = 0; k < outputs; ++k) out.push_back(first + k);
  }
  const GraphPtr graph = b.finish(out);
  const RegionMap map = pricer.map(*graph);
  if (map.unknown == 0) return std::max(0.0, map.known_ms());
  static const Pricer analytic = Pricer::analytic(AnalyticDevice{}, fusion_rules("generic", 0));
  return std::max(0.0, analytic.map(*graph).known_ms());
}

}  // namespace

std::vector<double> table_costs(const EGraph& g, std::span<const ENodeId> nodes, const Pricer& pricer) {
  TableLanguage& language = table_of(g);
  std::map<std::vector<uint32_t>, double> known;
  std::vector<double> out;
  for (const ENodeId n : nodes) {
    const ENode& node = g.node(n);
    if (node.op >= kOutputOf || node.op == kOpInput || node.op == kOpConstant || language.facts(g.data(node.cls)).constant) {
      out.push_back(0);
      continue;
    }
    std::vector<uint32_t> key{node.op, node.attr};
    for (const ClassId c : g.children(n)) {
      key.push_back(g.data(c));
      const auto children = g.children(n);
      key.push_back(static_cast<uint32_t>(std::find(children.begin(), children.end(), c) - children.begin()));
    }
    const auto [it, fresh] = known.emplace(std::move(key), 0.0);
    if (fresh) it->second = price_alone(g, n, language, pricer);
    out.push_back(it->second);
  }
  return out;
}

std::vector<double> table_weight_bytes(const EGraph& g, std::span<const ENodeId> nodes) {
  const TableLanguage& language = table_of(g);
  std::vector<uint8_t> read(g.class_capacity(), 0);
  for (const ENodeId n : nodes)
    if (!language.facts(g.data(g.node(n).cls)).constant)
      for (const ClassId c : g.children(n)) read[g.find(c)] = 1;
  std::vector<double> out;
  for (const ENodeId n : nodes) {
    const TableLanguage::Facts& f = language.facts(g.data(g.node(n).cls));
    double bytes = 0;
    if (f.constant && read[g.class_of(n)])
      for (const TableLanguage::Value& v : f.values) {
        const TensorType& t = type_of(v.type);
        bytes += static_cast<double>(element_count(t).value_or(0)) * dtype_bytes(t.dtype);
      }
    out.push_back(bytes);
  }
  return out;
}

}  // namespace rlflow::egraph
