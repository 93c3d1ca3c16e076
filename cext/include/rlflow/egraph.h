// An e-graph: many graphs at once, as classes of equal terms. Hash-consing, union-find and deferred rebuilding after
// Willsey et al., "egg: Fast and Extensible Equality Saturation" (POPL 2021); the language and its e-class data are a parameter.
//
// Everything lies in flat arrays with list links inside, so that a clone is a handful of memory copies.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rlflow::egraph {

using ClassId = uint32_t;                   // any id of a class; find() gives its representative, the oldest
using ENodeId = uint32_t;                   // in order of creation; never reused
using DataId = uint32_t;                    // e-class data, interned by the language
inline constexpr uint32_t kNone = UINT32_MAX;

// What the symbols mean: names, and the facts about a class ("analysis"). Data are interned values, compared by id.
class Language {
 public:
  virtual ~Language() = default;
  virtual std::string op_name(uint32_t op) const = 0;
  virtual std::string attr_text(uint32_t op, uint32_t attr) const = 0;
  virtual std::string data_text(DataId data) const = 0;
  // Facts about op{attr}(children); nullopt where the operator does not take such operands. Remembered.
  std::optional<DataId> make(uint32_t op, uint32_t attr, std::span<const DataId> children);
  // Facts about a class that was found to be two. Throws Error(kType) where they must agree and do not.
  virtual DataId merge(DataId kept, DataId absorbed) = 0;

 protected:
  virtual std::optional<DataId> infer(uint32_t op, uint32_t attr, std::span<const DataId> children) = 0;

 private:
  std::unordered_map<std::string, std::optional<DataId>> made_;
  std::string key_;
};

struct ENode {
  uint32_t op, attr;
  uint32_t child_begin;                     // into the pool
  uint16_t arity;
  bool dead;                                // a duplicate of an older node, after congruence
  bool filtered;                            // would close a cycle: not matched, not extracted, kept for hash-consing
  ClassId cls;                              // where it was made; find() it
  uint32_t hash;                            // of op, attr and children as the table knows them
  ENodeId next;                             // in the class's list
};

class EGraph {
 public:
  explicit EGraph(std::shared_ptr<Language> language);
  std::unique_ptr<EGraph> clone() const { return std::make_unique<EGraph>(*this); }

  Language& language() const { return *language_; }
  const std::shared_ptr<Language>& language_ptr() const { return language_; }
  size_t node_count() const { return live_nodes_; }              // exact after rebuild(), an upper bound before
  size_t class_count() const { return live_classes_; }
  size_t node_capacity() const { return nodes_.size(); }
  size_t class_capacity() const { return union_find_.size(); }
  size_t filtered_count() const { return filtered_; }
  size_t unions() const { return unions_; }                      // so far
  const ENode& node(ENodeId n) const { return nodes_[n]; }
  std::span<const ClassId> children(ENodeId n) const { return {pool_.data() + nodes_[n].child_begin, nodes_[n].arity}; }
  ClassId find(ClassId c) const;
  ClassId class_of(ENodeId n) const { return find(nodes_[n].cls); }
  DataId data(ClassId c) const { return data_[find(c)]; }
  bool clean() const { return dirty_.empty() && indexed_; }

  // The node with these children, or kNone. Children need not be canonical.
  ENodeId lookup(uint32_t op, uint32_t attr, std::span<const ClassId> children) const;
  // Adds a term node. Throws Error(kType) where the language refuses it.
  ClassId add(uint32_t op, uint32_t attr, std::span<const ClassId> children);
  // The same with data that the caller knows (it asked the language before).
  ClassId add(uint32_t op, uint32_t attr, std::span<const ClassId> children, DataId data);
  // True if the two were different classes. Congruence waits for rebuild().
  bool unite(ClassId a, ClassId b);
  void rebuild();
  void filter(ENodeId n);                                        // see ENode::filtered

  // The index below is valid after rebuild() until the next add or unite.
  static uint64_t shape_key(uint32_t op, uint32_t arity) { return uint64_t{op} << 32 | arity; }
  static uint64_t shape_key(const ENode& n) { return shape_key(n.op, n.arity); }
  std::span<const ENodeId> members(ClassId canonical) const {    // live nodes, by operator and number of children (shape_key), then age
    return {members_.data() + member_begin_[canonical], member_begin_[canonical + 1] - member_begin_[canonical]};
  }
  std::span<const ClassId> classes_with(uint32_t op, uint32_t arity) const;   // canonical, ascending
  std::vector<ClassId> classes() const;                          // canonical, ascending

  // Checks the invariants that rebuild() promises: every live node is in the table under its canonical form, no two are congruent, the index
  // and the counts are right, the data of a class follow from its nodes. Returns what is wrong, "" if nothing.
  std::string broken_invariant() const;
  std::string term_text(ENodeId n) const;

 private:
  uint32_t hash_of(uint32_t op, uint32_t attr, std::span<const ClassId> canonical) const;
  ENodeId probe(uint32_t hash, uint32_t op, uint32_t attr, std::span<const ClassId> canonical) const;
  void table_insert(ENodeId n);
  void table_erase(ENodeId n);
  void table_grow();
  void canonical_children(std::span<const ClassId> children, std::vector<ClassId>& out) const;
  void link_parent(uint32_t slot, ClassId child);
  void repair(ClassId c);
  void kill(ENodeId duplicate, ENodeId kept);
  void propagate_data();
  void update_data(ENodeId user);
  void build_index();

  std::shared_ptr<Language> language_;
  std::vector<ENode> nodes_;
  std::vector<ClassId> pool_;               // children
  std::vector<ENodeId> slot_node_;          // by pool slot: whose child it is
  std::vector<uint32_t> slot_next_;         // by pool slot: next use of the same class
  mutable std::vector<ClassId> union_find_;
  std::vector<DataId> data_;                // by class
  std::vector<ENodeId> first_, last_;       // by class: member list
  std::vector<uint32_t> first_use_, last_use_;
  std::vector<ENodeId> table_;              // open addressing, linear probing
  size_t table_used_ = 0;
  std::vector<ClassId> dirty_, data_dirty_;
  std::vector<uint32_t> member_begin_;
  std::vector<ENodeId> members_;
  std::vector<std::pair<uint64_t, uint32_t>> shape_begin_;       // by shape_key: where its classes begin
  std::vector<ClassId> shape_classes_;
  size_t live_nodes_ = 0, live_classes_ = 0, filtered_ = 0, unions_ = 0;
  bool indexed_ = false;
  mutable std::vector<ClassId> scratch_;
};

}  // namespace rlflow::egraph
