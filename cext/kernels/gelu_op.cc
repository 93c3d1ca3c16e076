// RowGelu(X, Bias?) -> Y: x/2 · (1 + erf(x/√2)) of x = X + Bias (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016). Bias
// has the elements of the last axis. Attribute: what a tuner chooses, rows: those of a task, 0: by their size.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "isa.h"
#include "operators.h"

namespace rlflow::kernels {
namespace {

constexpr int64_t kTaskFloats = 1 << 14;

class GeluKernel {
 public:
  static constexpr const char* kName = "RowGelu";
  static constexpr std::size_t kInputs = 2, kRequired = 1, kOutputs = 1;
  const Api api;

  GeluKernel(Api calls, const ort::KernelInfo* info) : api(calls), task_rows_(Attributes{api, info}.integer("rows", 0)) {
    if (task_rows_ < 0 || task_rows_ > (1 << 20))
      throw std::invalid_argument("RowGelu: a task of " + std::to_string(task_rows_) + " rows is not between 0 and 1048576.");
  }

  void run(ort::KernelContext* context) const {
    const ort::Value* x = api.input(context, 0);
    const std::vector<int64_t> sizes = api.shape(x);
    int64_t rows = 1;
    for (std::size_t axis = 0; axis + 1 < sizes.size(); ++axis) rows *= sizes[axis];
    const int64_t width = sizes.empty() ? 1 : sizes.back();
    const float* bias = api.optional(context, 1, {width}, "RowGelu: the bias has another size than the input's last axis.");
    float* y = api.output(context, 0, sizes);
    if (rows == 0 || width == 0) return;
    const int64_t step = task_rows_ > 0 ? task_rows_ : std::max<int64_t>(1, kTaskFloats / width);
    Job job{{width, bias, api.data(x), y}, routines(process_isa()).gelu, rows, step};
    const auto task = [](void* data, std::size_t number) {
      const Job& mine = *static_cast<Job*>(data);
      const int64_t first = static_cast<int64_t>(number) * mine.step;
      mine.routine(mine.gelu, first, std::min(first + mine.step, mine.rows));
    };
    RuntimePool(api, context).run(static_cast<std::size_t>((rows + step - 1) / step), task, &job);
  }

 private:
  struct Job {
    Gelu gelu;
    void (*routine)(const Gelu&, int64_t, int64_t);
    int64_t rows, step;
  };

  int64_t task_rows_;
};

}  // namespace

const ort::CustomOp& gelu_operator() {
  static const ort::CustomOp op = operator_of<GeluKernel>();
  return op;
}

}  // namespace rlflow::kernels
