#include "rlflow/egraph_extract.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

#include "rlflow/error.h"

namespace rlflow::egraph {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
// Trees of deep graphs with much sharing cost more than a double can hold; there any choice is as good, but there must be one.
constexpr double kHuge = 1e300;
// Members of all sets of greedy_dag together (256 MB): they grow with the square of a graph's depth. And how many are looked at before
// the nodes are taken in another order (about a second), and then altogether.
constexpr size_t kMaxSets = size_t{1} << 26, kMaxLooks = size_t{1} << 28, kMaxOrderedLooks = size_t{1} << 30;

// By class: the nodes in it, and the nodes that have it as a child (once each).
struct Links {
  std::vector<uint32_t> member_begin, member, user_begin, user;

  explicit Links(const Extraction& e) : member_begin(e.classes + 1, 0), user_begin(e.classes + 1, 0) {
    for (const uint32_t c : e.node_class) ++member_begin[c + 1];
    for (uint32_t c = 0; c < e.classes; ++c) member_begin[c + 1] += member_begin[c];
    member.resize(e.nodes());
    std::vector<uint32_t> cursor(member_begin.begin(), member_begin.end() - 1);
    for (uint32_t n = 0; n < e.nodes(); ++n) member[cursor[e.node_class[n]]++] = n;
    std::vector<uint32_t> last(e.classes, kNone);
    each_use(e, last, [&](uint32_t c, uint32_t) { ++user_begin[c + 1]; });
    for (uint32_t c = 0; c < e.classes; ++c) user_begin[c + 1] += user_begin[c];
    user.resize(user_begin.back());
    cursor.assign(user_begin.begin(), user_begin.end() - 1);
    last.assign(e.classes, kNone);
    each_use(e, last, [&](uint32_t c, uint32_t n) { user[cursor[c]++] = n; });
  }
  std::span<const uint32_t> members(uint32_t c) const { return {member.data() + member_begin[c], member_begin[c + 1] - member_begin[c]}; }
  std::span<const uint32_t> users(uint32_t c) const { return {user.data() + user_begin[c], user_begin[c + 1] - user_begin[c]}; }

 private:
  template <class F>
  static void each_use(const Extraction& e, std::vector<uint32_t>& last, F f) {
    for (uint32_t n = 0; n < e.nodes(); ++n)
      for (const uint32_t c : e.children(n))
        if (last[c] != n) {
          last[c] = n;
          f(c, n);
        }
  }
};

// Nodes that wait to be looked at: first come, first served; or by the rank of their classes, lowest first, where there are ranks.
class Waiting {
 public:
  Waiting(const Extraction& e, std::span<const uint32_t> rank) : e_(e), rank_(rank), queued_(e.nodes(), 0) {}
  void push(uint32_t n) {
    if (queued_[n]) return;
    queued_[n] = 1;
    if (rank_.empty()) first_.push_back(n);
    else ranked_.emplace(rank_[e_.node_class[n]], came_++, n);
  }
  bool pop(uint32_t* n) {
    if (first_.empty() && ranked_.empty()) return false;
    if (rank_.empty()) {
      *n = first_.front();
      first_.pop_front();
    } else {
      *n = std::get<2>(ranked_.top());
      ranked_.pop();
    }
    queued_[*n] = 0;
    return true;
  }

