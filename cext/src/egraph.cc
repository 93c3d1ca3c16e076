#include "rlflow/egraph.h"

#include <algorithm>
#include <cstring>

#include "rlflow/error.h"
#include "rlflow/hash.h"

namespace rlflow::egraph {

std::optional<DataId> Language::make(uint32_t op, uint32_t attr, std::span<const DataId> children) {
  key_.assign(reinterpret_cast<const char*>(&op), sizeof op);
  key_.append(reinterpret_cast<const char*>(&attr), sizeof attr);
  key_.append(reinterpret_cast<const char*>(children.data()), children.size_bytes());
  if (const auto it = made_.find(key_); it != made_.end()) return it->second;
  std::string key = key_;                   // infer() may come back here
  const std::optional<DataId> data = infer(op, attr, children);
  made_.emplace(std::move(key), data);
  return data;
}

EGraph::EGraph(std::shared_ptr<Language> language) : language_(std::move(language)), table_(64, kNone) { build_index(); }

ClassId EGraph::find(ClassId c) const {
  while (union_find_[c] != c) {
    union_find_[c] = union_find_[union_find_[c]];                // path halving
    c = union_find_[c];
  }
  return c;
}

// ------------------------------------------------------------------------------------------------------------- hash-consing

uint32_t EGraph::hash_of(uint32_t op, uint32_t attr, std::span<const ClassId> canonical) const {
  uint64_t h = fold_multiply((uint64_t{op} << 32 | attr) ^ 0x9e3779b97f4a7c15ULL, 0xd1342543de82ef95ULL);
  for (const ClassId c : canonical) h = fold_multiply(h ^ c, 0x9e3779b97f4a7c15ULL) + 0x452821e638d01377ULL;
  return static_cast<uint32_t>(h ^ (h >> 32));
}

ENodeId EGraph::probe(uint32_t hash, uint32_t op, uint32_t attr, std::span<const ClassId> canonical) const {
  const size_t mask = table_.size() - 1;
  for (size_t i = hash & mask; table_[i] != kNone; i = (i + 1) & mask) {
    const ENode& n = nodes_[table_[i]];
    if (n.hash == hash && n.op == op && n.attr == attr && n.arity == canonical.size() &&
        std::equal(canonical.begin(), canonical.end(), pool_.begin() + n.child_begin))
      return table_[i];
  }
  return kNone;
}

void EGraph::table_insert(ENodeId n) {
  if (2 * (table_used_ + 1) > table_.size()) table_grow();
  const size_t mask = table_.size() - 1;
  size_t i = nodes_[n].hash & mask;
  while (table_[i] != kNone) i = (i + 1) & mask;
  table_[i] = n;
  ++table_used_;
}

void EGraph::table_erase(ENodeId n) {
  const size_t mask = table_.size() - 1;
  size_t hole = nodes_[n].hash & mask;
  while (table_[hole] != n) {
    if (table_[hole] == kNone) return;
    hole = (hole + 1) & mask;
  }
  for (size_t i = (hole + 1) & mask; table_[i] != kNone; i = (i + 1) & mask) {  // close the gap: no tombstones
    const size_t home = nodes_[table_[i]].hash & mask;
    if (((i - home) & mask) >= ((i - hole) & mask)) {
      table_[hole] = table_[i];
      hole = i;
    }
  }
  table_[hole] = kNone;
  --table_used_;
}

void EGraph::table_grow() {
  std::vector<ENodeId> old(table_.size() * 2, kNone);
  old.swap(table_);
  table_used_ = 0;
  for (const ENodeId n : old)
    if (n != kNone) table_insert(n);
}

void EGraph::canonical_children(std::span<const ClassId> children, std::vector<ClassId>& out) const {
  out.clear();
  for (const ClassId c : children) out.push_back(find(c));
}

ENodeId EGraph::lookup(uint32_t op, uint32_t attr, std::span<const ClassId> children) const {
  canonical_children(children, scratch_);
  return probe(hash_of(op, attr, scratch_), op, attr, scratch_);
}

ClassId EGraph::add(uint32_t op, uint32_t attr, std::span<const ClassId> children) {
  if (const ENodeId n = lookup(op, attr, children); n != kNone) return class_of(n);
  std::vector<DataId> facts;
  for (const ClassId c : children) facts.push_back(data(c));
  const std::optional<DataId> data = language_->make(op, attr, facts);
  if (!data) {
    std::string what = language_->op_name(op) + " does not take the operands";
    for (const DataId d : facts) what += " " + language_->data_text(d);
    throw Error(ErrorKind::kType, what);
  }
  return add(op, attr, children, *data);
}

ClassId EGraph::add(uint32_t op, uint32_t attr, std::span<const ClassId> children, DataId data) {
  if (const ENodeId n = lookup(op, attr, children); n != kNone) return class_of(n);
  const auto id = static_cast<ENodeId>(nodes_.size());
  const auto cls = static_cast<ClassId>(union_find_.size());
  const auto begin = static_cast<uint32_t>(pool_.size());
  const uint32_t hash = hash_of(op, attr, scratch_);             // scratch_: lookup left the canonical children there
  nodes_.push_back({op, attr, begin, static_cast<uint16_t>(scratch_.size()), false, false, cls, hash, kNone});
  union_find_.push_back(cls);
  data_.push_back(data);
  first_.push_back(id);
  last_.push_back(id);
  first_use_.push_back(kNone);
  last_use_.push_back(kNone);
  for (const ClassId c : scratch_) {
    const auto slot = static_cast<uint32_t>(pool_.size());
    pool_.push_back(c);
    slot_node_.push_back(id);
    slot_next_.push_back(kNone);
    link_parent(slot, c);
  }
  table_insert(id);
  ++live_nodes_;
  ++live_classes_;
  indexed_ = false;
  return cls;
}

void EGraph::link_parent(uint32_t slot, ClassId child) {
  if (last_use_[child] == kNone) first_use_[child] = slot;
  else slot_next_[last_use_[child]] = slot;
  last_use_[child] = slot;
}

// --------------------------------------------------------------------------------------------------------- union and congruence

bool EGraph::unite(ClassId a, ClassId b) {
  a = find(a);
  b = find(b);
  if (a == b) return false;
  if (b < a) std::swap(a, b);               // the older class stays
  const DataId merged = language_->merge(data_[a], data_[b]);    // may throw: before anything is changed
  union_find_[b] = a;
  if (merged != data_[a] || merged != data_[b]) data_dirty_.push_back(a);
  data_[a] = merged;
  nodes_[last_[a]].next = first_[b];
  last_[a] = last_[b];
  if (first_use_[b] != kNone) {
    if (last_use_[a] == kNone) first_use_[a] = first_use_[b];
    else slot_next_[last_use_[a]] = first_use_[b];
    last_use_[a] = last_use_[b];
  }
  dirty_.push_back(a);
  --live_classes_;
  ++unions_;
  indexed_ = false;
  return true;
}

void EGraph::kill(ENodeId duplicate, ENodeId kept) {
  ENode &dup = nodes_[duplicate], &old = nodes_[kept];
  dup.dead = true;
  --live_nodes_;
  if (dup.filtered) {
    --filtered_;
    if (!old.filtered) filter(kept);        // the two are one node now: what closed a cycle still does
  }
}

// Puts the users of a class that grew under their canonical form; users that have become equal are united.
void EGraph::repair(ClassId c) {
  std::vector<ClassId> canonical;
  uint32_t previous = kNone;
  for (uint32_t slot = first_use_[c]; slot != kNone; slot = slot_next_[slot]) {
    const ENodeId n = slot_node_[slot];
    ENode& node = nodes_[n];
    if (node.dead) {                        // drop its use; not at either end, because c may have become a part of another list
      if (previous != kNone && slot_next_[slot] != kNone) slot_next_[previous] = slot_next_[slot];
      continue;
    }
    previous = slot;
    canonical_children(children(n), canonical);
    if (std::equal(canonical.begin(), canonical.end(), pool_.begin() + node.child_begin)) continue;
    table_erase(n);
    std::copy(canonical.begin(), canonical.end(), pool_.begin() + node.child_begin);
    node.hash = hash_of(node.op, node.attr, canonical);
    const ENodeId other = probe(node.hash, node.op, node.attr, canonical);
    if (other == kNone) {
      table_insert(n);
      continue;
    }
    const ENodeId kept = std::min(n, other), duplicate = std::max(n, other);
    if (kept == n) {
      table_erase(other);
      table_insert(n);
    }
    kill(duplicate, kept);
    unite(node.cls, nodes_[other].cls);
  }
}

void EGraph::rebuild() {
  std::vector<ClassId> todo;
  while (!dirty_.empty() || !data_dirty_.empty()) {
    todo.clear();
    for (const ClassId c : dirty_) todo.push_back(find(c));
    dirty_.clear();
    std::sort(todo.begin(), todo.end());
    todo.erase(std::unique(todo.begin(), todo.end()), todo.end());
    for (const ClassId c : todo) {
      // A union in here may make c a part of another class: that class is dirty then, and repairs these uses too.
      if (find(c) == c) repair(c);
    }
    if (dirty_.empty()) propagate_data();
  }
  build_index();
}

// A class whose facts changed may change the facts of its users. Ends because merge() only ever adds facts.
void EGraph::propagate_data() {
  while (!data_dirty_.empty()) {
    const ClassId c = find(data_dirty_.back());
    data_dirty_.pop_back();
    for (uint32_t slot = first_use_[c]; slot != kNone; slot = slot_next_[slot])
      if (!nodes_[slot_node_[slot]].dead) update_data(slot_node_[slot]);
  }
}

void EGraph::update_data(ENodeId n) {
  std::vector<DataId> facts;
  for (const ClassId child : children(n)) facts.push_back(data(child));
  const std::optional<DataId> made = language_->make(nodes_[n].op, nodes_[n].attr, facts);
  if (!made) return;                        // a language whose data are not functions of the class (Tensat's) may say so here
  const ClassId c = class_of(n);
  const DataId merged = language_->merge(data_[c], *made);
  if (merged == data_[c]) return;
  data_[c] = merged;
  data_dirty_.push_back(c);
}

void EGraph::filter(ENodeId n) {
  if (nodes_[n].filtered) return;
  nodes_[n].filtered = true;
  if (!nodes_[n].dead) ++filtered_;
}

// -------------------------------------------------------------------------------------------------------------------- index

void EGraph::build_index() {
  const size_t classes = union_find_.size();
  member_begin_.assign(classes + 1, 0);
  members_.clear();
  std::vector<std::pair<uint64_t, ClassId>> by_shape;
  for (ClassId c = 0; c < classes; ++c) {
    member_begin_[c] = static_cast<uint32_t>(members_.size());
    if (union_find_[c] != c) continue;
    const size_t begin = members_.size();
    ENodeId previous = kNone;
    for (ENodeId n = first_[c]; n != kNone; n = nodes_[n].next) {
      if (nodes_[n].dead && previous != kNone) {                 // unlink (a dead head stays: the list is never empty)
        nodes_[previous].next = nodes_[n].next;
        if (last_[c] == n) last_[c] = previous;
        continue;
      }
      previous = n;
      if (!nodes_[n].dead) members_.push_back(n);
    }
    std::sort(members_.begin() + begin, members_.end(), [&](ENodeId a, ENodeId b) {
      const uint64_t x = shape_key(nodes_[a]), y = shape_key(nodes_[b]);
      return x != y ? x < y : a < b;
    });
    for (size_t i = begin; i < members_.size(); ++i)
      if (const uint64_t key = shape_key(nodes_[members_[i]]); i == begin || key != shape_key(nodes_[members_[i - 1]])) by_shape.emplace_back(key, c);
  }
  member_begin_[classes] = static_cast<uint32_t>(members_.size());
  std::sort(by_shape.begin(), by_shape.end());
  shape_begin_.clear();
  shape_classes_.clear();
  for (const auto& [key, c] : by_shape) {
    if (shape_begin_.empty() || shape_begin_.back().first != key) shape_begin_.emplace_back(key, static_cast<uint32_t>(shape_classes_.size()));
    shape_classes_.push_back(c);
  }
  indexed_ = true;
}

std::span<const ClassId> EGraph::classes_with(uint32_t op, uint32_t arity) const {
  const uint64_t key = shape_key(op, arity);
  const auto it = std::lower_bound(shape_begin_.begin(), shape_begin_.end(), std::pair{key, uint32_t{0}});
  if (it == shape_begin_.end() || it->first != key) return {};
  const size_t end = it + 1 == shape_begin_.end() ? shape_classes_.size() : (it + 1)->second;
  return {shape_classes_.data() + it->second, end - it->second};
}

std::vector<ClassId> EGraph::classes() const {
  std::vector<ClassId> out;
  for (ClassId c = 0; c < union_find_.size(); ++c)
    if (union_find_[c] == c) out.push_back(c);
  return out;
}

// -------------------------------------------------------------------------------------------------------------------- checks

std::string EGraph::term_text(ENodeId n) const {
  const std::string attr = language_->attr_text(nodes_[n].op, nodes_[n].attr);
  std::string out = "(" + language_->op_name(nodes_[n].op) + (attr.empty() ? "" : "{" + attr + "}");
  for (const ClassId c : children(n)) out += " #" + std::to_string(find(c));
  return out + ")";
}

std::string EGraph::broken_invariant() const {
  if (!clean()) return "the e-graph waits for rebuild()";
  size_t live = 0, filtered = 0;
  std::vector<ClassId> canonical;
  for (ENodeId n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n].dead) continue;
    ++live;
    filtered += nodes_[n].filtered;
    canonical_children(children(n), canonical);
    if (!std::equal(canonical.begin(), canonical.end(), children(n).begin())) return "a child of node " + term_text(n) + " is not canonical";
    if (lookup(nodes_[n].op, nodes_[n].attr, canonical) != n) return "node " + term_text(n) + " is not what the table finds: congruence is broken";
    const auto in_class = members(class_of(n));
    if (std::find(in_class.begin(), in_class.end(), n) == in_class.end()) return "node " + term_text(n) + " is not a member of its class";
    for (const ClassId c : canonical) {
      bool used = false;
      for (uint32_t slot = first_use_[c]; slot != kNone && !used; slot = slot_next_[slot]) used = slot_node_[slot] == n;
      if (!used) return "class #" + std::to_string(c) + " does not know its user " + term_text(n);
    }
    std::vector<DataId> facts;
    facts.reserve(canonical.size());
    for (const ClassId c : canonical) facts.push_back(data(c));
    if (const auto made = language_->make(nodes_[n].op, nodes_[n].attr, facts);
        made && language_->merge(data(nodes_[n].cls), *made) != data(nodes_[n].cls))
      return "the data of " + term_text(n) + " are " + language_->data_text(*made) + ", its class says " + language_->data_text(data(nodes_[n].cls));
  }
  if (live != live_nodes_ || live != table_used_ || live != members_.size())
    return "there are " + std::to_string(live) + " live nodes, the e-graph counts " + std::to_string(live_nodes_);
  if (filtered != filtered_) return "there are " + std::to_string(filtered) + " filtered nodes, the e-graph counts " + std::to_string(filtered_);
  if (classes().size() != live_classes_)
    return "there are " + std::to_string(classes().size()) + " classes, the e-graph counts " + std::to_string(live_classes_);
  for (const ClassId c : classes())
    if (members(c).empty()) return "class #" + std::to_string(c) + " is empty";
  return "";
}

}  // namespace rlflow::egraph
