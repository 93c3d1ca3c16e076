// Small helpers that Cython cannot express: exception translation and variant access.
#pragma once
#include <Python.h>

#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rlflow/error.h"
#include "rlflow/graph.h"
#include "rlflow/ops_extension.h"
#include "rlflow/rule.h"
#include "rlflow/state.h"

namespace rlflow::bridge {

// Classes of rlflow/errors.py by ErrorKind; set once when the extension is imported and kept for ever.
inline PyObject* error_classes[4] = {nullptr, nullptr, nullptr, nullptr};
inline void set_error_class(int kind, PyObject* cls) {
  Py_INCREF(cls);
  error_classes[kind] = cls;
}

// Sets an error whose text may quote a piece of somebody's text that begins or ends within a character.
inline void set_error(PyObject* cls, const char* what) {
  PyObject* text = PyUnicode_DecodeUTF8(what, static_cast<Py_ssize_t>(std::strlen(what)), "replace");
  if (text == nullptr) return;  // out of memory, which is set
  PyErr_SetObject(cls, text);
  Py_DECREF(text);
}

// Called by Cython inside a catch block, with the GIL held.
inline void translate_exception() {
  try {
    throw;
  } catch (const Error& e) {
    PyObject* cls = error_classes[static_cast<int>(e.kind())];
    set_error(cls ? cls : PyExc_RuntimeError, e.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    set_error(PyExc_RuntimeError, e.what());
  }
}

inline AttrValue attr_int(Int v) { return v; }
inline AttrValue attr_float(double v) { return v; }
inline AttrValue attr_string(std::string v) { return v; }
inline AttrValue attr_ints(IntVec v) { return v; }
inline AttrValue attr_floats(std::vector<double> v) { return v; }
inline AttrValue attr_strings(std::vector<std::string> v) { return v; }
// 0 int, 1 float, 2 string, 3 ints, 4 floats, 5 strings, 6 constant
inline int attr_kind(const AttrValue& v) { return static_cast<int>(v.index()); }
inline Int get_int(const AttrValue& v) { return std::get<Int>(v); }
inline double get_float(const AttrValue& v) { return std::get<double>(v); }
inline const std::string& get_string(const AttrValue& v) { return std::get<std::string>(v); }
inline IntVec get_ints(const AttrValue& v) { return std::get<IntVec>(v); }
inline std::vector<double> get_floats(const AttrValue& v) { return std::get<std::vector<double>>(v); }
inline std::vector<std::string> get_strings(const AttrValue& v) { return std::get<std::vector<std::string>>(v); }
// Copies, because Cython cannot iterate over what is const.
inline IntVec copy_ints(const IntVec& v) { return v; }
inline std::vector<double> copy_floats(const std::vector<double>& v) { return v; }
inline std::vector<std::string> copy_strings(const std::vector<std::string>& v) { return v; }
inline ConstId get_const(const AttrValue& v) { return std::get<ConstRef>(v).id; }

inline std::shared_ptr<StopToken> make_stop_token() { return std::make_shared<StopToken>(); }
inline void set_stop(StopToken& t, bool value) { t.stop.store(value); }
inline bool get_stop(const StopToken& t) { return t.stop.load(); }

inline GraphPtr bind_symbols_by_name(const Graph& g, const std::vector<std::pair<std::string, Int>>& values) { return bind_symbols(g, values); }
inline std::shared_ptr<const Rule> make_rule(std::string name, std::vector<std::string> source, std::vector<std::string> target,
                                             std::vector<std::string> where, std::vector<std::pair<std::string, std::string>> let) {
  return std::make_shared<const Rule>(std::move(name), std::move(source), std::move(target), std::move(where), std::move(let));
}
inline std::shared_ptr<const RuleSet> make_rule_set(std::vector<std::shared_ptr<const Rule>> rules) {
  return std::make_shared<const RuleSet>(std::move(rules));
}
inline std::shared_ptr<State> make_state(GraphPtr g, RuleSetPtr rules, std::shared_ptr<const Pricer> pricer, int64_t limit,
                                         std::shared_ptr<StopToken> stop, bool profile) {
  auto rows = profile ? std::make_shared<RuleProfile>(rules->size()) : nullptr;
  return std::make_shared<State>(std::move(g), std::move(rules), std::move(pricer), limit, std::move(stop), std::move(rows));
}
inline std::shared_ptr<State> state_near(const State& s, State& base, const std::vector<uint32_t>& nodes) { return s.near(base, nodes); }
inline std::vector<uint32_t> copied(std::span<const uint32_t> s) { return {s.begin(), s.end()}; }
inline std::vector<uint32_t> graph_order(const Graph& g) { return copied(g.order()); }
inline size_t graph_work(const Graph& g) {                      // nodes that do work at run time
  size_t n = 0;
  for (const NodeId id : g.order()) n += !(g.node(id).flags & kConst);
  return n - g.graph_inputs().size();
}
inline std::vector<uint32_t> graph_nodes_from(const Graph& g, size_t first) {
  std::vector<uint32_t> found;
  for (size_t n = first; n < g.node_capacity(); n++)
    if (g.alive(NodeId(n))) found.push_back(uint32_t(n));
  return found;
}
inline std::vector<uint32_t> graph_inputs(const Graph& g) { return copied(g.graph_inputs()); }
inline std::vector<uint32_t> graph_outputs(const Graph& g) { return copied(g.outputs()); }
inline std::vector<uint32_t> node_inputs(const Graph& g, NodeId n) { return copied(g.inputs(n)); }
inline std::vector<uint32_t> value_users(const Graph& g, ValueId v) {  // node, slot, node, slot, ...
  std::vector<uint32_t> out;
  for (const auto& use : g.users(v)) {
    out.push_back(use.node);
    out.push_back(use.slot);
  }
  return out;
}
inline ValueId builder_add(GraphBuilder& b, OpId op, const AttrSet& attrs, const std::vector<ValueId>& in, int outputs) {
  return b.add(op, attrs, in, outputs);
}
inline ValueId builder_opaque(GraphBuilder& b, const std::string& name, const std::string& payload, bool pure, const std::vector<ValueId>& in,
                              const std::vector<TypeId>& types) {
  return b.opaque(name, payload, pure, in, types);
}
inline GraphPtr builder_finish(GraphBuilder& b, const std::vector<ValueId>& outputs) { return b.finish(outputs); }
inline std::vector<std::string> op_flag_names(const OpInfo& op) {
  static const std::pair<uint32_t, const char*> kNames[] = {{kPure, "pure"},          {kUnary, "unary"},
                                                            {kBinary, "binary"},      {kCommutative, "commutative"},
                                                            {kVariadic, "variadic"},  {kZeroPreserving, "zero_preserving"},
                                                            {kMonotone, "monotone"},  {kView, "view"},
                                                            {kReduce, "reduce"},      {kVariadicOutputs, "variadic_outputs"},
                                                            {kPointwise, "pointwise"}};
  std::vector<std::string> out;
  for (auto [flag, name] : kNames)
    if (op.flags & flag) out.emplace_back(name);
  return out;
}
// Calls somebody's shape function with the GIL. 1: `dims` is the answer; 0: the rank is not known; -1: the operands do not fit, `why`.
using ShapeCall = int (*)(PyObject* function, const AttrSet* attrs, const std::vector<TypeId>* operands, IntVec* dims, std::string* why);

// `shape`: a Python function, kept for ever, or None.
inline void extend(const std::string& name, int inputs, const std::vector<std::string>& flags, const AttrSet& defaults, double flops, PyObject* shape,
                   ShapeCall call) {
  Extension extension{.name = name, .inputs = inputs, .flops_per_output = flops};
  if (shape != Py_None) {
    Py_INCREF(shape);
    extension.shape = [shape, call](const AttrSet& attrs, const std::vector<TypeId>& operands) -> std::optional<IntVec> {
      IntVec dims;
      std::string why;
      const int answer = call(shape, &attrs, &operands, &dims, &why);
      if (answer < 0) throw Error(ErrorKind::kType, why);
      return answer ? std::optional(std::move(dims)) : std::nullopt;
    };
  }
  for (const auto& [attribute, value] : defaults.items) extension.defaults.push_back({attribute, value});
  for (const std::string& flag : flags) {
    if (inputs == 1 && flag == "zero_preserving") extension.flags |= kZeroPreserving;
    else if (inputs == 1 && flag == "monotone") extension.flags |= kMonotone;
    else if (inputs == 2 && flag == "commutative") extension.flags |= kCommutative;
    else
      throw Error(ErrorKind::kUsage, "the operator " + name + " cannot have the flag '" + flag +
                                         "'; an added one of one operand may be zero_preserving and monotone, of two commutative");
  }
  extend_table(std::move(extension));
}
inline std::string op_fusion_name(const OpInfo& op) {
  static const char* kNames[] = {"source", "anchor", "elementwise", "reduction", "normalisation", "movement", "view", "opaque"};
  return kNames[static_cast<int>(op.fusion)];
}
inline std::vector<uint8_t> digest_bytes(const std::vector<Hash128>& v) {
  std::vector<uint8_t> out;
  out.reserve(v.size() * 16);
  for (const Hash128& h : v)
    for (uint64_t w : {h.hi, h.lo})
      for (int k = 56; k >= 0; k -= 8) out.push_back(static_cast<uint8_t>(w >> k));
  return out;
}

}  // namespace rlflow::bridge
