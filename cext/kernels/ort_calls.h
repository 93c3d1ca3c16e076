// What the custom operators share: calls of ONNX Runtime's C interface that throw, attributes, the runtime's threads,
// and the table of functions that makes a class an operator.
#pragma once
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "ort_api.h"
#include "workers.h"

namespace rlflow::kernels {

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

  // Throws std::invalid_argument where the tensor is not of float32.
  std::vector<int64_t> shape(const ort::Value* value) const;

  float* data(const ort::Value* value) const {
    void* found = nullptr;
    call<ort::GetTensorMutableData>(const_cast<ort::Value*>(value), &found);
    return static_cast<float*>(found);
  }

  const ort::Value* input(const ort::KernelContext* context, std::size_t number) const {
    const ort::Value* value = nullptr;
    call<ort::KernelContextGetInput>(context, number, &value);
    return value;
  }

  // An optional input's data, null where there is none; throws std::invalid_argument where its shape is not `expected`.
  const float* optional(const ort::KernelContext* context, std::size_t number, const std::vector<int64_t>& expected, const char* refusal) const {
    const ort::Value* value = input(context, number);
    if (!value) return nullptr;
    if (shape(value) != expected) throw std::invalid_argument(refusal);
    return data(value);
  }

  float* output(ort::KernelContext* context, std::size_t number, const std::vector<int64_t>& sizes) const {
    ort::Value* value = nullptr;
    call<ort::KernelContextGetOutput>(context, number, sizes.data(), sizes.size(), &value);
    return data(value);
  }
};

// A constant input, null where there is none or where it is not constant.
const ort::Value* constant_input(Api api, const ort::KernelInfo* info, std::size_t number);

// The shape of a constant input; throws std::invalid_argument with `refusal` where it is not constant.
std::vector<int64_t> constant_shape(Api api, const ort::KernelInfo* info, std::size_t number, const char* refusal);

// The attributes of a node; what is not there is as said.
struct Attributes {
  Api api;
  const ort::KernelInfo* info;

  int64_t integer(const char* name, int64_t otherwise) const;
  float number(const char* name, float otherwise) const;
  std::vector<int64_t> integers(const char* name) const;  // empty
  std::vector<float> floats(const char* name) const;  // empty
  std::string text(const char* name) const;  // empty
};

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

// The operator that Kernel is. It has a constructor of (Api, const ort::KernelInfo*), or one that also takes the
// operator, which knows more than this where it is of a derived type; `api` and `run(context)`, and says
// kName, kInputs, of which the first kRequired must be there, and kOutputs, of which the first must.
template <class Kernel>
ort::CustomOp operator_of() {
  using ort::CustomOp;
  CustomOp op{};
  op.version = ort::kVersion;
  op.name = [](const CustomOp*) -> const char* { return Kernel::kName; };
  op.provider = [](const CustomOp*) -> const char* { return nullptr; };
  op.input_type = [](const CustomOp*, std::size_t) { return ort::kFloat; };
  op.inputs = [](const CustomOp*) -> std::size_t { return Kernel::kInputs; };
  op.output_type = [](const CustomOp*, std::size_t) { return ort::kFloat; };
  op.outputs = [](const CustomOp*) -> std::size_t { return Kernel::kOutputs; };
  op.destroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  op.input_kind = [](const CustomOp*, std::size_t number) { return number < Kernel::kRequired ? ort::kRequired : ort::kOptional; };
  op.output_kind = [](const CustomOp*, std::size_t number) { return number == 0 ? ort::kRequired : ort::kOptional; };
  op.input_memory = [](const CustomOp*, std::size_t) { return 0; };
  op.variadic_input_least = op.variadic_output_least = [](const CustomOp*) { return 1; };
  op.variadic_input_same = op.variadic_output_same = [](const CustomOp*) { return 1; };
  op.create_kernel_v2 = [](const CustomOp* self, const void* table, const ort::KernelInfo* info, void** kernel) -> ort::Status* {
    const Api api{table};
    return api.guarded([&] {
      if constexpr (std::is_constructible_v<Kernel, Api, const ort::KernelInfo*>) *kernel = new Kernel(api, info);
      else *kernel = new Kernel(api, info, *self);
    });
  };
  op.compute_v2 = [](void* kernel, ort::KernelContext* context) -> ort::Status* {
    const Kernel& self = *static_cast<Kernel*>(kernel);
    return self.api.guarded([&] { self.run(context); });
  };
  op.first_version = op.last_version = [](const CustomOp*) { return 1; };
  return op;
}

}  // namespace rlflow::kernels
