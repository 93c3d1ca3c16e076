// What gpu.pxi cannot say in Cython: enumerations, settings by value.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rlflow/gpu.h"

namespace rlflow::bridge {

inline int gpu_storage(int dtype, int precision) { return gpu::storage_dtype(dtype, static_cast<gpu::Precision>(precision)); }
inline std::unique_ptr<gpu::Executable> gpu_executable(std::shared_ptr<gpu::Device> device, GraphPtr graph,
                                                       const std::vector<std::pair<ValueId, std::string>>& constants, int precision, size_t workspace,
                                                       size_t rotate, bool tune) {
  gpu::Settings settings{static_cast<gpu::Precision>(precision), workspace, rotate, tune, "generic"};
  return std::make_unique<gpu::Executable>(std::move(device), std::move(graph), constants, settings);
}

}  // namespace rlflow::bridge
