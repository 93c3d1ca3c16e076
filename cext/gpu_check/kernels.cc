// Compiles every kernel of our own with NVRTC, which needs no GPU, for every element type: a program for `make gpu-compile`.
//   kernels FOLDER-WITH-NVRTC ARCHITECTURE DUMP-FOLDER
// A kernel that does not compile is printed with the compiler's words. Sources are left in the dump folder, for nvcc.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "cudnn/kernels.h"
#include "cudnn/libraries.h"

using namespace rlflow::gpu;
using namespace rlflow::gpu::kernels;

namespace {

struct Case {
  std::string name, source;
};
std::vector<Case> cases;

template <class Fixed>
void add(const Fixed& fixed, const std::string& variant) {
  std::string name = std::string(kernel_name<Fixed>()) + "-" + variant;
  cases.push_back({name, kernel_source(kernel_name<Fixed>(), reinterpret_cast<const long long*>(&fixed), sizeof fixed / sizeof(long long))});
}

void make_cases() {
  const long long kinds[] = {kF32, kF16, kBF16, kF64, kI64, kI32, kBool, kU8, kI8};
  for (long long kind : kinds) {
    std::string type = std::to_string(kind);
    bool wide = kind == kF64 || kind == kI64 || kind == kI32;
    Pointwise p{};
    p.count = 6 * 128 * 768, p.wide = wide, p.dims = 3, p.ins = 2, p.outs = 2;
    p.extent[0] = 6, p.extent[1] = 128, p.extent[2] = 768;
    p.in[0] = {kind, 0, {128 * 768, 768, 1}}, p.in[1] = {kind, 5, {0, 0, 1}};
    p.out[0] = {kind, 0, {128 * 768, 768, 1}}, p.out[1] = {kBool, 0, {128 * 768, 768, 1}};
    for (long long op = kConst; op <= kSelect; ++op)
      p.code[p.steps] = {op, op == kConst ? 0 : 2 + p.steps - 1, 1, 0, 0x3ff0000000000000ll}, ++p.steps;
    p.result[0] = 2 + p.steps - 1, p.result[1] = 2 + p.steps - 2;
    p.lanes = 1;
    add(p, "every-operation-" + type);
    p.steps = 3, p.result[0] = 4, p.result[1] = 3, p.in[1].offset = 0, p.lanes = 4;
    add(p, "lanes-" + type);
    p.count = kGiven, p.dims = 1, p.extent[0] = 1, p.ins = 1, p.in[0].stride[0] = p.out[0].stride[0] = p.out[1].stride[0] = 1;
    add(p, "any-count-" + type);
    Reducing r{};
    r.dtype = r.out_dtype = kind, r.wide = wide || kind == kBool || kind == kU8 || kind == kI8;
    r.outputs = 128, r.count = 768, r.kept = r.reduced = 1, r.kept_extent[0] = 128, r.kept_stride[0] = 768, r.reduced_extent[0] = 768,
    r.reduced_stride[0] = 1;
    for (long long how = kSum; how <= kArgMinLast; ++how) {
      r.kind = how, r.together = 1;
      add(r, std::to_string(how) + "-" + type);
      if (how != kSum && how != kMaximum) continue;
      r.together = kGiven;
      add(r, std::to_string(how) + "-block-" + type);
      r.together = 32;
      add(r, std::to_string(how) + "-warp-" + type);
    }
    Remapping m{};
    m.dtype = kind, m.count = 100, m.dims = 2, m.extent[0] = m.extent[1] = 10, m.start[1] = 10, m.fill = INT64_MIN;
    add(m, type);
  }
  for (long long kind : {kF32, kF16, kBF16}) {
    std::string type = std::to_string(kind);
    add(Softening{kind, 128, 768, 1, 0, 1}, type);
    add(Softening{kind, 128, 7680, 1, 0, 0}, "block-" + type);
    add(Softening{kind, 128, 768, 3, 1, 1}, "log-" + type);
    add(Normalising{kind, 128, 768, 1, 0, 1, 0x3ee4f8b588e368f1ll, 1, 1}, type);
    add(Normalising{kind, 64, 49, 1, 1, 32, 0, 1, 0}, "rows-" + type);
    Pooling q{};
    q.dtype = kind, q.planes = 64, q.count = 64 * 28 * 28;
    for (int d = 0; d < 3; ++d)
      q.in[d] = d ? 56 : 1, q.out[d] = d ? 28 : 1, q.window[d] = d ? 3 : 1, q.stride[d] = d ? 2 : 1, q.dilation[d] = 1, q.pad[d] = d ? 1 : 0,
      q.limit[d] = d ? 57 : 1;
    add(q, "average-" + type);
    q.maximum = 1;
    add(q, "maximum-" + type);
  }
  for (long long bytes : {1, 2, 4, 8}) {
    add(Transposition{bytes, kGiven, kGiven, kGiven}, std::to_string(bytes));
    add(Gathering{bytes, kI64, 1, 30522, 768, 128}, std::to_string(bytes));
  }
  for (long long bytes : {1, 2, 4, 8, 16})
    for (long long apart : {0, 1}) add(Joining{bytes, apart, 100, 60, 3, {10, 30, 60}}, (apart ? "apart-" : "together-") + std::to_string(bytes));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: kernels FOLDER ARCHITECTURE DUMP\n"), 2;
  Libraries l = Libraries::load({argv[1]}, false);
  if (!l.api.nvrtcCompileProgram || !l.api.nvrtcGetProgramLog) return std::fprintf(stderr, "NVRTC was not found in %s\n", argv[1]), 1;
  make_cases();
  std::string arch = std::string("-arch=") + argv[2];
  const char* options[] = {arch.c_str(), "-std=c++17"};
  int failed = 0;
  size_t bytes = 0;
  for (const Case& c : cases) {
    std::ofstream(std::string(argv[3]) + "/" + c.name + ".cu") << c.source;
    void* program = nullptr;
    l.api.nvrtcCreateProgram(&program, c.source.c_str(), c.name.c_str(), 0, nullptr, nullptr);
    if (int status = l.api.nvrtcCompileProgram(program, 2, options); status != 0) {
      size_t size = 0;
      l.api.nvrtcGetProgramLogSize(program, &size);
      std::string log(size, '\0');
      l.api.nvrtcGetProgramLog(program, log.data());
      std::printf("%s: %s\n%s\n", c.name.c_str(), l.api.nvrtcGetErrorString(status), log.substr(0, 2000).c_str());
      ++failed;
    } else {
      size_t size = 0;
      l.api.nvrtcGetCUBINSize(program, &size);
      bytes += size;
    }
    l.api.nvrtcDestroyProgram(&program);
  }
  std::printf("NVRTC %d.%d, %s: %zu of %zu kernels compile, %zu kB of machine code\n", l.nvrtc_major, l.nvrtc_minor, argv[2],
              cases.size() - static_cast<size_t>(failed), cases.size(), bytes / 1024);
  return failed ? 1 : 0;
}
