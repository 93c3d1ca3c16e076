// RowProduct(X, W, Bias?) -> Y: a product with few rows, as of one token. W must be constant, [panels, depth, 64]: the
// columns of the matrix [depth, columns] in panels of 64, the last filled up with zeros. Attributes: columns; and what
// a tuner chooses, ahead: cache lines that are fetched before they are needed.
#include <stdexcept>
#include <string>
#include <vector>

#include "isa.h"
#include "operators.h"

namespace rlflow::kernels {
namespace {

constexpr int64_t kPanelColumns = 64;
constexpr int64_t kAheadLines = 16;

class ProductKernel {
 public:
  static constexpr const char* kName = "RowProduct";
  static constexpr std::size_t kInputs = 3, kRequired = 2, kOutputs = 1;
  const Api api;

  ProductKernel(Api calls, const ort::KernelInfo* info) : api(calls) {
    const Attributes attributes{api, info};
    columns_ = attributes.integer("columns", 0);
    ahead_ = attributes.integer("ahead", kAheadLines);
    const std::vector<int64_t> sizes = constant_shape(api, info, 1, "RowProduct: the weights are not constant.");
    if (sizes.size() != 3 || sizes[1] < 1 || sizes[2] != kPanelColumns)
      throw std::invalid_argument("RowProduct: the weights have another shape than [panels, depth, 64].");
    panels_ = sizes[0];
    depth_ = sizes[1];
    if (columns_ < 1 || (columns_ + kPanelColumns - 1) / kPanelColumns != panels_)
      throw std::invalid_argument("RowProduct: " + std::to_string(columns_) + " columns do not fill " + std::to_string(panels_) + " panels.");
    if (ahead_ < 0 || ahead_ > 4096) throw std::invalid_argument("RowProduct: " + std::to_string(ahead_) + " lines ahead is not between 0 and 4096.");
  }

  void run(ort::KernelContext* context) const {
    const ort::Value* x = api.input(context, 0);
    std::vector<int64_t> sizes = api.shape(x);
    if (sizes.empty() || sizes.back() != depth_)
      throw std::invalid_argument("RowProduct: the rows of the input have another length than the columns of the weights.");
    Product p{1, depth_, columns_, ahead_, api.data(x), api.data(api.input(context, 1)), bias(context), nullptr};
    for (std::size_t axis = 0; axis + 1 < sizes.size(); ++axis) p.rows *= sizes[axis];
    sizes.back() = columns_;
    p.y = api.output(context, 0, sizes);
    if (p.rows == 0) return;
    Job job{p, routines(process_isa()).product};
    const auto task = [](void* data, std::size_t number) {
      const Job& mine = *static_cast<Job*>(data);
      const auto panel = static_cast<int64_t>(number);
      mine.routine(mine.product, panel, panel + 1);
    };
    RuntimePool(api, context).run(static_cast<std::size_t>(panels_), task, &job);
  }

 private:
  struct Job {
    const Product& product;
    void (*routine)(const Product&, int64_t, int64_t);
  };

  const float* bias(const ort::KernelContext* context) const {
    const ort::Value* value = api.input(context, 2);
    if (!value) return nullptr;
    int64_t count = 1;
    for (const int64_t size : api.shape(value)) count *= size;
    if (count != columns_) throw std::invalid_argument("RowProduct: the bias has another size than a row of the output.");
    return api.data(value);
  }

  int64_t columns_, ahead_, panels_, depth_;
};

}  // namespace

const ort::CustomOp& product_operator() {
  static const ort::CustomOp op = operator_of<ProductKernel>();
  return op;
}

}  // namespace rlflow::kernels
