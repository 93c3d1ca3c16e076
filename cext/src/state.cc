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
    : graph_(std::move(graph)),
      rules_(std::move(rules)),
      pricer_(std::move(pricer)),
      weight_limit_(weight_limit),
      stop_(std::move(stop)),
      profile_(std::move(profile)) {
  matches_ = std::make_shared<const std::vector<MatchPtr>>(enumerate_matches(*graph_, *rules_, profile_.get()));
}

const std::vector<MatchPtr>& State::matches() const {
  if (!matches_) {
    matches_ = std::make_shared<const std::vector<MatchPtr>>(
        update_matches(*earlier_.graph, *earlier_.matches, *graph_, earlier_.changed, *rules_, profile_.get()));
    earlier_ = {};
  }
  return *matches_;
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
  const std::vector<MatchPtr>& all = candidates();
  for (uint32_t k = 0; k < all.size(); ++k) {
    if (stopped()) return;  // not marked as evaluated: a stopped search asks no more
    const Match& m = *all[k];
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
      const Match& m = *candidates()[moves_.match[i]];
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
  return *candidates()[all.match[move]];
}

// Makes the child in the workspace; false where the rewrite is refused.
bool State::build(const Match& m) { return workspace().child.build(graph_, rules_->rule(m.rule), m.bindings); }

std::shared_ptr<State> State::open(size_t move) {
  if (!build(match_of(move))) throw Error(ErrorKind::kGraph, "a valid move was refused: " + workspace().child.reason());
  auto s = built();
  if (!partial_) s->matches();  // from a part one goes on to the next rewrite
  return s;
}

std::shared_ptr<State> State::take(uint32_t rule, const std::vector<NodeId>& nodes, std::vector<int64_t>* key) {
  for (NodeId root : nodes)
    for (const MatchPtr& m : matches_at(*graph_, *rules_, rule, root)) {
      const auto& touched = m->bindings.nodes;
      if (!std::equal(touched.begin(), touched.end(), nodes.begin(), nodes.end()) || !build(*m)) continue;
      *key = match_key(*graph_, *m);
      return built();
    }
  return nullptr;
}

std::shared_ptr<State> State::step(std::string_view rule, const std::vector<int64_t>& key) {
  const auto order = graph_->order();
  if (key.empty() || key[0] < 0 || key[0] >= static_cast<int64_t>(order.size())) return nullptr;
  for (uint32_t r = 0; r < rules_->size(); ++r) {
    if (rules_->rule(r).name() != rule) continue;
    for (const MatchPtr& m : matches_at(*graph_, *rules_, r, order[key[0]]))
      if (match_key(*graph_, *m) == key && build(*m)) return built();
  }
  return nullptr;
}

// The state of the child that lies in the workspace; its matches are looked for when somebody asks.
std::shared_ptr<State> State::built() const {
  Workspace& w = workspace();
  auto s = beside(w.child.materialise());
  const auto changed = w.child.changed();
  s->earlier_ = matches_ ? Earlier{graph_, matches_, {}} : earlier_;
  s->earlier_.changed.insert(s->earlier_.changed.end(), changed.begin(), changed.end());
  return s;
}

GraphPtr State::child(size_t move) {
  if (!build(match_of(move))) throw Error(ErrorKind::kGraph, "a valid move was refused: " + workspace().child.reason());
  return workspace().child.materialise();
}

std::vector<int64_t> State::key(size_t move) { return match_key(*graph_, match_of(move)); }

std::shared_ptr<State> State::only(std::vector<MatchPtr> picked) const {
  auto s = beside(graph_);
  s->matches_ = matches_;
  s->earlier_ = earlier_;
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
  std::vector<MatchPtr> picked;
  for (const MatchPtr& m : matches()) {
    const auto& touched = m->bindings.nodes;
    if (!base.known_.contains(m->signature) || std::any_of(touched.begin(), touched.end(), [&](NodeId n) { return mark[n]; })) picked.push_back(m);
  }
  return only(std::move(picked));
}

std::shared_ptr<State> State::same(State& before, size_t move) const {
  const Match& wanted = before.match_of(move);
  std::vector<MatchPtr> picked;
  for (const MatchPtr& m : matches_at(*graph_, *rules_, wanted.rule, wanted.root())) {
    if (m->signature != wanted.signature) continue;
    if (m->bindings.values == wanted.bindings.values && m->bindings.sequences == wanted.bindings.sequences) return only({m});
    picked.push_back(m);  // it reads something else by now
  }
  return only(std::move(picked));
}

int64_t State::find(std::string_view rule, const std::vector<int64_t>& wanted) {
  const Moves& all = moves();
  for (size_t i = 0; i < all.size(); ++i)
    if (rules_->rule(all.rule[i]).name() == rule && key(i) == wanted) return static_cast<int64_t>(i);
  // Of matches with one result only the first is a move, and which one is first depends on what was asked for.
  for (const MatchPtr& m : matches()) {
    if (rules_->rule(m->rule).name() != rule || match_key(*graph_, *m) != wanted) continue;
    if (!build(*m)) continue;
    const auto same = std::find(all.digest.begin(), all.digest.end(), workspace().child.graph().digest());
    if (same != all.digest.end()) return same - all.digest.begin();
  }
  return -1;
}

}  // namespace rlflow
