// Our operator table as a language of the e-graph: graphs in and out, and compiled rules (rule.h) on it.
//
// A class is a value; a node with several outputs is a tuple, and each output a projection of it. A rule is found by its skeleton of
// operators; then the matched nodes are written as a small graph, with an input or constant for every class the rule does not look into, and
// the core's own matcher and rewriter decide: conditions, attribute variables and expressions, lets and targets mean here what they mean
// there. What they make of a small graph is remembered, so that each kind of place is decided once.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rlflow/cost.h"
#include "rlflow/egraph_extract.h"
#include "rlflow/egraph_run.h"
#include "rlflow/rule.h"

namespace rlflow::egraph {

inline constexpr uint32_t kOutputOf = 1u << 16;                  // attribute: which output of a tuple
inline constexpr uint32_t kAbsent = kOutputOf + 1;               // the class that stands for an operand that is not there

class TableLanguage : public Language {
 public:
  struct Value {
    TypeId type = 0;
    bool has_data = false;
    IntVec data;                            // known elements of a small integer tensor
    friend auto operator<=>(const Value&, const Value&) = default;
  };
  struct Facts {
    std::vector<Value> values;              // one, or one an output
    bool tuple = false, constant = false, absent = false;
    uint32_t const_id = kNone;              // the Constant, where there is one among the class's nodes
    friend auto operator<=>(const Facts&, const Facts&) = default;
  };
  TableLanguage();
  std::string op_name(uint32_t op) const override;
  std::string attr_text(uint32_t op, uint32_t attr) const override;
  std::string data_text(DataId data) const override;
  // Both facts hold. Throws Error(kType) where dtypes, ranks, extents or known data contradict each other.
  DataId merge(DataId kept, DataId absorbed) override;
  const Facts& facts(DataId id) const { return *facts_[id]; }
  DataId intern(const Facts& facts);
  // A node's attributes are the table's, and how many outputs it has.
  uint32_t symbol(AttrId attrs, uint32_t outputs);
  std::pair<AttrId, uint32_t> attributes(uint32_t symbol) const { return symbols_[symbol]; }

 protected:
  std::optional<DataId> infer(uint32_t op, uint32_t attr, std::span<const DataId> children) override;

 private:
  std::map<Facts, DataId> ids_;
  std::vector<const Facts*> facts_;
  std::map<std::pair<AttrId, uint32_t>, uint32_t> symbol_ids_;
  std::vector<std::pair<AttrId, uint32_t>> symbols_;
};

// Adds a graph; the classes of its values by id.
std::vector<ClassId> add_graph(EGraph& g, const Graph& graph);
// The graph of a choice over a snapshot (egraph_extract.h), with the inputs and the order of outputs of `like`, whose e-graph it is.
// `roots[i]` is the class of output i. Throws Error(kUsage) where the choice lacks a class.
GraphPtr chosen_graph(const EGraph& g, const Graph& like, std::span<const ClassId> roots, const Extraction& e, const Choice& choice,
                      std::span<const ENodeId> node, std::span<const ClassId> cls);
// Milliseconds of each node alone, with its inputs in memory: 0 for what is constant, for projections and sources. Nodes of one operator,
// attributes and operand facts have one price.
std::vector<double> table_costs(const EGraph& g, std::span<const ENodeId> nodes, const Pricer& pricer);

// A value with the facts in a graph under construction: an input of the type, or a constant that nothing else is known of.
ValueId table_leaf(GraphBuilder& b, const TableLanguage::Facts& f, uint32_t number);

// Bytes of each node's class where it is a constant that something reads at run time, else 0. `nodes`: all of a snapshot.
std::vector<double> table_weight_bytes(const EGraph& g, std::span<const ENodeId> nodes);

// Longest sequence of operands that a sequence variable stands for here; nodes with more operands are left as they are.
inline constexpr int kMaxSequence = 8;
// Why the e-graph cannot use a rule; "" if it can.
std::string declined(const Rule& rule);
// The rule for an e-graph of this language: several where a source has several shapes (operands swapped,
// sequences of one to kMaxSequence operands). Throws Error(kRule) if declined.
std::vector<RewriteRule> table_rules(const std::shared_ptr<TableLanguage>& language, const RulePtr& rule);

}  // namespace rlflow::egraph
