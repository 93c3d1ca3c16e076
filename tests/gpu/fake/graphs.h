// Descriptors of the stand-in's graph interface, and what they mean.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common.h"

namespace fake {

struct Engine {
  int64_t index = 0, workspace = 0;
  double microseconds = 0;
  bool fails = false;                        // its plans cannot be finished
  std::vector<int> notes, behaviour;
};

struct Value {
  int type = 0;
  int64_t count = 0;
  std::string bytes;
};
struct Described {                           // one descriptor
  int kind = 0;
  bool finished = false;
  std::map<int, Value> values;
  std::vector<std::shared_ptr<const Engine>> results;           // of a heuristic
  std::shared_ptr<const Engine> engine;      // of an engine, a configuration or a plan
  const Described* graph = nullptr;          // what it is for

  bool has(int attribute) const { return values.contains(attribute); }
  template <class T>
  std::vector<T> all(int attribute) const {
    const Value& v = values.at(attribute);
    const T* first = reinterpret_cast<const T*>(v.bytes.data());
    return {first, first + v.count};
  }
  std::vector<int64_t> ints(int attribute) const { return all<int64_t>(attribute); }
  std::vector<void*> pointers(int attribute) const { return all<void*>(attribute); }
  int number(int attribute) const { return all<int>(attribute).at(0); }
  const Described* one(int attribute) const { return all<const Described*>(attribute).at(0); }
  double real(int attribute, double usual) const {
    if (!has(attribute)) return usual;
    return values.at(attribute).type == kTypeDouble ? all<double>(attribute).at(0) : static_cast<double>(all<float>(attribute).at(0));
  }
};

// What is wrong with a descriptor that has all its attributes; empty where nothing is.
std::string wrong_tensor(const Described& d);
std::string wrong_convolution(const Described& d);
std::string wrong_pointwise(const Described& d);
std::string wrong_convolve(const Described& d);
std::string wrong_apply(const Described& d);
std::string wrong_graph(const Described& d);
std::string wrong_pack(const Described& d);

// The engines that a heuristic proposes for a graph.
std::vector<std::shared_ptr<const Engine>> engines_for(const Described& graph, int mode);

// A tensor, and the operations of a graph with everything that they need when they run.
struct Shape {
  int64_t id = 0;
  int type = 0;
  bool is_virtual = false;
  std::vector<int64_t> dims, strides;
  int64_t count() const;
  int64_t offset(int64_t element) const;     // of an element in the order of the dims
};
struct Call {
  Shape x, w, y, b;
  std::vector<int64_t> before, stride, dilation;                // of a convolution
  bool convolves = false, has_b = false;
  int mode = 0;
  double alpha = 1, beta = 0, lower = 0, upper = 0, slope = 0, elu = 1;
};
using Operands = std::map<int64_t, void*>;
std::vector<Call> calls_of(const Described& graph);
std::string bind(const Described& graph, const Described& pack, Operands& operands);
void compute(const std::vector<Call>& calls, const Operands& operands);

}  // namespace fake
