#include "rlflow/state.h"

#include <algorithm>
#include <chrono>
#include <unordered_set>

namespace rlflow {
namespace {

// Large, so kept from call to call; one per thread that evaluates moves.
struct Workspace {
  ChildGraph child;
  DeltaScratch scratch;
  std::vector<Hash128> unknown;
};
Workspace& workspace() {
  thread_local Workspace w;
  return w;
}

// Adds the time until its end to a row.
class BuildTimer {
 public:
  explicit BuildTimer(RuleProfile::Row* row) : row_(row) {
    if (row_) start_ = std::chrono::steady_clock::now();
  }
  ~BuildTimer() {
    if (!row_) return;
    row_->build_ns += static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - start_).count());
    ++row_->built;
  }
  BuildTimer(const BuildTimer&) = delete;
  BuildTimer& operator=(const BuildTimer&) = delete;

 private:
  RuleProfile::Row* row_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

State::State(GraphPtr graph, RuleSetPtr rules, std::shared_ptr<const Pricer> pricer, int64_t weight_limit, std::shared_ptr<StopToken> stop,
             std::shared_ptr<RuleProfile> profile)
    : graph_(std::move(graph)), rules_(std::move(rules)), pricer_(std::move(pricer)), weight_limit_(weight_limit), stop_(std::move(stop)), profile_(std::move(profile)) {
  matches_ = enumerate_matches(*graph_, *rules_, profile_.get());
}

const RegionMap& State::regions() {
  if (pricer_ && (!mapped_ || prices_seen_ != pricer_->revision())) {
    regions_ = pricer_->map(*graph_);
    mapped_ = true;
    if (evaluated_ && prices_seen_ != pricer_->revision()) {
      prices_seen_ = pricer_->revision();
      price_again();
    }
    prices_seen_ = pricer_->revision();
  }
  return regions_;
}

const Moves& State::moves() {
  regions();
  if (!evaluated_) evaluate_all();
  return moves_;
}

void State::evaluate_all() {
  moves_ = Moves();
  stats_.assign(rules_->size(), {});
  Workspace& w = workspace();
  std::unordered_set<Hash128, Hash128Hasher> seen;
  const size_t count = partial_ ? picked_.size() : matches_.size();
  for (size_t at = 0; at < count; ++at) {
    const uint32_t k = partial_ ? picked_[at] : static_cast<uint32_t>(at);
    if (stopped()) return;  // not marked as evaluated: a stopped search asks no more
    const Match& m = *matches_[k];
    RuleStats& s = stats_[m.rule];
    ++s.matched;
    const BuildTimer timer(profile_ ? &profile_->rows[m.rule] : nullptr);
    if (!w.child.build(graph_, rules_->rule(m.rule), m.bindings)) {
      ++s.refused;
      s.last_refusal = w.child.reason();
      continue;
    }
    const Graph& g = w.child.graph();
    if (!seen.insert(g.digest()).second) {
      ++s.duplicate;
      continue;
    }
    DeltaPrice price;
    w.unknown.clear();
    if (pricer_) price = pricer_->delta(*graph_, regions_, g, w.child.changed(), &w.unknown, w.scratch);
    if (weight_limit_ >= 0 && price.weight_bytes > weight_limit_ && price.weight_bytes > regions_.weight_bytes) {
      ++s.heavy;
      continue;
    }
    ChangeCount c = w.child.count();
    moves_.match.push_back(k);
    moves_.rule.push_back(m.rule);
    moves_.digest.push_back(g.digest());
    moves_.delta_ms.push_back(price.known_ms_delta());
    moves_.unknown.push_back(price.unknown_new + price.unknown_gone);
    moves_.nodes_added.push_back(c.nodes_added);
    moves_.nodes_removed.push_back(c.nodes_removed);
    moves_.edges_added.push_back(c.edges_added);
    moves_.edges_removed.push_back(c.edges_removed);
    moves_.weight_bytes.push_back(price.weight_bytes);
    moves_.touched.insert(moves_.touched.end(), m.bindings.nodes.begin(), m.bindings.nodes.end());
    moves_.touched_begin.push_back(static_cast<uint32_t>(moves_.touched.size()));
    moves_.unknown_signature.insert(moves_.unknown_signature.end(), w.unknown.begin(), w.unknown.end());
    moves_.unknown_begin.push_back(static_cast<uint32_t>(moves_.unknown_signature.size()));
  }
  evaluated_ = true;
}

// New prices have come: only moves that lacked one can change.
void State::price_again() {
  Workspace& w = workspace();
  std::vector<Hash128> signatures;
  std::vector<uint32_t> begin{0};
  for (size_t i = 0; i < moves_.size(); ++i) {
    if (moves_.unknown[i]) {
      const Match& m = *matches_[moves_.match[i]];
      w.unknown.clear();
      if (w.child.build(graph_, rules_->rule(m.rule), m.bindings)) {
        DeltaPrice price = pricer_->delta(*graph_, regions_, w.child.graph(), w.child.changed(), &w.unknown, w.scratch);
        moves_.delta_ms[i] = price.known_ms_delta();
        moves_.unknown[i] = price.unknown_new + price.unknown_gone;
      }
      signatures.insert(signatures.end(), w.unknown.begin(), w.unknown.end());
    }
    begin.push_back(static_cast<uint32_t>(signatures.size()));
  }
  moves_.unknown_signature = std::move(signatures);
  moves_.unknown_begin = std::move(begin);
}

std::shared_ptr<State> State::beside(GraphPtr graph) const {
  std::shared_ptr<State> s(new State);
  s->graph_ = std::move(graph);
  s->rules_ = rules_;
  s->pricer_ = pricer_;
  s->weight_limit_ = weight_limit_;
  s->stop_ = stop_;
  s->profile_ = profile_;
  return s;
}

const Match& State::match_of(size_t move) {
  const Moves& all = moves();
  if (move >= all.size()) throw Error(ErrorKind::kUsage, "move " + std::to_string(move) + " of " + std::to_string(all.size()));
  return *matches_[all.match[move]];
}

std::shared_ptr<State> State::open(size_t move) {
  const Match& m = match_of(move);
  Workspace& w = workspace();
  if (!w.child.build(graph_, rules_->rule(m.rule), m.bindings)) throw Error(ErrorKind::kGraph, "a valid move was refused: " + w.child.reason());
  return built();
}

std::shared_ptr<State> State::take(uint32_t rule, const std::vector<NodeId>& nodes, std::vector<int64_t>* key) {
  Workspace& w = workspace();
  for (const MatchPtr& m : matches_) {
    if (m->rule != rule || !std::equal(m->bindings.nodes.begin(), m->bindings.nodes.end(), nodes.begin(), nodes.end())) continue;
    if (!w.child.build(graph_, rules_->rule(m->rule), m->bindings)) continue;
    *key = match_key(*graph_, *m);
    return built();
  }
  return nullptr;
}

// The state of the child that lies in the workspace.
std::shared_ptr<State> State::built() {
  Workspace& w = workspace();
  auto s = beside(w.child.materialise());
  s->matches_ = update_matches(*graph_, matches_, *s->graph_, w.child.changed(), *rules_, profile_.get());
  return s;
}

GraphPtr State::child(size_t move) {
  const Match& m = match_of(move);
  Workspace& w = workspace();
  if (!w.child.build(graph_, rules_->rule(m.rule), m.bindings)) throw Error(ErrorKind::kGraph, "a valid move was refused: " + w.child.reason());
  return w.child.materialise();
}

std::vector<int64_t> State::key(size_t move) { return match_key(*graph_, match_of(move)); }

std::shared_ptr<State> State::only(std::vector<uint32_t> picked) const {
  auto s = beside(graph_);
  s->matches_ = matches_;
  s->regions_ = regions_;
  s->mapped_ = mapped_;
  s->prices_seen_ = prices_seen_;
  s->partial_ = true;
  s->picked_ = std::move(picked);
  return s;
}

std::shared_ptr<State> State::near(State& base, std::span<const NodeId> nodes) const {
  if (base.known_.empty())
    for (size_t i = 0; i < base.moves().size(); ++i) base.known_.insert(base.match_of(i).signature);
  std::vector<uint8_t> mark(graph_->node_capacity(), 0);
  for (NodeId n : nodes)
    if (n < mark.size()) mark[n] = 1;
  std::vector<uint32_t> picked;
  for (uint32_t k = 0; k < matches_.size(); ++k) {
    const Match& m = *matches_[k];
    const auto& touched = m.bindings.nodes;
    if (!base.known_.contains(m.signature) || std::any_of(touched.begin(), touched.end(), [&](NodeId n) { return mark[n]; })) picked.push_back(k);
  }
  return only(std::move(picked));
}

std::shared_ptr<State> State::same(State& before, size_t move) const {
  const Match& wanted = before.match_of(move);
  std::vector<uint32_t> picked;
  for (uint32_t k = 0; k < matches_.size(); ++k) {
    if (matches_[k].get() == &wanted) return only({k});
    if (matches_[k]->signature == wanted.signature) picked.push_back(k);  // found again, near what changed
  }
  return only(std::move(picked));
}

int64_t State::find(std::string_view rule, const std::vector<int64_t>& wanted) {
  const Moves& all = moves();
  for (size_t i = 0; i < all.size(); ++i)
    if (rules_->rule(all.rule[i]).name() == rule && key(i) == wanted) return static_cast<int64_t>(i);
  // Of matches with one result only the first is a move, and which one is first depends on what was asked for.
  for (const MatchPtr& m : matches_) {
    if (rules_->rule(m->rule).name() != rule || match_key(*graph_, *m) != wanted) continue;
    Workspace& w = workspace();
    if (!w.child.build(graph_, rules_->rule(m->rule), m->bindings)) continue;
    const auto same = std::find(all.digest.begin(), all.digest.end(), w.child.graph().digest());
    if (same != all.digest.end()) return same - all.digest.begin();
  }
  return -1;
}

}  // namespace rlflow
