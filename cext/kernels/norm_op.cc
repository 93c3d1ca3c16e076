// RowNorm(X, Scale, Skip?, Shift?, Bias?) -> Y, Sum?: LayerNormalization and its kin over the last axes, as many as Scale's
// elements fill. Sum is X + Skip + Bias, there where the attribute `keeps_sum` is 1. Attributes: epsilon; centred (1: by mean
// and variance, 0: by the root mean square); and what a tuner chooses, rows: those of a task, 0: by their size.
#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "isa.h"
#include "operators.h"

namespace rlflow::kernels {
namespace {

constexpr int64_t kTaskFloats = 1 << 14;  // a task of about four microseconds

int64_t elements(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

// Whether the last axes of `sizes` have `width` elements.
bool ends_in(const std::vector<int64_t>& sizes, int64_t width) {
  int64_t count = 1;
  for (auto size = sizes.rbegin(); size != sizes.rend() && count < width; ++size) count *= *size;
  return count == width;
}

class NormKernel {
 public:
  static constexpr const char* kName = "RowNorm";
  static constexpr std::size_t kInputs = 5, kRequired = 2, kOutputs = 2;
  static constexpr std::size_t kScale = 1, kShift = 3, kBias = 4;
  static constexpr int64_t kUnknown = -1;
  const Api api;

  NormKernel(Api calls, const ort::KernelInfo* info) : api(calls) {
    const Attributes attributes{api, info};
    epsilon_ = attributes.number("epsilon", 1e-5f);
    centred_ = attributes.integer("centred", 1) != 0;
    keeps_sum_ = attributes.integer("keeps_sum", 0) != 0;
    task_rows_ = attributes.integer("rows", 0);
    if (task_rows_ < 0 || task_rows_ > (1 << 20))
      throw std::invalid_argument("RowNorm: a task of " + std::to_string(task_rows_) + " rows is not between 0 and 1048576.");
    for (const std::size_t number : {kScale, kShift, kBias}) {
      const ort::Value* constant = constant_input(api, info, number);
      lengths_[number] = constant ? elements(api.shape(constant)) : kUnknown;
    }
  }

  void run(ort::KernelContext* context) const {
    const ort::Value *x = api.input(context, 0), *scale = api.input(context, kScale);
    const std::vector<int64_t> sizes = api.shape(x);
    const int64_t width = length(scale, kScale), total = elements(sizes);
    if (width <= 0 || !ends_in(sizes, width)) throw std::invalid_argument("RowNorm: the scale does not fill the last axes of the input.");
    Norm n{width,   epsilon_, centred_, api.data(scale), row(context, kShift, width), row(context, kBias, width), api.data(x),
           nullptr, 1,        nullptr,  nullptr};
    if (const ort::Value* skip = api.input(context, 2)) {
      const int64_t added = elements(api.shape(skip));
      if (total > 0 && (added <= 0 || added % width || total % added))
        throw std::invalid_argument("RowNorm: what is added has another size than the rows of the input.");
      n.skip = api.data(skip);
      n.skip_rows = added / width;
    }
    n.y = api.output(context, 0, sizes);
    if (keeps_sum_) n.sum = api.output(context, 1, sizes);
    if (keeps_sum_ && !n.skip && !n.bias) throw std::invalid_argument("RowNorm: there is no sum to keep.");
    run_rows(context, n, total / width);
  }

 private:
  struct Job {
    const Norm& norm;
    void (*routine)(const Norm&, int64_t, int64_t);
    int64_t rows, step;
  };

  // The elements of an input. Those of a constant are counted once: to ask for a shape takes a sixth of a small call.
  int64_t length(const ort::Value* value, std::size_t number) const {
    return lengths_[number] == kUnknown ? elements(api.shape(value)) : lengths_[number];
  }

  // An input with one value for each place of a row, or null.
  const float* row(const ort::KernelContext* context, std::size_t number, int64_t width) const {
    const ort::Value* value = api.input(context, number);
    if (!value) return nullptr;
    if (length(value, number) != width) throw std::invalid_argument("RowNorm: the shift or the bias has another size than the scale.");
    return api.data(value);
  }

  void run_rows(const ort::KernelContext* context, const Norm& norm, int64_t rows) const {
    if (rows == 0) return;
    const int64_t step = task_rows_ > 0 ? task_rows_ : std::max<int64_t>(1, kTaskFloats / norm.width);
    Job job{norm, routines(process_isa()).norm, rows, step};
    const auto task = [](void* data, std::size_t number) {
      const Job& mine = *static_cast<Job*>(data);
      const int64_t first = static_cast<int64_t>(number) * mine.step;
      mine.routine(mine.norm, first, std::min(first + mine.step, mine.rows));
    };
    RuntimePool(api, context).run(static_cast<std::size_t>((rows + step - 1) / step), task, &job);
  }

  float epsilon_;
  bool centred_, keeps_sum_;
  int64_t task_rows_;
  std::array<int64_t, kInputs> lengths_{};
};

}  // namespace

const ort::CustomOp& norm_operator() {
  static const ort::CustomOp op = operator_of<NormKernel>();
  return op;
}

}  // namespace rlflow::kernels
