// The kernels by their names.
#include <cstring>

#include "kernels.h"

namespace host {
namespace {

template <class Fixed>
std::string launch_as(const long long* fixed, const Pointers& p, unsigned grid, unsigned threads, const std::string& order) {
  Fixed parameters;
  std::memcpy(&parameters, fixed, sizeof parameters);
  return run_grid(grid, threads, order, [&] { run(p, parameters); });
}

}  // namespace

std::string launch(const std::string& name, const long long* fixed, const void* pointers, unsigned grid, unsigned threads, const std::string& order) {
  const Pointers& p = *static_cast<const Pointers*>(pointers);
  if (name == "Pointwise") return launch_as<Pointwise>(fixed, p, grid, threads, order);
  if (name == "Transposition") return launch_as<Transposition>(fixed, p, grid, threads, order);
  if (name == "Reducing") return launch_as<Reducing>(fixed, p, grid, threads, order);
  if (name == "Softening") return launch_as<Softening>(fixed, p, grid, threads, order);
  if (name == "Normalising") return launch_as<Normalising>(fixed, p, grid, threads, order);
  if (name == "Gathering") return launch_as<Gathering>(fixed, p, grid, threads, order);
  if (name == "Joining") return launch_as<Joining>(fixed, p, grid, threads, order);
  if (name == "Remapping") return launch_as<Remapping>(fixed, p, grid, threads, order);
  if (name == "Pooling") return launch_as<Pooling>(fixed, p, grid, threads, order);
  return "there is no kernel " + name;
}

}  // namespace host
