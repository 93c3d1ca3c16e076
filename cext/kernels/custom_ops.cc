// The custom operators of the domain `rlflow.kernels`, and RegisterCustomOps, by which ONNX Runtime loads this library.
//
// NchwcWinograd(X, W, B?, Sum?) -> Y: a 3×3 convolution of stride 1 in the blocked layout of com.microsoft.nchwc. W must be
// constant, [out channels, in channels, 3, 3] in the runtime's blocked order. Attributes: block (8, 16), tile (2, 4), pads
// (top, left, bottom, right), and optional activation with activation_params as ONNX Runtime writes them, and what
// a tuner chooses, chunk and part (WinogradTuning).
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "ort_api.h"
#include "winograd.h"

#if defined(_WIN32)
#define RLFLOW_EXPORT extern "C" __declspec(dllexport)
#else
#define RLFLOW_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace rlflow::kernels {
namespace {

constexpr const char* kDomain = "rlflow.kernels";

// A refusal that came from the runtime; it owns the status.
struct RuntimeError {
  ort::Status* status;
};

// The table of entries, and calls that throw instead of returning a status.
struct Api {
  const void* table;

  template <class Entry, class... Arguments>
  void call(Arguments... arguments) const {
    if (ort::Status* status = Entry::in(table)(arguments...)) throw RuntimeError{status};
  }

  // As `call`; false where it was refused, as the reading of an attribute that is not there is.
  template <class Entry, class... Arguments>
  bool try_call(Arguments... arguments) const {
    ort::Status* status = Entry::in(table)(arguments...);
    if (status) ort::release_status(table, status);
    return !status;
  }

  ort::Status* status(int code, const char* message) const { return ort::CreateStatus::in(table)(code, message); }

  // Runs `body`; what it throws comes back as a status, because no exception may reach the runtime.
  template <class Body>
  ort::Status* guarded(Body body) const noexcept {
    try {
      body();
      return nullptr;
    } catch (const RuntimeError& error) {
      return error.status;
    } catch (const std::invalid_argument& error) {
      return status(ort::kInvalidArgument, error.what());
    } catch (const std::bad_alloc&) {
      return status(ort::kFail, "rlflow.kernels: there is not enough memory for the working buffers.");
    } catch (const std::exception& error) {
      return status(ort::kFail, error.what());
    }
  }

  std::vector<int64_t> shape(const ort::Value* value) const {
    ort::TensorInfo* info = nullptr;
    call<ort::GetTensorTypeAndShape>(value, &info);
    std::size_t rank = 0;
    std::vector<int64_t> sizes;
    bool read = try_call<ort::GetDimensionsCount>(static_cast<const ort::TensorInfo*>(info), &rank);
    if (read) {
      sizes.resize(rank);
      read = try_call<ort::GetDimensions>(static_cast<const ort::TensorInfo*>(info), sizes.data(), rank);
    }
    int type = 0;
    read = read && try_call<ort::GetTensorElementType>(static_cast<const ort::TensorInfo*>(info), &type);
    ort::release_tensor_info(table, info);
    if (!read || type != ort::kFloat) throw std::invalid_argument("NchwcWinograd: a tensor of float32 is expected.");
    return sizes;
  }

  float* data(const ort::Value* value) const {
    void* found = nullptr;
    call<ort::GetTensorMutableData>(const_cast<ort::Value*>(value), &found);
    return static_cast<float*>(found);
  }
};

// --- attributes -------------------------------------------------------------------------------------------------------

struct Attributes {
  Api api;
  const ort::KernelInfo* info;

  int64_t integer(const char* name, int64_t otherwise) const {
    int64_t value = otherwise;
    return api.try_call<ort::GetIntAttribute>(info, name, &value) ? value : otherwise;
  }
  std::vector<int64_t> integers(const char* name) const { return list<ort::GetIntsAttribute, int64_t>(name); }
  std::vector<float> floats(const char* name) const { return list<ort::GetFloatsAttribute, float>(name); }
  std::string text(const char* name) const {
    std::size_t size = 0;
    if (!api.try_call<ort::GetStringAttribute>(info, name, static_cast<char*>(nullptr), &size) || size == 0) return "";
    std::string value(size, '\0');
    if (!api.try_call<ort::GetStringAttribute>(info, name, value.data(), &size)) return "";
    return value.c_str();
  }

