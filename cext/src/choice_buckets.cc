#include <queue>

#include "choice_field.h"

namespace rlflow {

ChoiceBuckets::ChoiceBuckets(ChoiceField& field) : f_(field), place_(field.n, -1), number_(field.n, -1), logs_(field.n) {
  for (int32_t i = 0; i < f_.n; ++i) logs_[i] = std::log(static_cast<double>(f_.count(i)));
}

int64_t ChoiceBuckets::choose(const std::vector<int32_t>& nodes, double cells, std::mt19937_64& random) {
  nodes_ = nodes;
  connect(nodes);
  line_up(std::log(cells), random);
  message_.clear();
  best_.clear();
  int64_t filled = 0;
  for (Bucket& bucket : buckets_) filled += fill(bucket);
  hand_out();
  for (int32_t i : nodes_) place_[i] = number_[i] = -1;
  return filled;
}

void ChoiceBuckets::connect(const std::vector<int32_t>& nodes) {
  for (size_t k = 0; k < nodes.size(); ++k) number_[nodes[k]] = static_cast<int32_t>(k);
  next_.resize(std::max(next_.size(), nodes.size()));
  for (size_t k = 0; k < nodes.size(); ++k) {
    next_[k].clear();
    for (int32_t at = f_.arc_begin[nodes[k]]; at < f_.arc_begin[nodes[k] + 1]; ++at)
      if (number_[f_.arc[at].other] >= 0) next_[k].push_back(number_[f_.arc[at].other]);
    std::sort(next_[k].begin(), next_[k].end());
  }
  gone_.assign(nodes.size(), 0);
}

// The logarithm of the cells that taking the node out fills.
double ChoiceBuckets::weight(int32_t k) const {
  double sum = logs_[nodes_[k]];
  for (int32_t other : next_[k]) sum += logs_[nodes_[other]];
  return sum;
}

// Which nodes go, in which order, and which are held.
void ChoiceBuckets::line_up(double cells, std::mt19937_64& random) {
  using Entry = std::pair<double, int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  std::uniform_real_distribution<double> noise(0.0, 0.2);
  std::vector<double> known(nodes_.size());
  const auto enter = [&](int32_t k) { queue.push({known[k] = weight(k) + noise(random), k}); };
  for (int32_t k = 0; k < static_cast<int32_t>(nodes_.size()); ++k) enter(k);
  buckets_.clear();
  while (!queue.empty()) {
    const auto [value, k] = queue.top();
    queue.pop();
    if (gone_[k] || value != known[k]) continue;
    const bool held = value > cells + 0.2;
    const int32_t out = held ? heaviest(random) : k;
    const std::vector<int32_t> touched = next_[out];
    if (!held) {
      place_[nodes_[out]] = static_cast<int32_t>(buckets_.size());
      buckets_.push_back({nodes_[out], {}, {}, {}, 0});
      for (int32_t other : touched) buckets_.back().scope.push_back(nodes_[other]);
    }
    remove(out, !held);
    for (int32_t other : touched) enter(other);
    if (held && out != k) queue.push({value, k});
  }
  for (Bucket& bucket : buckets_) std::erase_if(bucket.scope, [&](int32_t i) { return place_[i] < 0; });
  for (Bucket& bucket : buckets_) std::sort(bucket.scope.begin(), bucket.scope.end(), [&](int32_t a, int32_t b) { return place_[a] > place_[b]; });
}

// One of the nodes that make tables large.
int32_t ChoiceBuckets::heaviest(std::mt19937_64& random) const {
  std::uniform_real_distribution<double> share(0.3, 1.0);
  int32_t best = -1;
  double most = -1;
  for (int32_t k = 0; k < static_cast<int32_t>(nodes_.size()); ++k) {
    if (gone_[k]) continue;
    const double value = logs_[nodes_[k]] * static_cast<double>(next_[k].size() + 1) * share(random);
    if (value > most) {
      most = value;
      best = k;
    }
  }
  return best;
}

// Takes a node away; its neighbours become neighbours of each other where they are joined.
void ChoiceBuckets::remove(int32_t k, bool joined) {
  gone_[k] = 1;
  std::vector<int32_t> both;
  for (int32_t other : next_[k]) {
    std::vector<int32_t>& list = next_[other];
    if (joined) {
      both.clear();
      std::set_union(list.begin(), list.end(), next_[k].begin(), next_[k].end(), std::back_inserter(both));
      list.swap(both);
    }
    std::erase_if(list, [&](int32_t one) { return one == k || one == other; });
  }
}

// A node's priced costs beside the held neighbours.
void ChoiceBuckets::own_costs(int32_t i, double* own) const {
  std::copy(f_.priced.begin() + f_.g.choice_begin[i], f_.priced.begin() + f_.g.choice_begin[i + 1], own);
  for (int32_t k = f_.arc_begin[i]; k < f_.arc_begin[i + 1]; ++k) {
    const ChoiceField::Arc& arc = f_.arc[k];
    if (place_[arc.other] >= 0) continue;
    const double* column = f_.column(arc, f_.x[arc.other]);
    for (int32_t a = 0; a < f_.count(i); ++a) own[a] += column[a];
  }
}

// What is added up in a bucket, with steps by each node of its scope; the bucket's own node has step 1.
std::vector<ChoiceBuckets::Factor> ChoiceBuckets::factors(const Bucket& bucket) const {
  std::vector<Factor> out;
  const auto where = [&](int32_t i) { return std::find(bucket.scope.begin(), bucket.scope.end(), i) - bucket.scope.begin(); };
  const int32_t own = f_.count(bucket.node);
  for (int32_t k = f_.arc_begin[bucket.node]; k < f_.arc_begin[bucket.node + 1]; ++k) {
    const ChoiceField::Arc& arc = f_.arc[k];
    if (place_[arc.other] <= place_[bucket.node]) continue;
    out.push_back({f_.column(arc, 0), std::vector<int64_t>(bucket.scope.size(), 0)});
    out.back().stride[where(arc.other)] = own;
  }
  for (int32_t from : bucket.messages) {
    const Bucket& other = buckets_[from];
    out.push_back({message_.data() + other.at, std::vector<int64_t>(bucket.scope.size(), 0)});
    int64_t step = own;
    for (size_t k = other.scope.size() - 1; k-- > 0;) {
      out.back().stride[where(other.scope[k])] = step;
      step *= f_.count(other.scope[k]);
    }
  }
  return out;
}

// The bucket's message: the least sum over its own choices, for all choices of its scope.
int64_t ChoiceBuckets::fill(Bucket& bucket) {
  const int32_t own = f_.count(bucket.node), depth = static_cast<int32_t>(bucket.scope.size());
  std::vector<double> base(own), sum(own);
  own_costs(bucket.node, base.data());
  int64_t cells = 1;
  for (int32_t i : bucket.scope) cells *= f_.count(i);
  bucket.at = static_cast<int64_t>(message_.size());
  message_.resize(bucket.at + cells);
  best_.resize(bucket.at + cells);
  std::vector<Factor> all = factors(bucket);
  std::vector<int32_t> digit(depth, 0);
  for (int64_t cell = 0; cell < cells; ++cell) {
    std::copy(base.begin(), base.end(), sum.begin());
    for (const Factor& factor : all)
      for (int32_t a = 0; a < own; ++a) sum[a] += factor.table[a];
    int32_t least = 0;
    for (int32_t a = 1; a < own; ++a)
      if (sum[a] < sum[least]) least = a;
    message_[bucket.at + cell] = sum[least];
    best_[bucket.at + cell] = least;
    for (int32_t k = depth; k-- > 0;) {
      const bool carried = ++digit[k] == f_.count(bucket.scope[k]);
      for (Factor& factor : all) factor.table += carried ? -factor.stride[k] * (digit[k] - 1) : factor.stride[k];
      if (!carried) break;
      digit[k] = 0;
    }
  }
  if (depth > 0) buckets_[place_[bucket.scope.back()]].messages.push_back(place_[bucket.node]);
  return cells * own;
}

void ChoiceBuckets::hand_out() {
  for (size_t at = buckets_.size(); at-- > 0;) {
    const Bucket& bucket = buckets_[at];
    int64_t cell = 0;
    for (int32_t i : bucket.scope) cell = cell * f_.count(i) + f_.x[i];
    f_.x[bucket.node] = best_[bucket.at + cell];
  }
}

}  // namespace rlflow
