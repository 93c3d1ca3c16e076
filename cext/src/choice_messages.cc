#include "choice_field.h"

namespace rlflow {

ChoiceMessages::ChoiceMessages(ChoiceField& field) : f_(field), message_begin_(field.g.first.size() + 1, 0) {
  for (size_t e = 0; e < f_.g.first.size(); ++e) message_begin_[e + 1] = message_begin_[e] + f_.count(f_.g.first[e]) + f_.count(f_.g.second[e]);
  message_.assign(message_begin_.back(), 0.0);
}

void ChoiceMessages::forget() { std::fill(message_.begin(), message_.end(), 0.0); }

// The message that comes to a node along an arc of its own, and the one that goes out.
double* ChoiceMessages::in(const ChoiceField::Arc& arc) {
  return message_.data() + message_begin_[arc.edge] + (arc.first ? 0 : f_.count(f_.g.first[arc.edge]));
}

double* ChoiceMessages::out(const ChoiceField::Arc& arc) {
  return message_.data() + message_begin_[arc.edge] + (arc.first ? f_.count(f_.g.first[arc.edge]) : 0);
}

void ChoiceMessages::belief(int32_t i, std::vector<double>& sum) {
  sum.assign(f_.priced.begin() + f_.g.choice_begin[i], f_.priced.begin() + f_.g.choice_begin[i + 1]);
  for (int32_t k = f_.arc_begin[i]; k < f_.arc_begin[i + 1]; ++k) {
    const double* m = in(f_.arc[k]);
    for (size_t a = 0; a < sum.size(); ++a) sum[a] += m[a];
  }
}

// The smallest numbers that were taken off the messages, in sum.
double ChoiceMessages::send(int32_t i, const std::vector<double>& sum, double share, bool forward) {
  double taken = 0;
  for (int32_t k = f_.arc_begin[i]; k < f_.arc_begin[i + 1]; ++k) {
    const ChoiceField::Arc& arc = f_.arc[k];
    if ((arc.other > i) != forward) continue;
    const double* m = in(arc);
    double* to = out(arc);
    const int32_t others = f_.count(arc.other), own = f_.count(i);
    std::fill(to, to + others, ChoiceField::kInfinite);
    for (int32_t a = 0; a < own; ++a) {
      const double base = share * sum[a] - m[a];
      const double* row = f_.row(arc, a);
      for (int32_t b = 0; b < others; ++b) to[b] = std::min(to[b], base + row[b]);
    }
    const double least = *std::min_element(to, to + others);
    for (int32_t b = 0; b < others; ++b) to[b] -= least;
    taken += least;
  }
  return taken;
}

// Messages forth and back; what the costs of now are bounded from below by.
double ChoiceMessages::pass() {
  std::vector<double> sum;
  double total = 0;
  for (const bool forward : {true, false}) {
    total = 0;
    for (int32_t k = 0; k < f_.n; ++k) {
      const int32_t i = forward ? k : f_.n - 1 - k;
      int32_t before = 0, behind = 0;
      for (int32_t at = f_.arc_begin[i]; at < f_.arc_begin[i + 1]; ++at) ++(f_.arc[at].other > i ? behind : before);
      belief(i, sum);
      const double least = *std::min_element(sum.begin(), sum.end());
      for (double& value : sum) value -= least;
      total += least + send(i, sum, 1.0 / std::max({before, behind, 1}), forward);
    }
  }
  for (int32_t s = 0; s < f_.sections; ++s) total -= f_.price[s] * f_.g.room[s];
  return total + f_.g.decided;
}

void ChoiceMessages::decode() {
  std::vector<double> sum;
  for (int32_t i = 0; i < f_.n; ++i) {
    sum.assign(f_.priced.begin() + f_.g.choice_begin[i], f_.priced.begin() + f_.g.choice_begin[i + 1]);
    for (int32_t k = f_.arc_begin[i]; k < f_.arc_begin[i + 1]; ++k) {
      const ChoiceField::Arc& arc = f_.arc[k];
      const double* m = arc.other < i ? f_.column(arc, f_.x[arc.other]) : in(arc);
      for (int32_t a = 0; a < f_.count(i); ++a) sum[a] += m[a];
    }
    f_.x[i] = static_cast<int32_t>(std::min_element(sum.begin(), sum.end()) - sum.begin());
  }
}

}  // namespace rlflow