 private:
  using Ranked = std::tuple<uint32_t, uint64_t, uint32_t>;       // rank, place in the order of arrival, node
  const Extraction& e_;
  std::span<const uint32_t> rank_;
  std::vector<uint8_t> queued_;
  std::deque<uint32_t> first_;
  std::priority_queue<Ranked, std::vector<Ranked>, std::greater<>> ranked_;
  uint64_t came_ = 0;
};

// Calls visit(n) for every node, again for the users of a class whenever visit says that the class improved.
template <class Visit>
void to_fixed_point(const Extraction& e, const Links& links, Visit visit, std::span<const uint32_t> rank = {}) {
  Waiting waiting(e, rank);
  for (uint32_t n = 0; n < e.nodes(); ++n)
    if (e.children(n).empty()) waiting.push(n);
  for (uint32_t n = 0; waiting.pop(&n);)
    if (visit(n))
      for (const uint32_t user : links.users(e.node_class[n])) waiting.push(user);
}

// The set of classes below a class, with its sum, is what nodes compete on. `limit`: members of sets to look at; `*over` where it was reached,
// and classes may be without a choice or with an early one.
Choice by_sets(const Extraction& e, const Links& links, std::span<const uint32_t> rank, size_t limit, bool* over) {
  std::vector<std::vector<uint32_t>> below(e.classes);           // the classes that the choice needs, itself included
  std::vector<double> best(e.classes, kInfinite);
  Choice choice(e.classes, kNone);
  std::vector<uint32_t> mark(e.classes, 0), set;
  uint32_t stamp = 0;
  size_t held = 0, looks = 0;
  const auto visit = [&](uint32_t n) {
    const uint32_t cls = e.node_class[n];
    if (held > kMaxSets || looks > limit) return false;
    for (const uint32_t c : e.children(n))
      if (choice[c] == kNone || c == cls) return false;
    double total = e.cost[n];
    set.clear();
    ++stamp;
    for (const uint32_t c : e.children(n)) {
      if (mark[c] == stamp) continue;       // its set is in already
      for (const uint32_t d : below[c]) {
        ++looks;
        if (d == cls) return false;         // a cycle
        if (mark[d] == stamp) continue;
        mark[d] = stamp;
        set.push_back(d);
        total += e.cost[choice[d]];
        if (!(total < best[cls])) return false;
      }
    }
    if (!(total < best[cls])) return false;
    best[cls] = total;
    choice[cls] = n;
    set.push_back(cls);
    held += set.size() - below[cls].size();
    below[cls] = set;
    below[cls].shrink_to_fit();
    return true;
  };
  to_fixed_point(e, links, visit, rank);
  *over = looks > limit;
  return choice;
}

}  // namespace

void Extraction::check() const {
  const auto fail = [](const std::string& what) { throw Error(ErrorKind::kUsage, "this is no extraction problem: " + what); };
  if (node_class.size() != nodes() || child_begin.size() != nodes() + 1) fail("the arrays of nodes differ in length");
  if (child_begin.front() != 0 || child_begin.back() != child.size() || !std::is_sorted(child_begin.begin(), child_begin.end()))
    fail("child_begin does not index child");
  for (const auto* list : {&node_class, &child, &roots})
    for (const uint32_t c : *list)
      if (c >= classes) fail("it names class " + std::to_string(c) + " of " + std::to_string(classes));
  for (const double c : cost)
    if (!(c >= 0) || c == kInfinite) fail("a cost is negative or not finite");
}

Choice greedy_tree(const Extraction& e) {
  const Links links(e);
  std::vector<double> best(e.classes, kInfinite);
  Choice choice(e.classes, kNone);
  to_fixed_point(e, links, [&](uint32_t n) {
    double total = e.cost[n];
    for (const uint32_t c : e.children(n)) total += best[c];
    const uint32_t cls = e.node_class[n];
    if (total < kInfinite || std::none_of(e.children(n).begin(), e.children(n).end(), [&](uint32_t c) { return choice[c] == kNone; }))
      total = std::min(total, kHuge);
    if (!(total < best[cls])) return false;
    best[cls] = total;
    choice[cls] = n;
    return true;
  });
  return choice;
}

// After "greedy_dag" of egraphs-good/extraction-gym. On deep graphs an early improvement is followed through everything above it, again and
// again; there the classes are taken children first, so that what is below has settled.
Choice greedy_dag(const Extraction& e) {
  const Links links(e);
  bool over = false;
  Choice choice = by_sets(e, links, {}, kMaxLooks, &over);
  if (over) choice = by_sets(e, links, components(e), kMaxOrderedLooks, &over);
  // Where the sets grew too large some class has no choice, and the cost is infinite. On a cyclic e-graph sets may be out of date, and the choices close a cycle: then the trees, which never do.
  const Choice trees = greedy_tree(e);
  return choice_cost(e, choice) <= choice_cost(e, trees) ? choice : trees;
}

double choice_cost(const Extraction& e, const Choice& choice) {
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> state(e.classes, kNew);
  std::vector<std::pair<uint32_t, uint32_t>> stack;
  double total = 0;
  const auto open = [&](uint32_t c) {
    if (choice[c] == kNone) return false;
    state[c] = kOpen;
    total += e.cost[choice[c]];
    stack.emplace_back(c, 0);
    return true;
  };
  for (const uint32_t root : e.roots) {
    if (state[root] == kNew && !open(root)) return kInfinite;
    while (!stack.empty()) {
      auto& [c, next] = stack.back();
      const auto children = e.children(choice[c]);
      if (next == children.size()) {
        state[c] = kDone;
        stack.pop_back();
        continue;
      }
      const uint32_t child = children[next++];
      if (state[child] == kOpen || (state[child] == kNew && !open(child))) return kInfinite;
    }
  }
  return total;
}

