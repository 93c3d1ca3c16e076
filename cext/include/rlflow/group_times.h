// Groups of a network's nodes that run as one kernel each, and what they take; rlflow/placement/fusing.py says the rules in words.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace rlflow {

struct FusedNodes {
  int32_t nodes = 0;
  std::vector<int32_t> input_begin, input;  // CSR: node i reads input[input_begin[i] .. input_begin[i + 1]), nodes before it
  std::vector<double> busy;                 // [nodes]: seconds of its operations
  std::vector<double> bytes;                // [nodes]: of its result
  std::vector<double> weight_bytes;         // [nodes]: 0 where it has no weights
  std::vector<uint8_t> product;             // [nodes]: 1 for a product or a convolution
  int32_t most = 1;                         // nodes of a group, at most
  int32_t operands = 1;                     // values and weights that a group of several nodes reads, at most
  double bytes_per_second = 1.0, overhead = 0.0;
};

class GroupTimes {
 public:
  // Throws Error (usage) for arrays whose lengths or numbers do not fit each other.
  explicit GroupTimes(FusedNodes nodes);
  int32_t nodes() const { return f_.nodes; }
  // The group of each node, named by its first one. Pairs of maker and reader are joined where that is legal, the makers of the highest
  // level first, of equals the first pair; those of level 0 are not. `level`: [nodes].
  std::vector<int32_t> groups(std::span<const int32_t> level) const;
  // Seconds of each group that there is, by its name. Throws Error (usage) for names that are no nodes.
  std::vector<double> seconds(std::span<const int32_t> group) const;

 private:
  struct Joining;
  void check() const;
  FusedNodes f_;
  std::vector<int32_t> reader_begin_, reader_;  // CSR: who reads each node; the pairs of maker and reader in order
};

}  // namespace rlflow
