// Equality saturation: rules, schedulers, cycle filtering, limits, and a report of every iteration.
//
// An iteration is one multi-root step (in the first `multi_iterations` of them), then all single-root rules: searched together, applied
// together. Cycles are kept out as Tensat does (Yang et al., "Equality Saturation for Tensor Graph Superoptimization", MLSys 2021, §5.2).
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rlflow/egraph_match.h"

namespace rlflow::egraph {

struct RuleMatch {
  std::span<const ClassId> bound;           // by the rule's variable; of a group, those of all members one after the other
  std::span<const ClassId> roots;
  std::vector<std::span<const ENodeId>> matched;                 // by root: as in Matches
  bool group = false;
  std::span<const ClassId> bound_of(size_t root) const {
    return group ? bound.subspan(root * (bound.size() / roots.size()), bound.size() / roots.size()) : bound;
  }
};

// Builds a rule's right-hand sides.
class Applier {
 public:
  virtual ~Applier() = default;
  // The classes of the right-hand sides, one a root; false, with nothing added, where the rule does not hold.
  virtual bool build(EGraph& g, const RuleMatch& match, std::vector<ClassId>& targets) = 0;
  // Whether build() would build, and the existing classes that its result would read.
  virtual bool admits(const EGraph& g, const RuleMatch& match, std::vector<ClassId>& reads) = 0;
};

// Right-hand sides that are terms: they hold wherever the language can give each node its data.
class TermApplier : public Applier {
 public:
  TermApplier(std::vector<TermNode> terms, std::vector<int> targets) : terms_(std::move(terms)), targets_(std::move(targets)) {}
  bool build(EGraph& g, const RuleMatch& match, std::vector<ClassId>& targets) override;
  bool admits(const EGraph& g, const RuleMatch& match, std::vector<ClassId>& reads) override;

 private:
  bool dry_run(const EGraph& g, const RuleMatch& match);
  std::vector<TermNode> terms_;
  std::vector<int> targets_;
  std::vector<DataId> data_;
  std::vector<ClassId> classes_;
};

struct RewriteRule {
  std::string name;
  std::vector<Pattern> sources;             // over the rule's variables
  int variables = 0;
  bool unordered = false;                   // several roots of one shape: each set of classes once
  int group = -1;                           // >= 0: one source, whose matches are taken together, all that agree on the variables below it;
                                            // a class is a member once. Counts as a rule with several roots.
  std::shared_ptr<Applier> applier;
};

enum class CycleFilter : uint8_t { kNone, kVanilla, kEfficient };
enum class SchedulerKind : uint8_t { kSimple, kBackoff };
enum class StopReason : uint8_t { kSaturated, kIterations, kNodes, kSeconds, kInterrupted };
std::string_view stop_reason_name(StopReason reason);            // "saturated", "iteration_limit", ...

struct RunOptions {
  size_t iterations = 15;
  size_t nodes = 50000;                     // checked between rules: a single rule may exceed it
  double seconds = 1e18;
  size_t multi_iterations = 1;              // "k_multi"
  CycleFilter cycles = CycleFilter::kEfficient;
  SchedulerKind scheduler = SchedulerKind::kBackoff;
  size_t match_limit = 1000;                // back-off: a rule with more matches rests for `ban_length` iterations, both doubling each time
  size_t ban_length = 5;
};

struct IterationReport {
  size_t iteration = 0, nodes = 0, classes = 0, filtered = 0, matches = 0, applied = 0, unions = 0, banned = 0;
  double multi_seconds = 0, search_seconds = 0, apply_seconds = 0, rebuild_seconds = 0, cycle_seconds = 0;
};

// Marks as filtered, from `roots` down, the newest node of every cycle until there is none. Returns how many. Needs a clean e-graph.
size_t filter_cycles(EGraph& g, std::span<const ClassId> roots);
// Whether a class can be reached from itself through nodes that are not filtered, from `roots` down.
bool has_cycle(const EGraph& g, std::span<const ClassId> roots);
// Nodes that are not filtered and the classes they lie in, from `roots` down.
void count_reachable(const EGraph& g, std::span<const ClassId> roots, size_t& nodes, size_t& classes);

// Descendants of classes in the e-graph as its last rebuild() left it (later changes are not seen); filled when first asked for, to be
// thrown away before the next rebuild().
class Descendants {
 public:
  explicit Descendants(const EGraph& g) : g_(g), sets_(g.class_capacity()) {}
  bool contains(ClassId from, ClassId to);  // a path of at least one step

 private:
  const std::vector<uint64_t>& of(ClassId c);
  const EGraph& g_;
  std::vector<std::vector<uint64_t>> sets_;
};

class Runner {
 public:
  // The e-graph and `stop` (may be null) must outlive the runner.
  Runner(EGraph& g, std::vector<RewriteRule> rules, std::vector<ClassId> roots, RunOptions options, const std::atomic<bool>* stop);
  StopReason run();
  // One rule, searched and applied once, whatever the scheduler says; false if it changed nothing. For searches over rules.
  bool apply_rule(size_t rule);
  const std::vector<IterationReport>& reports() const { return reports_; }
  const std::vector<RewriteRule>& rules() const { return rules_; }
  struct RuleCount {
    size_t matches = 0, applied = 0, banned = 0;
  };
  const std::vector<RuleCount>& counts() const { return counts_; }
  std::vector<ClassId> roots() const;       // canonical

 private:
  struct Source {
    size_t matcher;
    std::vector<int> variable;
  };
  struct Ban {
    size_t times = 0, until = 0;
    bool searched = false;
  };
  const Matches& matches_of(size_t matcher);
  bool multi_step(IterationReport& report);
  bool is_multi(size_t rule) const { return sources_[rule].size() > 1 || rules_[rule].group >= 0; }
  bool apply_multi(size_t rule, IterationReport& report, Descendants* before);
  bool apply_groups(size_t rule, IterationReport& report, Descendants* before);
  struct Group {
    std::vector<ClassId> roots, bound;
    std::vector<uint32_t> rows;
  };
  bool depends(std::span<const ClassId> bound, ClassId root, const Group& group, Descendants* before) const;
  size_t single_step(size_t iteration, IterationReport& report);
  bool apply_single(size_t rule, const Matches& matches, IterationReport& report);
  bool apply(size_t rule, const RuleMatch& match, Descendants* before, IterationReport& report);
  bool closes_cycle(size_t rule, const RuleMatch& match, Descendants* before);
  bool may_search(size_t rule, size_t iteration);
  bool may_apply(size_t rule, size_t iteration, size_t found);
  bool may_stop(size_t iteration);
  void settle(IterationReport& report);     // rebuild and filter
  bool limit(StopReason& reason) const;
  double now() const;

  EGraph& g_;
  std::vector<RewriteRule> rules_;
  std::vector<ClassId> roots_;
  RunOptions options_;
  const std::atomic<bool>* stop_;
  std::vector<Matcher> matchers_;           // one a distinct pattern
  std::vector<std::unique_ptr<Matches>> found_;
  std::vector<std::vector<Source>> sources_;
  std::vector<Ban> bans_;
  std::vector<RuleCount> counts_;
  std::vector<IterationReport> reports_;
  double started_ = 0;
};

}  // namespace rlflow::egraph
