// What enumerate.pxi cannot say in Cython: records as bytes, and the walk with a stop token.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rlflow/enumerate.h"
#include "rlflow/error.h"
#include "rlflow/state.h"

namespace rlflow::bridge {

using enumeration::Counts;
using enumeration::Enumerator;
using enumeration::Pair;
using enumeration::PairCounts;
using enumeration::Record;
using enumeration::Space;

inline void add_input(Space& s, int family, bool weight, const std::vector<std::vector<int64_t>>& shapes, const std::vector<uint64_t>& residues,
                      const std::vector<double>& reals) {
  enumeration::Input input;
  input.family = static_cast<uint8_t>(family);
  input.weight = weight;
  for (size_t w = 0; w < shapes.size() && w < enumeration::kMaxWorlds; ++w) {
    enumeration::Shape& shape = input.value.shape[w];
    if (shapes[w].size() > enumeration::kMaxRank) throw Error(ErrorKind::kUsage, "an input of the enumeration has at most 5 axes");
    for (int64_t extent : shapes[w]) shape.extent[shape.rank++] = static_cast<int32_t>(extent);
    input.value.begin[w + 1] = input.value.begin[w] + static_cast<uint32_t>(shape.count());
  }
  if (static_cast<int>(shapes.size()) != s.worlds || residues.size() != input.value.begin[s.worlds] || reals.size() != residues.size())
    throw Error(ErrorKind::kUsage, "an input of the enumeration has a shape for each world and an element for each place in them");
  input.value.residue = residues;
  input.value.real = reals;
  s.inputs.push_back(std::move(input));
}

inline void add_template(Space& s, const std::string& kind, int outputs, bool commutative, const std::vector<int>& operands, uint64_t key,
                         const std::vector<std::vector<int64_t>>& attributes, const std::string& op, const std::vector<AttrSet>& attrs) {
  enumeration::Template t;
  t.kind = enumeration::kind_of(kind);
  t.arity = static_cast<uint8_t>(operands.size());
  t.outputs = static_cast<uint8_t>(outputs);
  t.commutative = commutative;
  for (size_t k = 0; k < operands.size() && k < t.operand.size(); ++k) t.operand[k] = static_cast<enumeration::Operand>(operands[k]);
  t.key = key;
  t.attributes = attributes;
  t.op = find_op(op);
  t.attrs = attrs;
  if (attrs.size() != attributes.size()) throw Error(ErrorKind::kUsage, "a template has attributes for each world");
  s.templates.push_back(std::move(t));
}

inline std::shared_ptr<Enumerator> make_enumerator(Space s) { return std::make_shared<Enumerator>(std::move(s)); }

inline bool run_branch(const Enumerator& e, size_t branch, size_t limit, const StopToken* stop, std::vector<Record>& out, Counts& counts) {
  return e.run_branch(branch, limit, stop ? &stop->stop : nullptr, out, counts);
}
inline std::vector<Pair> find_pairs(const Enumerator& e, std::vector<Record>& records, PairCounts& counts, const StopToken* stop) {
  return enumeration::find_pairs(e, records, counts, stop ? &stop->stop : nullptr);
}

template <class T>
inline std::string to_bytes(const std::vector<T>& items) {
  return std::string(reinterpret_cast<const char*>(items.data()), items.size() * sizeof(T));
}
inline void add_records(std::vector<Record>& out, const std::string& bytes) {
  if (bytes.size() % sizeof(Record)) throw Error(ErrorKind::kUsage, "the bytes are no whole number of enumerated graphs");
  size_t old = out.size();
  out.resize(old + bytes.size() / sizeof(Record));
  std::memcpy(out.data() + old, bytes.data(), bytes.size());
}

}  // namespace rlflow::bridge
