// What egraph.pxi cannot say in Cython: languages by name, spans, enumerations.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rlflow/egraph_extract.h"
#include "rlflow/egraph_run.h"
#include "rlflow/egraph_table.h"
#include "rlflow/egraph_tensat.h"
#include "rlflow/error.h"
#include "rlflow/state.h"

namespace rlflow::bridge {

using egraph::EGraph;

inline std::shared_ptr<EGraph> make_egraph(const std::string& language) {
  if (language == "terms") return std::make_shared<EGraph>(std::make_shared<egraph::TermLanguage>());
  if (language == "tensat") return std::make_shared<EGraph>(std::make_shared<egraph::TensatLanguage>());
  throw Error(ErrorKind::kUsage, "there is no e-graph language '" + language + "'; there are terms and tensat");
}
inline std::shared_ptr<EGraph> clone_egraph(const EGraph& g) { return std::make_shared<EGraph>(g); }
inline egraph::TextLanguage& text_language(const EGraph& g) {
  auto* language = dynamic_cast<egraph::TextLanguage*>(&g.language());
  if (!language) throw Error(ErrorKind::kUsage, "the language of this e-graph has no S-expressions");
  return *language;
}
inline void check_clean(const EGraph& g) {
  if (!g.clean()) throw Error(ErrorKind::kUsage, "the e-graph was changed after its last rebuild(): call it first");
}
inline void check_classes(const EGraph& g, const std::vector<uint32_t>& classes) {
  for (const uint32_t c : classes)
    if (c >= g.class_capacity()) throw Error(ErrorKind::kUsage, "the e-graph has no class " + std::to_string(c));
}
inline std::string egraph_op_name(const EGraph& g, uint32_t op) { return g.language().op_name(op); }
inline std::string egraph_attr_text(const EGraph& g, uint32_t op, uint32_t attr) { return g.language().attr_text(op, attr); }
inline std::string egraph_data_text(const EGraph& g, uint32_t c) { return g.language().data_text(g.data(c)); }
inline uint32_t egraph_parse(EGraph& g, const std::string& text) { return text_language(g).parse_term(g, text); }
inline uint32_t egraph_add(EGraph& g, const std::string& op, uint32_t attr, const std::vector<uint32_t>& children) {
  check_classes(g, children);
  const int id = text_language(g).op_of(op);
  if (id < 0) throw Error(ErrorKind::kUsage, "there is no operator '" + op + "' in the language of this e-graph");
  return g.add(static_cast<uint32_t>(id), attr, children);
}
inline std::shared_ptr<egraph::RewriteRule> egraph_rule(EGraph& g, const std::string& name, const std::vector<std::string>& lines, bool unordered) {
  return std::make_shared<egraph::RewriteRule>(text_language(g).parse_rule(name, lines, unordered));
}

struct ENodeArrays {
  std::vector<uint32_t> id, op, attr, cls, child_begin{0}, child;
  std::vector<uint8_t> filtered;
};
inline ENodeArrays egraph_nodes(const EGraph& g) {
  ENodeArrays out;
  for (egraph::ENodeId n = 0; n < g.node_capacity(); ++n) {
    const egraph::ENode& node = g.node(n);
    if (node.dead) continue;
    out.id.push_back(n);
    out.op.push_back(node.op);
    out.attr.push_back(node.attr);
    out.cls.push_back(g.class_of(n));
    out.filtered.push_back(node.filtered);
    for (const uint32_t c : g.children(n)) out.child.push_back(g.find(c));
    out.child_begin.push_back(static_cast<uint32_t>(out.child.size()));
  }
  return out;
}
inline size_t egraph_filter_cycles(EGraph& g, const std::vector<uint32_t>& roots) {
  check_clean(g);
  check_classes(g, roots);
  return egraph::filter_cycles(g, roots);
}
inline bool egraph_has_cycle(const EGraph& g, const std::vector<uint32_t>& roots) {
  check_clean(g);
  check_classes(g, roots);
  return egraph::has_cycle(g, roots);
}
inline std::pair<size_t, size_t> egraph_reachable(const EGraph& g, const std::vector<uint32_t>& roots) {
  check_clean(g);
  check_classes(g, roots);
  std::pair<size_t, size_t> out;
  egraph::count_reachable(g, roots, out.first, out.second);
  return out;
}
inline egraph::Extraction egraph_snapshot(const EGraph& g, const std::vector<uint32_t>& roots, std::vector<uint32_t>& nodes,
                                          std::vector<uint32_t>& classes) {
  check_clean(g);
  check_classes(g, roots);
  return egraph::snapshot(g, roots, nodes, classes);
}
inline std::vector<double> egraph_tensat_costs(const EGraph& g, const std::vector<uint32_t>& nodes, double gflops, double gbps, double overhead_us) {
  const auto* language = dynamic_cast<const egraph::TensatLanguage*>(&g.language());
  if (!language) throw Error(ErrorKind::kUsage, "the language of this e-graph is not Tensat's");
  if (!(gflops > 0 && gbps > 0 && overhead_us >= 0))
    throw Error(ErrorKind::kUsage, "a device needs gflops and gbps above 0, and overhead_us of 0 or more");
  std::vector<double> out;
  for (const uint32_t n : nodes) {
    if (n >= g.node_capacity()) throw Error(ErrorKind::kUsage, "the e-graph has no node " + std::to_string(n));
    out.push_back(language->cost(g, n, {gflops, gbps, overhead_us}));
  }
  return out;
}

inline std::shared_ptr<EGraph> make_table_egraph(const Graph& graph, std::vector<uint32_t>& outputs) {
  auto g = std::make_shared<EGraph>(std::make_shared<egraph::TableLanguage>());
  const std::vector<uint32_t> cls = egraph::add_graph(*g, graph);
  for (const ValueId v : graph.outputs()) outputs.push_back(cls[v]);
  return g;
}
inline std::vector<uint32_t> egraph_add_graph(EGraph& g, const Graph& graph) {
  const std::vector<uint32_t> cls = egraph::add_graph(g, graph);
  std::vector<uint32_t> outputs;
  for (const ValueId v : graph.outputs()) outputs.push_back(cls[v]);
  return outputs;
}
inline std::string egraph_declined(const Rule& rule) { return egraph::declined(rule); }
inline std::vector<std::shared_ptr<egraph::RewriteRule>> egraph_table_rules(const EGraph& g, const std::shared_ptr<const Rule>& rule) {
  auto language = std::dynamic_pointer_cast<egraph::TableLanguage>(g.language_ptr());
  if (!language) throw Error(ErrorKind::kUsage, "the language of this e-graph is not the operator table");
  std::vector<std::shared_ptr<egraph::RewriteRule>> out;
  for (auto& r : egraph::table_rules(language, rule)) out.push_back(std::make_shared<egraph::RewriteRule>(std::move(r)));
  return out;
}
inline std::vector<double> egraph_table_costs(const EGraph& g, const std::vector<uint32_t>& nodes, const Pricer& pricer) {
  for (const uint32_t n : nodes)
    if (n >= g.node_capacity()) throw Error(ErrorKind::kUsage, "the e-graph has no node " + std::to_string(n));
  return egraph::table_costs(g, nodes, pricer);
}
inline std::vector<double> egraph_weight_bytes(const EGraph& g, const std::vector<uint32_t>& nodes) {
  for (const uint32_t n : nodes)
    if (n >= g.node_capacity()) throw Error(ErrorKind::kUsage, "the e-graph has no node " + std::to_string(n));
  return egraph::table_weight_bytes(g, nodes);
}
inline GraphPtr egraph_chosen(const EGraph& g, const Graph& like, const std::vector<uint32_t>& roots, const egraph::Extraction& e,
                              const std::vector<uint32_t>& choice, const std::vector<uint32_t>& nodes, const std::vector<uint32_t>& classes) {
  check_classes(g, roots);
  if (choice.size() != e.classes || classes.size() != e.classes || nodes.size() != e.nodes())
    throw Error(ErrorKind::kUsage, "the choice is not one of this e-graph's snapshot");
  return egraph::chosen_graph(g, like, roots, e, choice, nodes, classes);
}

// A runner that keeps alive what it works on.
struct OwningRunner {
  std::shared_ptr<EGraph> g;
  std::shared_ptr<StopToken> stop;
  std::shared_ptr<egraph::Runner> runner;
};
inline std::shared_ptr<egraph::Runner> make_runner(std::shared_ptr<EGraph> g, const std::vector<std::shared_ptr<egraph::RewriteRule>>& rules,
                                                   const std::vector<uint32_t>& roots, egraph::RunOptions options, const std::string& cycles,
                                                   const std::string& scheduler, std::shared_ptr<StopToken> stop) {
  check_classes(*g, roots);
  if (cycles == "none") options.cycles = egraph::CycleFilter::kNone;
  else if (cycles == "vanilla") options.cycles = egraph::CycleFilter::kVanilla;
  else if (cycles == "efficient") options.cycles = egraph::CycleFilter::kEfficient;
  else throw Error(ErrorKind::kUsage, "there is no cycle filter '" + cycles + "'; there are none, vanilla and efficient");
  if (scheduler == "simple") options.scheduler = egraph::SchedulerKind::kSimple;
  else if (scheduler == "backoff") options.scheduler = egraph::SchedulerKind::kBackoff;
  else throw Error(ErrorKind::kUsage, "there is no scheduler '" + scheduler + "'; there are simple and backoff");
  std::vector<egraph::RewriteRule> copies;
  copies.reserve(rules.size());
  for (const auto& r : rules) copies.push_back(*r);
  const std::atomic<bool>* flag = stop ? &stop->stop : nullptr;
  auto own = std::make_shared<OwningRunner>(OwningRunner{std::move(g), std::move(stop), nullptr});
  own->runner = std::make_shared<egraph::Runner>(*own->g, std::move(copies), roots, options, flag);
  return {own, own->runner.get()};
}
inline std::string run_runner(egraph::Runner& r) { return std::string(egraph::stop_reason_name(r.run())); }

}  // namespace rlflow::bridge
