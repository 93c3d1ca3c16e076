// A graph together with everything that may be done to it next: what a search holds per opened node.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "rlflow/cost.h"
#include "rlflow/match.h"
#include "rlflow/rewrite.h"

namespace rlflow {

// The valid candidates of a state, in a fixed order (rule, then canonical place); one entry per distinct child graph.
struct Moves {
  std::vector<uint32_t> match;              // index into the state's matches, or those that a partial state has
  std::vector<uint32_t> rule;
  std::vector<Hash128> digest;              // of the child
  std::vector<double> delta_ms;             // child - parent, over regions with a price
  std::vector<uint32_t> unknown;            // regions without a price on which delta_ms says nothing
  std::vector<int32_t> nodes_added, nodes_removed, edges_added, edges_removed;
  std::vector<int64_t> weight_bytes;        // of the child
  std::vector<uint32_t> touched_begin{0}, touched;          // CSR: matched nodes
  std::vector<uint32_t> unknown_begin{0};                   // CSR into unknown_signature
  std::vector<Hash128> unknown_signature;   // regions that the child brings and that have no price
  size_t size() const { return match.size(); }
};

struct RuleStats {
  uint32_t matched = 0, refused = 0, duplicate = 0, heavy = 0;   // heavy: over the weight limit
  std::string last_refusal;
};

// A flag that a Ctrl-C handler sets; native loops look at it.
struct StopToken {
  std::atomic<bool> stop{false};
};

class State {
 public:
  State(GraphPtr graph, RuleSetPtr rules, std::shared_ptr<const Pricer> pricer, int64_t weight_limit, std::shared_ptr<StopToken> stop,
        std::shared_ptr<RuleProfile> profile = nullptr);

  const GraphPtr& graph() const { return graph_; }
  const RuleSet& rules() const { return *rules_; }
  const std::vector<MatchPtr>& matches() const;
  const RegionMap& regions();               // priced now
  // Evaluates every match once; later calls only price again what new prices may have changed.
  const Moves& moves();
  std::shared_ptr<State> open(size_t move);
  GraphPtr child(size_t move);
  std::vector<int64_t> key(size_t move);
  // The move of that rule with that key, or the one that leads to the same graph; -1 without any.
  int64_t find(std::string_view rule, const std::vector<int64_t>& key);
  // The state after the rule applied to these nodes (a move's `touched`), and its key; null where there is no such match or it is refused.
  // Looks for no other match, and prices nothing: for replaying on large graphs.
  std::shared_ptr<State> take(uint32_t rule, const std::vector<NodeId>& nodes, std::vector<int64_t>* key);
  // The same for a rule's name and a key, as a trace has them.
  std::shared_ptr<State> step(std::string_view rule, const std::vector<int64_t>& key);
  // This state with a part of its candidates: those that `base`, a state before it, did not have, or that touch one of the nodes.
  std::shared_ptr<State> near(State& base, std::span<const NodeId> nodes) const;
  // This state with one candidate at most: the move of `before`, a state before it, where it still stands.
  std::shared_ptr<State> same(State& before, size_t move) const;
  const std::vector<RuleStats>& stats() const { return stats_; }
  const RuleProfile* profile() const { return profile_.get(); }      // shared with the states opened from this one; null where none is kept
  bool stopped() const { return stop_ && stop_->stop.load(std::memory_order_relaxed); }

 private:
  State() = default;
  void evaluate_all();
  bool build(const Match& m);
  std::shared_ptr<State> built() const;
  void price_again();
  const Match& match_of(size_t move);
  std::shared_ptr<State> beside(GraphPtr graph) const;       // with the same rules, prices and limits, and no matches yet
  std::shared_ptr<State> only(std::vector<MatchPtr> picked) const;
  const std::vector<MatchPtr>& candidates() const { return partial_ ? picked_ : matches(); }
  GraphPtr graph_;
  RuleSetPtr rules_;
  std::shared_ptr<const Pricer> pricer_;
  int64_t weight_limit_ = -1;
  std::shared_ptr<StopToken> stop_;
  std::shared_ptr<RuleProfile> profile_;
  // A state before this one whose matches were found, and what the rewrites since then changed: these matches wait until they are asked for.
  struct Earlier {
    GraphPtr graph;
    std::shared_ptr<const std::vector<MatchPtr>> matches;
    std::vector<NodeId> changed;
  };
  mutable std::shared_ptr<const std::vector<MatchPtr>> matches_;
  mutable Earlier earlier_;
  bool partial_ = false;
  std::vector<MatchPtr> picked_;            // a partial state evaluates only these matches
  std::unordered_set<uint64_t> known_;      // signatures of the moves, once asked for
  Moves moves_;
  std::vector<RuleStats> stats_;
  RegionMap regions_;
  bool evaluated_ = false, mapped_ = false;
  uint64_t prices_seen_ = 0;
};

}  // namespace rlflow