std::vector<uint32_t> components(const Extraction& e) {          // Tarjan, without recursion
  const Links links(e);
  std::vector<uint32_t> index(e.classes, kNone), low(e.classes, 0), component(e.classes, kNone), path;
  struct Frame {
    uint32_t cls, member, child;
  };
  std::vector<Frame> stack;
  uint32_t counter = 0, found = 0;
  for (uint32_t start = 0; start < e.classes; ++start) {
    if (index[start] != kNone) continue;
    stack.push_back({start, 0, 0});
    index[start] = low[start] = counter++;
    path.push_back(start);
    while (!stack.empty()) {
      Frame& f = stack.back();
      const auto members = links.members(f.cls);
      if (f.member < members.size()) {
        const auto children = e.children(members[f.member]);
        if (f.child == children.size()) {
          ++f.member;
          f.child = 0;
          continue;
        }
        const uint32_t child = children[f.child++];
        if (index[child] == kNone) {
          index[child] = low[child] = counter++;
          path.push_back(child);
          stack.push_back({child, 0, 0});
        } else if (component[child] == kNone) {
          low[f.cls] = std::min(low[f.cls], index[child]);
        }
        continue;
      }
      const uint32_t c = f.cls;
      stack.pop_back();
      if (!stack.empty()) low[stack.back().cls] = std::min(low[stack.back().cls], low[c]);
      if (low[c] != index[c]) continue;
      uint32_t d;
      do {
        d = path.back();
        path.pop_back();
        component[d] = found;
      } while (d != c);
      ++found;
    }
  }
  return component;
}

// ------------------------------------------------------------------------------------------------------------ simplification

namespace {

struct Simplifier {
  const Extraction& full;
  std::vector<uint8_t> node_gone, class_gone;
  std::vector<std::vector<uint32_t>> children;                   // by node: sorted, once each
  std::vector<std::vector<uint32_t>> members;
  std::vector<uint32_t> roots;
  Choice fixed;

