#include "rlflow/egraph_run.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "rlflow/error.h"

namespace rlflow::egraph {

namespace {
constexpr size_t kMaxGroup = 64;            // members that are merged at once
}

std::string_view stop_reason_name(StopReason reason) {
  static constexpr std::string_view kNames[] = {"saturated", "iteration_limit", "node_limit", "time_limit", "interrupted"};
  return kNames[static_cast<int>(reason)];
}

// --------------------------------------------------------------------------------------------------------------- term applier

bool TermApplier::dry_run(const EGraph& g, const RuleMatch& match) {
  data_.resize(terms_.size());
  std::vector<DataId> facts;
  for (size_t i = 0; i < terms_.size(); ++i) {
    const TermNode& t = terms_[i];
    if (t.variable >= 0) {
      data_[i] = g.data(match.bound[t.variable]);
      continue;
    }
    facts.clear();
    for (const int c : t.children) facts.push_back(data_[c]);
    const auto data = g.language().make(t.op, t.attr, facts);
    if (!data) return false;
    data_[i] = *data;
  }
  return true;
}

bool TermApplier::admits(const EGraph& g, const RuleMatch& match, std::vector<ClassId>& reads) {
  if (!dry_run(g, match)) return false;
  classes_.assign(terms_.size(), kNone);
  std::vector<ClassId> children;
  for (size_t i = 0; i < terms_.size(); ++i) {
    const TermNode& t = terms_[i];
    if (t.variable >= 0) {
      classes_[i] = g.find(match.bound[t.variable]);
    } else {
      children.clear();
      for (const int c : t.children) children.push_back(classes_[c]);
      if (std::find(children.begin(), children.end(), kNone) != children.end()) continue;
      const ENodeId n = g.lookup(t.op, t.attr, children);
      if (n != kNone) classes_[i] = g.class_of(n);
    }
    if (classes_[i] == kNone) continue;
    const bool is_target = std::find(targets_.begin(), targets_.end(), static_cast<int>(i)) != targets_.end();
    const bool is_root = std::any_of(match.roots.begin(), match.roots.end(), [&](ClassId r) { return g.find(r) == classes_[i]; });
    if (!is_target || !is_root) reads.push_back(classes_[i]);
  }
  return true;
}

bool TermApplier::build(EGraph& g, const RuleMatch& match, std::vector<ClassId>& targets) {
  if (!dry_run(g, match)) return false;
  classes_.assign(terms_.size(), kNone);
  std::vector<ClassId> children;
  for (size_t i = 0; i < terms_.size(); ++i) {
    const TermNode& t = terms_[i];
    if (t.variable >= 0) {
      classes_[i] = g.find(match.bound[t.variable]);
      continue;
    }
    children.clear();
    for (const int c : t.children) children.push_back(classes_[c]);
    classes_[i] = g.add(t.op, t.attr, children, data_[i]);
  }
  for (const int t : targets_) targets.push_back(classes_[t]);
  return true;
}

// --------------------------------------------------------------------------------------------------------------------- runner

Runner::Runner(EGraph& g, std::vector<RewriteRule> rules, std::vector<ClassId> roots, RunOptions options, const std::atomic<bool>* stop)
    : g_(g), rules_(std::move(rules)), roots_(std::move(roots)), options_(options), stop_(stop), bans_(rules_.size()), counts_(rules_.size()) {
  std::unordered_map<std::string, size_t> known;
  for (const RewriteRule& rule : rules_) {
    std::vector<Source> sources;
    for (const Pattern& p : rule.sources) {
      Source source;
      const std::string text = p.canonical_text(source.variable);
      const auto [it, fresh] = known.emplace(text, matchers_.size());
      if (fresh) {
        Pattern canonical = p;
        for (PatternNode& node : canonical.nodes)
          if (node.variable >= 0)
            node.variable = static_cast<int>(std::find(source.variable.begin(), source.variable.end(), node.variable) - source.variable.begin());
        canonical.variables = static_cast<int>(source.variable.size());
        matchers_.emplace_back(canonical);
      }
      source.matcher = it->second;
      sources.push_back(std::move(source));
    }
    sources_.push_back(std::move(sources));
  }
  found_.resize(matchers_.size());
  g_.rebuild();
  started_ = now();
}

double Runner::now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::vector<ClassId> Runner::roots() const {
  std::vector<ClassId> out;
  out.reserve(roots_.size());
  for (const ClassId r : roots_) out.push_back(g_.find(r));
  return out;
}

bool Runner::limit(StopReason& reason) const {
  if (stop_ && stop_->load(std::memory_order_relaxed)) reason = StopReason::kInterrupted;
  else if (now() - started_ > options_.seconds) reason = StopReason::kSeconds;
  else if (g_.node_count() > options_.nodes) reason = StopReason::kNodes;
  else return false;
  return true;
}

const Matches& Runner::matches_of(size_t matcher) {
  if (!found_[matcher]) found_[matcher] = std::make_unique<Matches>(matchers_[matcher].search(g_));
  return *found_[matcher];
}

StopReason Runner::run() {
  StopReason reason = StopReason::kSaturated;
  started_ = now();
  if (options_.cycles != CycleFilter::kNone) filter_cycles(g_, roots());
  for (size_t i = 0;; ++i) {
    if (limit(reason)) return reason;
    if (i >= options_.iterations) return StopReason::kIterations;
    IterationReport report;
    report.iteration = i;
    const bool multi = i < options_.multi_iterations && multi_step(report);
    const size_t applied = limit(reason) ? 1 : single_step(i, report);
    report.nodes = g_.node_count();
    report.classes = g_.class_count();
    report.filtered = g_.filtered_count();
    reports_.push_back(report);
    if (!multi && applied == 0 && may_stop(i)) return StopReason::kSaturated;
  }
}

void Runner::settle(IterationReport& report) {
  const double t0 = now();
  g_.rebuild();
  for (auto& m : found_) m.reset();
  const double t1 = now();
  if (options_.cycles != CycleFilter::kNone) filter_cycles(g_, roots());
  report.rebuild_seconds += t1 - t0;
  report.cycle_seconds += now() - t1;
}

bool Runner::multi_step(IterationReport& report) {
  const double t0 = now();
  bool changed = false;
  const size_t unions = g_.unions();
  StopReason reason;
  for (size_t r = 0; r < rules_.size(); ++r)                     // all searches before the first change
    if (is_multi(r))
      for (const Source& s : sources_[r]) matches_of(s.matcher);
  Descendants before(g_);
  for (size_t r = 0; r < rules_.size() && !limit(reason); ++r)
    if (is_multi(r)) changed |= apply_multi(r, report, &before);
  report.multi_seconds = now() - t0;
  settle(report);
  report.unions += g_.unions() - unions;
  return changed;
}

bool Runner::apply_groups(size_t rule, IterationReport& report, Descendants* before) {
  const Source& source = sources_[rule][0];
  const Matches& matches = *found_[source.matcher];
  const size_t width = rules_[rule].variables;
  std::map<std::vector<ClassId>, std::vector<uint32_t>> groups;  // ordered: the result must not depend on hashing
  std::vector<ClassId> bound(width);
  const auto bind = [&](uint32_t row) {
    bound.assign(width, kNone);
    for (size_t v = 0; v < source.variable.size(); ++v) bound[source.variable[v]] = matches.bound(row)[v];
  };
  for (uint32_t row = 0; row < matches.size(); ++row) {
    bind(row);
    groups[{bound.begin(), bound.begin() + rules_[rule].group}].push_back(row);
  }
  bool changed = false;
  StopReason reason;
  for (const auto& [shared, rows] : groups) {
    std::vector<Group> parts;                                    // members of a part do not depend on each other
    for (const uint32_t row : rows) {
      const ClassId root = g_.find(matches.root(row));
      bind(row);
      const auto has_root = [&](const Group& p) { return std::find(p.roots.begin(), p.roots.end(), root) != p.roots.end(); };
      if (std::any_of(parts.begin(), parts.end(), has_root)) continue;
      const auto fits = [&](const Group& p) { return p.roots.size() < kMaxGroup && !depends(bound, root, p, before); };
      auto part = std::find_if(parts.begin(), parts.end(), fits);
      if (part == parts.end()) part = parts.insert(part, Group{});
      part->roots.push_back(root);
      part->bound.insert(part->bound.end(), bound.begin(), bound.end());
      part->rows.push_back(row);
    }
    for (const Group& part : parts) {
      if (part.roots.size() < 2) continue;
      RuleMatch match;
      match.group = true;
      match.roots = part.roots;
      match.bound = part.bound;
      for (const uint32_t row : part.rows) match.matched.push_back(matches.matched(row));
      changed |= apply(rule, match, before, report);
    }
    if (limit(reason)) break;
  }
  return changed;
}

bool Runner::depends(std::span<const ClassId> bound, ClassId root, const Group& group, Descendants* before) const {
  if (options_.cycles == CycleFilter::kNone) return false;
  const auto below = [&](std::span<const ClassId> inputs, ClassId r) {
    return std::any_of(inputs.begin(), inputs.end(), [&](ClassId c) { return c == r || before->contains(c, r); });
  };
  return below(group.bound, root) || std::any_of(group.roots.begin(), group.roots.end(), [&](ClassId r) { return below(bound, r); });
}

bool Runner::apply_multi(size_t rule, IterationReport& report, Descendants* before) {
  if (rules_[rule].group >= 0) return apply_groups(rule, report, before);
  std::vector<JoinInput> inputs;
  for (const Source& s : sources_[rule]) inputs.push_back({found_[s.matcher].get(), s.variable});
  bool changed = false;
  size_t seen = 0;
  std::vector<ClassId> roots(inputs.size());
  RuleMatch match;
  match.matched.resize(inputs.size());
  join(g_, inputs, rules_[rule].variables, rules_[rule].unordered, [&](std::span<const uint32_t> rows, std::span<const ClassId> bound) {
    for (size_t k = 0; k < rows.size(); ++k) {
      roots[k] = inputs[k].matches->root(rows[k]);
      match.matched[k] = inputs[k].matches->matched(rows[k]);
    }
    match.roots = roots;
    match.bound = bound;
    changed |= apply(rule, match, before, report);
    StopReason reason;
    return (++seen & 255) != 0 || !limit(reason);
  });
  return changed;
}

// Efficient: one look at the sets taken before the step, for rules with several roots; what slips through, and what single-root rules do,
// the filter after the step sees to. Vanilla: on the e-graph as it is now, for every match; what a right-hand side reads counts against
// every root, because all of them are united at once.
bool Runner::closes_cycle(size_t rule, const RuleMatch& match, Descendants* before) {
  if (options_.cycles == CycleFilter::kVanilla) {
    std::vector<ClassId> reads;
    if (!rules_[rule].applier->admits(g_, match, reads)) return true;
    g_.rebuild();
    Descendants below(g_);
    for (const ClassId root : match.roots)
      for (const ClassId read : reads)
        if (g_.find(read) == g_.find(root) || below.contains(g_.find(read), g_.find(root))) return true;
    return false;
  }
  if (options_.cycles == CycleFilter::kNone || !before) return false;
  for (const ClassId root : match.roots)
    for (const ClassId input : match.bound)
      if (before->contains(input, root)) return true;
  return false;
}

bool Runner::apply(size_t rule, const RuleMatch& match, Descendants* before, IterationReport& report) {
  ++report.matches;
  ++counts_[rule].matches;
  if (closes_cycle(rule, match, before)) return false;
  std::vector<ClassId> targets;
  if (!rules_[rule].applier->build(g_, match, targets)) return false;
  bool changed = false;
  for (size_t k = 0; k < targets.size(); ++k) changed |= g_.unite(match.roots[k], targets[k]);
  report.applied += changed;
  counts_[rule].applied += changed;
  return changed;
}

size_t Runner::single_step(size_t iteration, IterationReport& report) {
  const double t0 = now();
  const size_t unions = g_.unions(), before = report.applied;
  std::vector<std::pair<size_t, const Matches*>> work;
  StopReason reason;
  for (size_t r = 0; r < rules_.size(); ++r) {
    if (is_multi(r) || !may_search(r, iteration)) continue;
    const Matches& m = matches_of(sources_[r][0].matcher);
    if (may_apply(r, iteration, m.size())) work.emplace_back(r, &m);
    if (limit(reason)) break;
  }
  const double t1 = now();
  for (const auto& [r, m] : work) {
    apply_single(r, *m, report);
    if (limit(reason)) break;
  }
  const double t2 = now();
  for (const Ban& b : bans_) report.banned += b.until > iteration;
  report.search_seconds += t1 - t0;
  report.apply_seconds += t2 - t1;
  settle(report);
  report.unions += g_.unions() - unions;
  return report.applied - before;
}

bool Runner::apply_single(size_t rule, const Matches& matches, IterationReport& report) {
  std::vector<ClassId> bound(rules_[rule].variables, kNone), roots(1);
  const std::vector<int>& variable = sources_[rule][0].variable;
  RuleMatch match;
  match.matched.resize(1);
  bool changed = false;
  for (size_t i = 0; i < matches.size(); ++i) {
    const auto values = matches.bound(i);
    for (size_t v = 0; v < values.size(); ++v) bound[variable[v]] = values[v];
    roots[0] = matches.root(i);
    match.matched[0] = matches.matched(i);
    match.roots = roots;
    match.bound = bound;
    changed |= apply(rule, match, nullptr, report);
  }
  return changed;
}

bool Runner::apply_rule(size_t rule) {
  IterationReport report;
  report.iteration = reports_.size();
  const size_t unions = g_.unions();
  bool changed = false;
  for (const Source& s : sources_[rule]) matches_of(s.matcher);
  Descendants before(g_);
  if (is_multi(rule)) changed = apply_multi(rule, report, &before);
  else changed = apply_single(rule, matches_of(sources_[rule][0].matcher), report);
  settle(report);
  report.nodes = g_.node_count();
  report.classes = g_.class_count();
  report.filtered = g_.filtered_count();
  report.unions = g_.unions() - unions;
  reports_.push_back(report);
  return changed;
}

// ------------------------------------------------------------------------------------------------------------------ scheduler

bool Runner::may_search(size_t rule, size_t iteration) { return options_.scheduler == SchedulerKind::kSimple || iteration >= bans_[rule].until; }

bool Runner::may_apply(size_t rule, size_t iteration, size_t found) {
  if (options_.scheduler == SchedulerKind::kSimple) return true;
  Ban& ban = bans_[rule];
  if (!ban.searched) {                      // egg does not count the first search
    ban.searched = true;
    return true;
  }
  if (found <= options_.match_limit << ban.times) return true;
  ban.until = iteration + (options_.ban_length << ban.times);
  ++ban.times;
  ++counts_[rule].banned;
  return false;
}

// Nothing changed: at a fixed point, unless rules are resting. Then the clock of the bans is put forward to the first of them.
bool Runner::may_stop(size_t iteration) {
  size_t soonest = SIZE_MAX;
  for (const Ban& b : bans_)
    if (b.until > iteration) soonest = std::min(soonest, b.until);
  if (soonest == SIZE_MAX) return true;
  for (Ban& b : bans_)
    if (b.until > iteration) b.until -= soonest - iteration;
  return false;
}

}  // namespace rlflow::egraph
