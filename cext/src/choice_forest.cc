#include <numeric>
#include <random>

#include "choice_field.h"

namespace rlflow {

ChoiceForest::ChoiceForest(ChoiceField& field) : f_(field), up_(field.g.cost), root_(field.n, 0), inside_(root_), parent_(root_) {}

void ChoiceForest::choose(std::vector<int32_t>& nodes, uint64_t draw) {
  std::mt19937_64 random(draw);
  std::shuffle(nodes.begin(), nodes.end(), random);
  for (int32_t i : nodes) {
    root_[i] = i;
    inside_[i] = 0;
    parent_[i] = -1;
  }
  plant(nodes);
  solve(walk(nodes));
  for (int32_t i : nodes) inside_[i] = 0;
}

// Takes nodes into the forest that close no circle there.
void ChoiceForest::plant(const std::vector<int32_t>& nodes) {
  const auto find = [&](int32_t i) {
    while (root_[i] != i) i = root_[i] = root_[root_[i]];
    return i;
  };
  std::vector<int32_t> trees;
  for (int32_t i : nodes) {
    trees.clear();
    bool circle = false;
    for (int32_t k = f_.arc_begin[i]; k < f_.arc_begin[i + 1] && !circle; ++k) {
      if (!inside_[f_.arc[k].other]) continue;
      const int32_t tree = find(f_.arc[k].other);
      circle = std::find(trees.begin(), trees.end(), tree) != trees.end();
      trees.push_back(tree);
    }
    if (circle) continue;
    inside_[i] = 1;
    for (int32_t tree : trees) root_[tree] = i;
  }
}

// The forest's nodes, each behind its parent.
std::vector<int32_t> ChoiceForest::walk(const std::vector<int32_t>& nodes) {
  std::vector<int32_t> sequence;
  for (int32_t start : nodes) {
    if (inside_[start] != 1) continue;
    inside_[start] = 2;
    sequence.push_back(start);
    for (size_t at = sequence.size() - 1; at < sequence.size(); ++at) {
      const int32_t i = sequence[at];
      for (int32_t k = f_.arc_begin[i]; k < f_.arc_begin[i + 1]; ++k) {
        const int32_t other = f_.arc[k].other;
        if (inside_[other] != 1) continue;
        inside_[other] = 2;
        parent_[other] = i;
        sequence.push_back(other);
      }
    }
  }
  return sequence;
}

const ChoiceField::Arc* ChoiceForest::to_parent(int32_t i) const {
  for (int32_t k = f_.arc_begin[i]; k < f_.arc_begin[i + 1]; ++k)
    if (parent_[i] >= 0 && f_.arc[k].other == parent_[i]) return &f_.arc[k];
  return nullptr;
}

void ChoiceForest::solve(const std::vector<int32_t>& sequence) {
  for (int32_t i : sequence)
    std::copy(f_.priced.begin() + f_.g.choice_begin[i], f_.priced.begin() + f_.g.choice_begin[i + 1], up_.begin() + f_.g.choice_begin[i]);
  for (size_t at = sequence.size(); at-- > 0;) {
    const int32_t i = sequence[at];
    double* own = up_.data() + f_.g.choice_begin[i];
    for (int32_t k = f_.arc_begin[i]; k < f_.arc_begin[i + 1]; ++k) {
      if (inside_[f_.arc[k].other]) continue;
      for (int32_t a = 0; a < f_.count(i); ++a) own[a] += f_.pair(f_.arc[k], a, f_.x[f_.arc[k].other]);
    }
    const ChoiceField::Arc* arc = to_parent(i);
    if (!arc) continue;
    double* above = up_.data() + f_.g.choice_begin[parent_[i]];
    for (int32_t b = 0; b < f_.count(parent_[i]); ++b) {
      double least = ChoiceField::kInfinite;
      for (int32_t a = 0; a < f_.count(i); ++a) least = std::min(least, own[a] + f_.pair(*arc, a, b));
      above[b] += least;
    }
  }
  for (int32_t i : sequence) {
    const double* own = up_.data() + f_.g.choice_begin[i];
    const ChoiceField::Arc* arc = to_parent(i);
    double least = ChoiceField::kInfinite;
    for (int32_t a = 0; a < f_.count(i); ++a) {
      const double value = own[a] + (arc ? f_.pair(*arc, a, f_.x[parent_[i]]) : 0.0);
      if (value < least) {
        least = value;
        f_.x[i] = a;
      }
    }
  }
}

}  // namespace rlflow