  explicit Simplifier(const Extraction& e)
      : full(e), node_gone(e.nodes(), 0), class_gone(e.classes, 0), children(e.nodes()), members(e.classes), roots(e.roots), fixed(e.classes, kNone) {
    const Choice reachable_from_leaves = greedy_tree(e);
    for (uint32_t n = 0; n < e.nodes(); ++n) {
      const auto in = e.children(n);
      children[n].assign(in.begin(), in.end());
      tidy(n);
      for (const uint32_t c : in)
        if (reachable_from_leaves[c] == kNone) node_gone[n] = 1;
      if (!node_gone[n]) members[e.node_class[n]].push_back(n);
    }
  }
  void tidy(uint32_t n) {
    auto& list = children[n];
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    if (std::binary_search(list.begin(), list.end(), full.node_class[n])) node_gone[n] = 1;   // needs itself
  }
  bool drop_gone() {
    bool changed = false;
    for (auto& list : members) changed |= std::erase_if(list, [&](uint32_t n) { return node_gone[n]; }) > 0;
    return changed;
  }
  // Classes with a free leaf, and classes whose only node is free: decided, and replaced by what that node needs.
  bool contract() {
    bool changed = false;
    for (uint32_t c = 0; c < full.classes; ++c) {
      if (class_gone[c]) continue;
      for (const uint32_t n : members[c])
        if (!class_gone[c] && full.cost[n] == 0 && (children[n].empty() || members[c].size() == 1)) {
          class_gone[c] = 1;
          fixed[c] = n;
        }
      changed |= class_gone[c];
    }
    if (!changed) return false;
    for (uint32_t n = 0; n < full.nodes(); ++n)
      if (!node_gone[n]) replace(children[n]), tidy(n);
    replace(roots);
    std::sort(roots.begin(), roots.end());
    roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
    drop_gone();
    return true;
  }
  void replace(std::vector<uint32_t>& list) {
    for (size_t i = 0; i < list.size();) {
      const uint32_t c = list[i];
      if (!class_gone[c]) {
        ++i;
        continue;
      }
      list[i] = list.back();
      list.pop_back();
      if (list.size() > 1000000)
        throw Error(ErrorKind::kUsage, "the extraction problem cannot be simplified: free nodes need each other in a circle");
      for (const uint32_t d : children[fixed[c]])
        if (std::find(list.begin(), list.end(), d) == list.end()) list.push_back(d);
    }
  }
  bool drop_dominated() {
    bool changed = false;
    for (auto& list : members) {
      for (const uint32_t a : list) {
        if (node_gone[a]) continue;
        for (const uint32_t b : list)
          if (a != b && !node_gone[b] && full.cost[a] <= full.cost[b] && children[a].size() <= children[b].size() &&
              (full.cost[a] < full.cost[b] || children[a].size() < children[b].size() || a < b) &&
              std::includes(children[b].begin(), children[b].end(), children[a].begin(), children[a].end())) {
            node_gone[b] = 1;
            changed = true;
          }
      }
    }
    return drop_gone() || changed;
  }
  bool drop_unreached() {
    std::vector<uint8_t> seen(full.classes, 0);
    std::vector<uint32_t> todo;
    const auto reach = [&](uint32_t c) {
      if (!seen[c]) seen[c] = 1, todo.push_back(c);
    };
    for (const uint32_t r : roots) reach(r);
    while (!todo.empty()) {
      const uint32_t c = todo.back();
      todo.pop_back();
      for (const uint32_t n : members[c])
        for (const uint32_t d : children[n]) reach(d);
    }
    bool changed = false;
    for (uint32_t c = 0; c < full.classes; ++c)
      if (!seen[c] && !members[c].empty() && !class_gone[c]) {
        for (const uint32_t n : members[c]) node_gone[n] = 1;
        members[c].clear();
        changed = true;
      }
    return changed;
  }
  Simplified result() const {
    Simplified out;
    out.fixed = fixed;
    std::vector<uint32_t> number(full.classes, kNone);
    for (uint32_t c = 0; c < full.classes; ++c)
      if (!class_gone[c] && !members[c].empty()) {
        number[c] = static_cast<uint32_t>(out.cls.size());
        out.cls.push_back(c);
      }
    out.problem.classes = static_cast<uint32_t>(out.cls.size());
    for (const uint32_t c : out.cls)
      for (const uint32_t n : members[c]) {
        out.node.push_back(n);
        out.problem.node_class.push_back(number[c]);
        out.problem.cost.push_back(full.cost[n]);
        for (const uint32_t d : children[n]) out.problem.child.push_back(number[d]);
        out.problem.child_begin.push_back(static_cast<uint32_t>(out.problem.child.size()));
      }
    for (const uint32_t r : roots) out.problem.roots.push_back(number[r]);
    return out;
  }
};

}  // namespace

Simplified simplify(const Extraction& e) {
  Simplifier s(e);
  for (const uint32_t r : e.roots)
    if (s.members[r].empty())
      throw Error(ErrorKind::kUsage, "nothing can be extracted: class " + std::to_string(r) + ", which is wanted, has no finite term");
  s.drop_gone();
  s.drop_unreached();
  for (bool changed = true; changed;) {
    changed = s.contract();
    changed |= s.drop_dominated();
    changed |= s.drop_unreached();
  }
  return s.result();
}

Choice expand(const Extraction& e, const Simplified& s, const Choice& choice) {
  Choice out = s.fixed;
  out.resize(e.classes, kNone);
  for (size_t c = 0; c < choice.size(); ++c)
    if (choice[c] != kNone) out[s.cls[c]] = s.node[choice[c]];
  return out;
}

Extraction snapshot(const EGraph& g, std::span<const ClassId> roots, std::vector<ENodeId>& node, std::vector<ClassId>& cls) {
  std::vector<uint32_t> number(g.class_capacity(), kNone);
  const auto reach = [&](ClassId c) {
    c = g.find(c);
    if (number[c] == kNone) {
      number[c] = static_cast<uint32_t>(cls.size());
      cls.push_back(c);
    }
    return number[c];
  };
  node.clear();
  cls.clear();
  Extraction out;
  for (const ClassId r : roots) out.roots.push_back(reach(r));
  for (size_t i = 0; i < cls.size(); ++i)
    for (const ENodeId n : g.members(cls[i])) {
      if (g.node(n).filtered) continue;
      node.push_back(n);
      out.node_class.push_back(static_cast<uint32_t>(i));
      out.cost.push_back(0);
      for (const ClassId child : g.children(n)) out.child.push_back(reach(child));
      out.child_begin.push_back(static_cast<uint32_t>(out.child.size()));
    }
  out.classes = static_cast<uint32_t>(cls.size());
  return out;
}

}  // namespace rlflow::egraph
