// Convolutions through cuDNN's graph interface: an operation graph of a convolution with what follows it, engines that cuDNN's
// heuristics propose, and execution plans (private to the back end).
#pragma once
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "api.h"

namespace rlflow::gpu {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Where plans are made for: a GPU at hand by its handle, or one that cuDNN knows by a description alone (tests; nothing runs there).
struct DnnTarget {
  const Api* api = nullptr;
  void* handle = nullptr;
  void* description = nullptr;
};

// What cuDNN says of a status, in words.
std::string dnn_error(const Api& api, int status, const std::string& what);

// One descriptor of the graph interface. Attributes are set, then it is finished and can be used.
class Descriptor {
 public:
  Descriptor(const Api& api, int kind, const char* what);
  Descriptor& set(int attribute, int type, int64_t count, const void* values);
  Descriptor& set(int attribute, const std::vector<int64_t>& values) {
    return set(attribute, kTypeInt64, static_cast<int64_t>(values.size()), values.data());
  }
  Descriptor& set(int attribute, int type, int value) { return set(attribute, type, 1, &value); }
  Descriptor& set(int attribute, const Descriptor& other);
  Descriptor& set_real(int attribute, double value, bool doubles);
  Descriptor& finish();
  int try_finish();                          // the status
  // As many of an attribute's values as there are, up to `most`.
  template <class T>
  std::vector<T> get(int attribute, int type, int64_t most) const;
  void* raw() const { return raw_.get(); }

 private:
  const Api* api_;
  const char* what_;                         // for sentences
  std::shared_ptr<void> raw_;
  std::vector<std::shared_ptr<void>> used_;  // cuDNN may look at what a descriptor was made from
};

struct Activation {                          // y = mode(x), with the numbers that the mode reads
  int mode = kModeRelu;
  double lower = 0, upper = 0, slope = 0, alpha = 1;
  bool clipped = false;                      // above, too
  std::string name;
};

// y = act(conv(x, w) + residual + bias). Its dims are those of the graph, whatever the layout.
struct DnnConvolution {
  int type = kDnnFloat;                      // of what is stored; sums are float, or double for double
  std::vector<int64_t> x, w, y, before, after, stride, dilation;
  bool channels_last = false, exact = false;  // exact: no tensor cores and no narrower numbers
  bool residual = false, bias = false;
  std::vector<Activation> activation;        // none or one
};
enum class Operand : int64_t { kX = 1, kW, kY, kResidual, kBias };

struct DnnPlan {
  std::shared_ptr<Descriptor> plan;
  size_t workspace = 0;
  int64_t engine = 0;
  void execute(const DnnTarget& target, const std::vector<std::pair<Operand, void*>>& operands, void* scratch) const;
};

std::vector<int64_t> dnn_strides(const std::vector<int64_t>& dims, bool channels_last);

// Plans in the order in which cuDNN's heuristics hope for them, at most `most`. `why_not` says why there are none.
std::vector<DnnPlan> plans_for(const DnnTarget& target, const DnnConvolution& c, size_t workspace, size_t most, std::string* why_not);

}  // namespace rlflow::gpu
