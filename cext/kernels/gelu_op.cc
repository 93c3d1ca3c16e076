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
constexpr int64_t kRun = 256;  // floats of a row where the last axis means nothing

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
    int64_t total = 1;
    for (const int64_t size : sizes) total *= size;
    const int64_t last = sizes.empty() ? 1 : sizes.back();
    const float* bias = api.optional(context, 1, {last}, "RowGelu: the bias has another size than the input's last axis.");
    float* y = api.output(context, 0, sizes);
    if (total == 0) return;
    const int64_t floats = task_rows_ > 0 ? task_rows_ * last : std::max(last, kTaskFloats);
    const int64_t width = bias ? last : kRun;  // a last axis of seven pixels would be no vector
    Job job{{width, bias, api.data(x), y}, routines(process_isa()).gelu, total, std::max<int64_t>(1, floats / width)};
    const int64_t rows = (total + width - 1) / width;
    RuntimePool(api, context).run(static_cast<std::size_t>((rows + job.step - 1) / job.step), run_task, &job);
  }

 private:
  struct Job {
    Gelu gelu;
    void (*routine)(const Gelu&, int64_t, int64_t);
    int64_t total, step;
  };

  // Whole rows, and what is left of the last one.
  static void run_task(void* data, std::size_t number) {
    const Job& mine = *static_cast<Job*>(data);
    const int64_t width = mine.gelu.width, rows = mine.total / width, left = mine.total % width, first = static_cast<int64_t>(number) * mine.step;
    const int64_t end = first + mine.step;
    if (first < rows) mine.routine(mine.gelu, first, std::min(end, rows));
    if (left == 0 || end <= rows) return;
    const Gelu tail{left, nullptr, mine.gelu.x + rows * width, mine.gelu.y + rows * width};
    mine.routine(tail, 0, 1);
  }

  int64_t task_rows_;
};

}  // namespace

const ort::CustomOp& gelu_operator() {
  static const ort::CustomOp op = operator_of<GeluKernel>();
  return op;
}

}  // namespace rlflow::kernels
