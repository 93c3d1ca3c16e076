#include "rlflow/group_times.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "rlflow/error.h"

namespace rlflow {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kUsage, what); }

void expect(bool holds, const char* what) {
  if (!holds) refuse(std::string("Nodes to fuse: ") + what + " does not fit the others.");
}

}  // namespace

// What has been joined so far.
struct GroupTimes::Joining {
  const GroupTimes& whole;
  std::vector<int32_t> group;
  std::vector<std::vector<int32_t>> members;
  std::vector<int32_t> products;
  std::vector<int32_t> seen;  // [nodes]: the question in which a node was met last
  int32_t question = 0;

  explicit Joining(const GroupTimes& times)
      : whole(times), group(times.nodes()), members(times.nodes()), products(times.nodes()), seen(times.nodes(), 0) {
    std::iota(group.begin(), group.end(), 0);
    for (int32_t node = 0; node < times.nodes(); ++node) {
      members[node] = {node};
      products[node] = times.f_.product[node];
    }
  }

  std::span<const int32_t> inputs(int32_t node) const {
    const FusedNodes& f = whole.f_;
    return {f.input.data() + f.input_begin[node], static_cast<size_t>(f.input_begin[node + 1] - f.input_begin[node])};
  }

  std::span<const int32_t> readers(int32_t node) const {
    const std::vector<int32_t>& begin = whole.reader_begin_;
    return {whole.reader_.data() + begin[node], static_cast<size_t>(begin[node + 1] - begin[node])};
  }

  bool within(std::span<const int32_t> nodes, int32_t a, int32_t b) const {
    return std::all_of(nodes.begin(), nodes.end(), [&](int32_t node) { return group[node] == a || group[node] == b; });
  }

  // Whether joining b, which reads a, cannot close a cycle.
  bool is_acyclic(int32_t a, int32_t b) const {
    const auto& from = members[a];
    const auto& to = members[b];
    return std::all_of(from.begin(), from.end(), [&](int32_t node) { return within(readers(node), a, b); }) ||
           std::all_of(to.begin(), to.end(), [&](int32_t node) { return within(inputs(node), a, b); });
  }

  // Values and weights that both together read.
  int32_t operands(int32_t a, int32_t b) {
    int32_t found = 0;
    ++question;
    for (const auto* ones : {&members[a], &members[b]})
      for (int32_t node : *ones) {
        if (whole.f_.weight_bytes[node] > 0) ++found;
        for (int32_t one : inputs(node)) {
          if (group[one] == a || group[one] == b || seen[one] == question) continue;
          seen[one] = question;
          ++found;
        }
      }
    return found;
  }

  void join(int32_t maker, int32_t reader) {
    const int32_t a = group[maker], b = group[reader];
    if (a == b || static_cast<int32_t>(members[a].size() + members[b].size()) > whole.f_.most || products[a] + products[b] > 1) return;
    if (!is_acyclic(a, b) || operands(a, b) > whole.f_.operands) return;
    const int32_t first = std::min(a, b), other = std::max(a, b);
    for (int32_t node : members[other]) group[node] = first;
    members[first].insert(members[first].end(), members[other].begin(), members[other].end());
    members[other].clear();
    products[first] += products[other];
  }
};

GroupTimes::GroupTimes(FusedNodes nodes) : f_(std::move(nodes)) {
  check();
  reader_begin_.assign(f_.nodes + 1, 0);
  for (int32_t one : f_.input) ++reader_begin_[one + 1];
  std::partial_sum(reader_begin_.begin(), reader_begin_.end(), reader_begin_.begin());
  reader_.resize(f_.input.size());
  std::vector<int32_t> at = reader_begin_;
  for (int32_t node = 0; node < f_.nodes; ++node)
    for (int32_t i = f_.input_begin[node]; i < f_.input_begin[node + 1]; ++i) reader_[at[f_.input[i]]++] = node;
}

void GroupTimes::check() const {
  expect(f_.nodes >= 0, "their number");
  const size_t n = f_.nodes;
  expect(f_.input_begin.size() == n + 1 && f_.input_begin.front() == 0 && f_.input_begin.back() == static_cast<int64_t>(f_.input.size()) &&
             std::is_sorted(f_.input_begin.begin(), f_.input_begin.end()),
         "what they read");
  for (int32_t node = 0; node < f_.nodes; ++node)
    for (int32_t i = f_.input_begin[node]; i < f_.input_begin[node + 1]; ++i) expect(f_.input[i] >= 0 && f_.input[i] < node, "what they read");
  expect(f_.busy.size() == n && f_.bytes.size() == n && f_.weight_bytes.size() == n && f_.product.size() == n, "what is said of each");
  expect(f_.bytes_per_second > 0.0, "the pace of the memory");
}

std::vector<int32_t> GroupTimes::groups(std::span<const int32_t> level) const {
  if (level.size() != static_cast<size_t>(f_.nodes)) refuse("Levels are one for each node.");
  std::vector<int32_t> makers;
  for (int32_t node = 0; node < f_.nodes; ++node)
    if (level[node] > 0) makers.push_back(node);
  std::stable_sort(makers.begin(), makers.end(), [&](int32_t a, int32_t b) { return level[a] > level[b]; });
  Joining joining(*this);
  for (int32_t maker : makers)
    for (int32_t reader : joining.readers(maker)) joining.join(maker, reader);
  return joining.group;
}

std::vector<double> GroupTimes::seconds(std::span<const int32_t> group) const {
  const size_t n = f_.nodes;
  if (group.size() != n || std::any_of(group.begin(), group.end(), [this](int32_t g) { return g < 0 || g >= f_.nodes; }))
    refuse("Groups are one for each node, each the number of a node.");
  std::vector<double> busy(n, 0.0), moved(n, 0.0);
  std::vector<uint8_t> there(n, 0);
  std::vector<int32_t> reads(n, -1);  // the value that a group was counted for last: readers of one value are together
  for (size_t node = 0; node < n; ++node) {
    const int32_t mine = group[node];
    there[mine] = 1;
    busy[mine] += f_.busy[node];
    moved[mine] += f_.weight_bytes[node];
    bool leaves = reader_begin_[node] == reader_begin_[node + 1];
    for (int32_t i = reader_begin_[node]; i < reader_begin_[node + 1]; ++i) {
      const int32_t theirs = group[reader_[i]];
      if (theirs == mine) continue;
      leaves = true;
      if (reads[theirs] == static_cast<int32_t>(node)) continue;
      reads[theirs] = static_cast<int32_t>(node);
      moved[theirs] += f_.bytes[node];
    }
    if (leaves) moved[mine] += f_.bytes[node];
  }
  std::vector<double> found;
  for (size_t g = 0; g < n; ++g)
    if (there[g]) found.push_back(std::max(busy[g], moved[g] / f_.bytes_per_second) + f_.overhead);
  return found;
}

}  // namespace rlflow
