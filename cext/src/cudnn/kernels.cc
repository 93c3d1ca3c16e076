#include "kernels.h"

namespace rlflow::gpu {
namespace {

#define RLFLOW_KERNEL_TEXT(...) #__VA_ARGS__
const char kTypes[] =
#include "kernel_types.h"
    ;
const char kValues[] =
#include "kernel_values.h"
    ;
const char kCodeText[] =
#include "kernel_code.h"
    ;
#undef RLFLOW_KERNEL_TEXT

// The conversions of half floats are instructions, because the header that names them is not at hand everywhere.
const char kPrelude[] = R"cuda(
#define DEVICE __device__ __forceinline__
#define SHARED(type, name, extents) __shared__ type name extents
#define SYNC __syncthreads()
#define SHUFFLE_XOR(lanes, value, distance) __shfl_xor_sync(lanes, value, distance)
#define THREAD threadIdx.x
#define THREADS blockDim.x
#define BLOCK blockIdx.x
#define BLOCKS gridDim.x
#define UNROLL _Pragma("unroll")
#define INFINITE __int_as_float(0x7f800000)
#define ALIGNED(address, bytes) (address)
DEVICE float half_value(unsigned short h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
DEVICE unsigned short half_bits(float f) { unsigned short h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
)cuda";

}  // namespace

std::string kernel_source(const char* name, const long long* fixed, size_t count) {
  std::string text = std::string(kPrelude) + kTypes + "\n" + kValues + "\n" + kCodeText +
                     "\nextern \"C\" __global__ void kernel(const Pointers p) {\n  static constexpr " + name + " fixed = {";
  for (size_t i = 0; i < count; ++i) {
    if (i) text += i % 24 == 0 ? ",\n" : ",";
    // The least long long has no literal.
    text += fixed[i] == INT64_MIN ? "-9223372036854775807ll-1" : std::to_string(fixed[i]) + "ll";
  }
  return text + "};\n  run(p, fixed);\n}\n";
}

}  // namespace rlflow::gpu