 private:
  template <class Entry, class T>
  std::vector<T> list(const char* name) const {
    std::size_t size = 0;
    if (!api.try_call<Entry>(info, name, static_cast<T*>(nullptr), &size) || size == 0) return {};
    std::vector<T> values(size);
    if (!api.try_call<Entry>(info, name, values.data(), &size)) return {};
    return values;
  }
};

Epilogue epilogue_of(const Attributes& attributes) {
  const std::string name = attributes.text("activation");
  const std::vector<float> numbers = attributes.floats("activation_params");
  const auto number = [&](std::size_t at, float otherwise) { return at < numbers.size() ? numbers[at] : otherwise; };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Epilogue found;
  if (name == "Relu") {
    found.activation = Activation::relu;
  } else if (name == "LeakyRelu") {
    found = {nullptr, nullptr, Activation::leaky_relu, number(0, 0.01f), 0};
  } else if (name == "Clip") {
    found = {nullptr, nullptr, Activation::clip, number(0, -infinity), number(1, infinity)};
  } else if (name == "HardSigmoid") {
    found = {nullptr, nullptr, Activation::hard_sigmoid, number(0, 0.2f), number(1, 0.5f)};
  } else if (!name.empty()) {
    throw std::invalid_argument("NchwcWinograd has no activation " + name + ".");
  }
  return found;
}

Padding padding_of(const Attributes& attributes) {
  const std::vector<int64_t> pads = attributes.integers("pads");
  if (pads.empty()) return {};
  if (pads.size() != 4) throw std::invalid_argument("NchwcWinograd: pads has " + std::to_string(pads.size()) + " numbers; expected 4.");
  return {pads[0], pads[1], pads[2], pads[3]};
}

// --- the operator -----------------------------------------------------------------------------------------------------

class RuntimePool : public Workers {
 public:
  RuntimePool(Api api, const ort::KernelContext* context) : api_(api), context_(context) {}
  void run(std::size_t tasks, void (*task)(void*, std::size_t), void* data) const override {
    if (tasks == 1) return task(data, 0);
    api_.call<ort::ParallelFor>(context_, task, tasks, std::size_t{0}, data);
  }

 private:
  Api api_;
  const ort::KernelContext* context_;
};

class WinogradKernel {
 public:
  WinogradKernel(Api api, const ort::KernelInfo* info) : api_(api) {
    const Attributes attributes{api, info};
    epilogue_ = epilogue_of(attributes);
    int constant = 0;
    const ort::Value* weights = nullptr;
    api.call<ort::GetConstantInput>(info, std::size_t{1}, &constant, &weights);
    if (!constant || !weights) throw std::invalid_argument("NchwcWinograd: the weights are not constant.");
    const std::vector<int64_t> sizes = api.shape(weights);
    if (sizes.size() != 4 || sizes[2] != 3 || sizes[3] != 3)
      throw std::invalid_argument("NchwcWinograd: the weights have another shape than [channels, channels, 3, 3].");
    const int64_t tile = attributes.integer("tile", 0), block = attributes.integer("block", 0);
    if ((tile != 2 && tile != 4) || (block != 8 && block != 16))
      throw std::invalid_argument("NchwcWinograd: the attributes tile (2, 4) and block (8, 16) are missing or have other values.");
    convolution_ = std::make_unique<Winograd>(process_isa(), static_cast<int>(tile), static_cast<int>(block), sizes[0], sizes[1],
                                              padding_of(attributes), WinogradTuning{attributes.integer("chunk", 0), attributes.integer("part", 0)});
  }

  ort::Status* compute(ort::KernelContext* context) const noexcept {
    return api_.guarded([&] { run(context); });
  }

 private:
  const ort::Value* input(const ort::KernelContext* context, std::size_t number) const {
    const ort::Value* value = nullptr;
    api_.call<ort::KernelContextGetInput>(context, number, &value);
    return value;
  }

  // The optional input's data; its shape must be `expected`.
  const float* optional(const ort::KernelContext* context, std::size_t number, const std::vector<int64_t>& expected) const {
    const ort::Value* value = input(context, number);
    if (!value) return nullptr;
    if (api_.shape(value) != expected) throw std::invalid_argument("NchwcWinograd: the bias or the residual has another shape than the output.");
    return api_.data(value);
  }

