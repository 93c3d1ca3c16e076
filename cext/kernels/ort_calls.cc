#include "ort_calls.h"

#include <algorithm>

namespace rlflow::kernels {
namespace {

template <class Entry, class T>
std::vector<T> list(const Attributes& from, const char* name) {
  std::size_t size = 0;
  if (!from.api.try_call<Entry>(from.info, name, static_cast<T*>(nullptr), &size) || size == 0) return {};
  std::vector<T> values(size);
  if (!from.api.try_call<Entry>(from.info, name, values.data(), &size)) return {};
  return values;
}

}  // namespace

std::vector<int64_t> Api::shape(const ort::Value* value) const {
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
  if (!read || type != ort::kFloat) throw std::invalid_argument("rlflow.kernels: a tensor of float32 is expected.");
  return sizes;
}

const ort::Value* constant_input(Api api, const ort::KernelInfo* info, std::size_t number) {
  int constant = 0;
  const ort::Value* value = nullptr;
  const bool asked = api.try_call<ort::GetConstantInput>(info, number, &constant, &value);
  return asked && constant ? value : nullptr;
}

std::vector<int64_t> constant_shape(Api api, const ort::KernelInfo* info, std::size_t number, const char* refusal) {
  const ort::Value* value = constant_input(api, info, number);
  if (!value) throw std::invalid_argument(refusal);
  return api.shape(value);
}

int64_t Attributes::integer(const char* name, int64_t otherwise) const {
  int64_t value = otherwise;
  return api.try_call<ort::GetIntAttribute>(info, name, &value) ? value : otherwise;
}

float Attributes::number(const char* name, float otherwise) const {
  float value = otherwise;
  return api.try_call<ort::GetFloatAttribute>(info, name, &value) ? value : otherwise;
}

std::vector<int64_t> Attributes::integers(const char* name) const { return list<ort::GetIntsAttribute, int64_t>(*this, name); }

std::vector<float> Attributes::floats(const char* name) const { return list<ort::GetFloatsAttribute, float>(*this, name); }

std::string Attributes::text(const char* name) const {
  std::size_t size = 0;
  if (!api.try_call<ort::GetStringAttribute>(info, name, static_cast<char*>(nullptr), &size) || size == 0) return "";
  std::string value(size, '\0');
  if (!api.try_call<ort::GetStringAttribute>(info, name, value.data(), &size)) return "";
  value.resize(std::min(value.find('\0'), size));  // some runtimes count the end
  return value;
}

}  // namespace rlflow::kernels