  void run(ort::KernelContext* context) const {
    const ort::Value* x = input(context, 0);
    const std::vector<int64_t> in = api_.shape(x);
    if (in.size() != 4 || in[1] != convolution_->in_channels())
      throw std::invalid_argument("NchwcWinograd: the input has another number of channels than the weights.");
    const std::vector<int64_t> out = {in[0], convolution_->out_channels(), convolution_->out_height(in[2]), convolution_->out_width(in[3])};
    Epilogue epilogue = epilogue_;
    epilogue.bias = optional(context, 2, {out[1]});
    epilogue.sum = optional(context, 3, out);
    ort::Value* y = nullptr;
    api_.call<ort::KernelContextGetOutput>(context, std::size_t{0}, out.data(), out.size(), &y);
    convolution_->run(in[0], in[2], in[3], api_.data(x), api_.data(input(context, 1)), epilogue, api_.data(y), RuntimePool(api_, context));
  }

  Api api_;
  Epilogue epilogue_;
  std::unique_ptr<Winograd> convolution_;
};

ort::Status* RLFLOW_ORT_CALL create(const ort::CustomOp*, const void* table, const ort::KernelInfo* info, void** kernel) {
  const Api api{table};
  return api.guarded([&] { *kernel = new WinogradKernel(api, info); });
}

ort::CustomOp winograd_operator() {
  using ort::CustomOp;
  CustomOp op{};
  op.version = ort::kVersion;
  op.name = [](const CustomOp*) -> const char* { return "NchwcWinograd"; };
  op.provider = [](const CustomOp*) -> const char* { return nullptr; };
  op.input_type = [](const CustomOp*, std::size_t) { return ort::kFloat; };
  op.inputs = [](const CustomOp*) -> std::size_t { return 4; };
  op.output_type = [](const CustomOp*, std::size_t) { return ort::kFloat; };
  op.outputs = [](const CustomOp*) -> std::size_t { return 1; };
  op.destroy = [](void* kernel) { delete static_cast<WinogradKernel*>(kernel); };
  op.input_kind = [](const CustomOp*, std::size_t number) { return number < 2 ? ort::kRequired : ort::kOptional; };
  op.output_kind = [](const CustomOp*, std::size_t) { return ort::kRequired; };
  op.input_memory = [](const CustomOp*, std::size_t) { return 0; };
  op.variadic_input_least = op.variadic_output_least = [](const CustomOp*) { return 1; };
  op.variadic_input_same = op.variadic_output_same = [](const CustomOp*) { return 1; };
  op.create_kernel_v2 = create;
  op.compute_v2 = [](void* kernel, ort::KernelContext* context) { return static_cast<WinogradKernel*>(kernel)->compute(context); };
  op.first_version = [](const CustomOp*) { return 1; };
  op.last_version = [](const CustomOp*) { return 1; };
  return op;
}

// The minor number of a version like "1.31.1"; -1 where it is none.
long minor_version(const char* text) {
  if (!text || std::strncmp(text, "1.", 2) != 0) return -1;
  char* end = nullptr;
  const long minor = std::strtol(text + 2, &end, 10);
  return end == text + 2 ? -1 : minor;
}

}  // namespace
}  // namespace rlflow::kernels

// Called by ONNX Runtime's RegisterCustomOpsLibrary. The domain lives as long as the process, because sessions that were
// made with these options may.
RLFLOW_EXPORT rlflow::ort::Status* RLFLOW_ORT_CALL RegisterCustomOps(rlflow::ort::SessionOptions* options, const rlflow::ort::ApiBase* base) {
  namespace ort = rlflow::ort;
  using rlflow::kernels::Api;
  const char* version = base->version_string();
  if (rlflow::kernels::minor_version(version) < static_cast<long>(ort::kVersion)) {
    const void* oldest = base->get_api(1);  // its first entries make a status
    const std::string sentence =
        std::string("rlflow.kernels needs ONNX Runtime 1.17 or a later 1.x; this is ") + (version ? version : "of an unknown version") + ".";
    return oldest ? Api{oldest}.status(ort::kFail, sentence.c_str()) : nullptr;
  }
  const Api api{base->get_api(ort::kVersion)};
  if (!api.table)
    return Api{base->get_api(1)}.status(ort::kFail, "rlflow.kernels: this ONNX Runtime does not offer the C interface of version 1.17.");
  return api.guarded([&] {
    rlflow::kernels::process_isa();  // refuses what RLFLOW_KERNELS_ISA may not say
    static const ort::CustomOp winograd = rlflow::kernels::winograd_operator();
    ort::CustomOpDomain* domain = nullptr;
    api.call<ort::CreateCustomOpDomain>(rlflow::kernels::kDomain, &domain);
    try {
      api.call<ort::CustomOpDomainAdd>(domain, &winograd);
      api.call<ort::AddCustomOpDomain>(options, domain);
    } catch (...) {
      ort::release_domain(api.table, domain);
      throw;
    }
  });
}
