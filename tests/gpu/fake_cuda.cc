// A stand-in for the NVIDIA driver, NVRTC, cuDNN and cuBLASLt on a machine without a GPU: one shared object under their four names.
//
// Memory is the host's, every operation is computed plainly in double precision, and our own kernels run on the host, compiled from the same
// text that NVRTC gets. The clock is virtual: each operation adds its own number of microseconds, so that choices and times are exact.
// RLFLOW_FAKE_DEVICES, _DRIVER and _CUDNN in the environment change what it says about itself.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cudnn/api.h"

namespace host {

int block = 0, blocks = 1;                   // where the kernel at hand is; a block has one thread

#define DEVICE inline
#define SHARED static
#define SYNC (void)0
#define THREAD 0
#define THREADS 1
#define BLOCK block
#define BLOCKS blocks
#define UNROLL
#define INFINITE INFINITY
using std::acos, std::acosh, std::asin, std::asinh, std::atan, std::atanh, std::ceil, std::cos, std::cosh, std::erf, std::exp, std::fabs,
    std::floor, std::fmod, std::log, std::log1p, std::pow, std::rint, std::sin, std::sinh, std::sqrt, std::tan, std::tanh, std::trunc;
inline float half_value(unsigned short h) {
  int sign = h >> 15, exponent = h >> 10 & 31, mantissa = h & 1023;
  double v = exponent == 31  ? (mantissa ? NAN : INFINITY)
             : exponent == 0 ? std::ldexp(mantissa, -24)
                             : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>(sign ? -v : v);
}
inline unsigned short half_bits(float f) {
  unsigned short sign = std::signbit(f) ? 0x8000 : 0;
  double a = std::fabs(f);
  if (std::isnan(f)) return 0x7e00;
  if (a >= 65520) return sign | 0x7c00;
  int e;
  std::frexp(a, &e);
  int unit = std::max(e - 11, -24);          // exponent of the last place
  double places = std::nearbyint(std::ldexp(a, -unit));
  if (places == 2048) places = 1024, ++unit;
  unsigned bits = places < 1024 ? static_cast<unsigned>(places) : static_cast<unsigned>(places) - 1024 + (static_cast<unsigned>(unit + 25) << 10);
  return static_cast<unsigned short>(sign | bits);
}
template <class R> R block_sum(R v) { return v; }
template <class R> R block_max(R v) { return v; }
#define RLFLOW_KERNEL_TEXT(...) __VA_ARGS__
#include "cudnn/kernel_types.h"
#include "cudnn/kernel_code.h"
#undef RLFLOW_KERNEL_TEXT

}  // namespace host

using namespace rlflow::gpu;

namespace {

using Work = std::function<void()>;
double now_us = 0;
std::vector<Work>* captured = nullptr;
long long live_bytes = 0;
std::map<DevicePtr, size_t> sizes;

int submit(double us, Work work) {
  Work timed = [=] {
    work();
    now_us += us;
  };
  if (captured)
    captured->push_back(timed);
  else
    timed();
  return 0;
}
int setting(const char* name, int usual) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : usual;
}
double get(const void* p, int type, int64_t i) {
  return type == kDnnFloat ? host::load<double>(p, host::kF32, i) : type == kDnnHalf ? host::load<double>(p, host::kF16, i)
       : type == kDnnBFloat16 ? host::load<double>(p, host::kBF16, i) : host::load<double>(p, host::kF64, i);
}
void put(void* p, int type, int64_t i, double v) {
  host::store<double>(p, type == kDnnFloat ? host::kF32 : type == kDnnHalf ? host::kF16 : type == kDnnBFloat16 ? host::kBF16 : host::kF64, i, v);
}
double scalar(const void* p, int type) { return type == kDnnDouble ? *static_cast<const double*>(p) : *static_cast<const float*>(p); }

template <class Fixed>
Work kernel_work(void** arguments, unsigned grid) {
  host::Pointers p = *static_cast<host::Pointers*>(arguments[0]);
  Fixed fixed = *static_cast<Fixed*>(arguments[1]);
  return [=] {
    host::blocks = static_cast<int>(grid);
    for (host::block = 0; host::block < host::blocks; ++host::block) host::run(p, fixed);
  };
}

struct Described {                           // a tensor, filter, convolution, activation or pool
  int type = 0, mode = 0, groups = 1;
  std::vector<int> a, b, c;
};
Described* as(void* d) { return static_cast<Described*>(d); }

int64_t product(const std::vector<int>& v) {
  int64_t n = 1;
  for (int x : v) n *= x;
  return n;
}

// y = act(alpha conv(x, w) + beta z + bias) for any number of spatial axes.
void convolve(const Described& xd, const void* x, const Described& wd, const void* w, const Described& cd, const Described& yd, void* y, double alpha,
              double beta, const void* z, const void* bias, bool relu) {
  size_t space = xd.a.size() - 2;
  int channels = wd.a[1], out_channels = wd.a[0], per_group = out_channels / cd.groups;
  int64_t in_plane = 1, out_plane = 1, window = 1;
  for (size_t i = 0; i < space; ++i) in_plane *= xd.a[2 + i], out_plane *= yd.a[2 + i], window *= wd.a[2 + i];
  for (int64_t i = 0; i < product(yd.a); ++i) {
    int64_t at = i % out_plane, o = i / out_plane % out_channels, b = i / out_plane / out_channels, group = o / per_group;
    double sum = 0;
    for (int64_t k = 0; k < window; ++k) {
      int64_t rest_o = at, rest_k = k, from = 0, scale = 1;
      bool inside = true;
      for (size_t d = space; d-- > 0;) {
        int64_t p = rest_o % yd.a[2 + d] * cd.b[d] - cd.a[d] + rest_k % wd.a[2 + d] * cd.c[d];
        rest_o /= yd.a[2 + d], rest_k /= wd.a[2 + d];
        inside = inside && p >= 0 && p < xd.a[2 + d];
        from += p * scale;
        scale *= xd.a[2 + d];
      }
      if (!inside) continue;
      for (int c = 0; c < channels; ++c)
        sum += get(x, xd.type, (b * xd.a[1] + group * channels + c) * in_plane + from) * get(w, wd.type, (o * channels + c) * window + k);
    }
    double v = alpha * sum + (beta != 0 ? beta * get(z, yd.type, i) : 0) + (bias ? get(bias, yd.type, o) : 0);
    put(y, yd.type, i, relu && v < 0 ? 0 : v);
  }
}

struct Matrix {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t ld = 0, step = 0;
  int32_t batch = 1;
};
struct Multiplication {
  int32_t trans_a = 0, trans_b = 0, epilogue = kBlasEpilogueNone;
  void* bias = nullptr;
};
int dnn_of(int blas) { return blas == kBlasHalf ? kDnnHalf : blas == kBlasBFloat16 ? kDnnBFloat16 : blas == kBlasDouble ? kDnnDouble : kDnnFloat; }
int count_algorithms = 0;

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

// ---- the driver
API int cuInit(unsigned) { return setting("RLFLOW_FAKE_DEVICES", 1) < 0 ? 100 : 0; }
API int cuDriverGetVersion(int* v) { return *v = setting("RLFLOW_FAKE_DRIVER", 13000), 0; }
API int cuGetErrorString(int status, const char** text) { return *text = status == 2 ? "out of memory" : "no CUDA-capable device is detected", 0; }
API int cuDeviceGetCount(int* n) { return *n = setting("RLFLOW_FAKE_DEVICES", 1), 0; }
API int cuDeviceGet(int* d, int n) { return *d = n, 0; }
API int cuDeviceGetName(char* name, int size, int) { return std::strncpy(name, "Fake GPU", static_cast<size_t>(size)), 0; }
API int cuDeviceGetAttribute(int* v, int which, int) {
  *v = which == kAttributeProcessors ? 4 : which == kAttributeCacheBytes ? 1 << 20 : which == kAttributeMajor ? 9 : 0;
  return 0;
}
API int cuDeviceTotalMem_v2(size_t* n, int) { return *n = size_t{1} << 30, 0; }
API int cuDevicePrimaryCtxRetain(void** c, int) { return *c = &now_us, 0; }
API int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
API int cuCtxSetCurrent(void*) { return 0; }
API int cuMemAlloc_v2(DevicePtr* p, size_t n) {
  if (live_bytes + static_cast<long long>(n) > 1ll << 30) return 2;
  *p = reinterpret_cast<DevicePtr>(std::aligned_alloc(256, (n + 255) / 256 * 256));
  std::memset(reinterpret_cast<void*>(*p), 0xff, n);  // reads of what was never written give NaN
  sizes[*p] = n;
  live_bytes += static_cast<long long>(n);
  return 0;
}
API int cuMemFree_v2(DevicePtr p) {
  live_bytes -= static_cast<long long>(sizes[p]);
  sizes.erase(p);
  std::free(reinterpret_cast<void*>(p));
  return 0;
}
API int cuMemGetInfo_v2(size_t* a, size_t* b) { return *a = *b = size_t{1} << 30, 0; }
API int cuMemcpyHtoD_v2(DevicePtr to, const void* from, size_t n) { return std::memcpy(reinterpret_cast<void*>(to), from, n), 0; }
API int cuMemcpyDtoH_v2(void* to, DevicePtr from, size_t n) { return std::memcpy(to, reinterpret_cast<void*>(from), n), 0; }
API int cuMemcpyDtoDAsync_v2(DevicePtr to, DevicePtr from, size_t n, void*) {
  return submit(1, [=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n); });
}
API int cuMemsetD8Async(DevicePtr to, unsigned char v, size_t n, void*) {
  return submit(1, [=] { std::memset(reinterpret_cast<void*>(to), v, n); });
}
API int cuStreamCreate(void** s, unsigned) { return *s = &captured, 0; }
API int cuStreamDestroy_v2(void*) { return 0; }
API int cuStreamSynchronize(void*) { return captured ? 900 : 0; }
API int cuStreamBeginCapture_v2(void*, int) { return captured = new std::vector<Work>, 0; }
API int cuStreamEndCapture(void*, void** graph) { return *graph = std::exchange(captured, nullptr), 0; }
API int cuEventCreate(void** e, unsigned) { return *e = new double(0), 0; }
API int cuEventDestroy_v2(void* e) { return delete static_cast<double*>(e), 0; }
API int cuEventRecord(void* e, void*) { return *static_cast<double*>(e) = now_us, 0; }
API int cuEventSynchronize(void*) { return 0; }
API int cuEventElapsedTime(float* ms, void* a, void* b) {
  return *ms = static_cast<float>((*static_cast<double*>(b) - *static_cast<double*>(a)) / 1000), 0;
}
API int cuModuleLoadData(void** m, const void* image) { return *m = new std::string(static_cast<const char*>(image)), 0; }
API int cuModuleUnload(void* m) { return delete static_cast<std::string*>(m), 0; }
API int cuModuleGetFunction(void** f, void* m, const char*) { return *f = m, 0; }
API int cuLaunchKernel(void* f, unsigned grid, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned, void*, void** a, void**) {
  const std::string& name = *static_cast<std::string*>(f);
  if (threads % 32 != 0 || threads > 1024) return 1;
  if (name == "Pointwise") return submit(4, kernel_work<host::Pointwise>(a, grid));
  if (name == "Transposition") return submit(3, kernel_work<host::Transposition>(a, grid));
  if (name == "Reducing") return submit(4, kernel_work<host::Reducing>(a, grid));
  if (name == "Softening") return submit(4, kernel_work<host::Softening>(a, grid));
  if (name == "Normalising") return submit(4, kernel_work<host::Normalising>(a, grid));
  if (name == "Gathering") return submit(4, kernel_work<host::Gathering>(a, grid));
  if (name == "Remapping") return submit(4, kernel_work<host::Remapping>(a, grid));
  if (name == "Pooling") return submit(6, kernel_work<host::Pooling>(a, grid));
  return 98;
}
API int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  return *exec = new std::vector<Work>(*static_cast<std::vector<Work>*>(graph)), 0;
}
API int cuGraphLaunch(void* exec, void*) {
  now_us += 2;
  for (const Work& w : *static_cast<std::vector<Work>*>(exec)) w();
  return 0;
}
API int cuGraphExecDestroy(void* e) { return delete static_cast<std::vector<Work>*>(e), 0; }
API int cuGraphDestroy(void* g) { return delete static_cast<std::vector<Work>*>(g), 0; }

// ---- NVRTC: the "binary" is the kernel's name
API int nvrtcVersion(int* a, int* b) { return *a = 13, *b = 0, 0; }
API const char* nvrtcGetErrorString(int) { return "failed"; }
API int nvrtcCreateProgram(void** p, const char* source, const char* name, int, const char* const*, const char* const*) {
  if (!std::strstr(source, "run(p, fixed)")) return 1;
  return *p = new std::string(name), 0;
}
API int nvrtcCompileProgram(void*, int n, const char* const* options) { return n == 2 && !std::strcmp(options[0], "-arch=sm_90") ? 0 : 6; }
API int nvrtcDestroyProgram(void** p) { return delete static_cast<std::string*>(*p), 0; }
API int nvrtcGetCUBINSize(void* p, size_t* n) { return *n = static_cast<std::string*>(p)->size() + 1, 0; }
API int nvrtcGetCUBIN(void* p, char* out) { return std::strcpy(out, static_cast<std::string*>(p)->c_str()), 0; }
API int nvrtcGetProgramLogSize(void*, size_t* n) { return *n = 1, 0; }
API int nvrtcGetProgramLog(void*, char* out) { return *out = 0, 0; }

// ---- cuDNN
API size_t cudnnGetVersion() { return static_cast<size_t>(setting("RLFLOW_FAKE_CUDNN", 91000)); }
API const char* cudnnGetErrorString(int) { return "CUDNN_STATUS_NOT_SUPPORTED"; }
API int cudnnCreate(void** h) { return *h = &now_us, 0; }
API int cudnnDestroy(void*) { return 0; }
API int cudnnSetStream(void*, void*) { return 0; }
static int made(void** d) { return *d = new Described, 0; }
static int gone(void* d) { return delete as(d), 0; }
API int cudnnCreateTensorDescriptor(void** d) { return made(d); }
API int cudnnDestroyTensorDescriptor(void* d) { return gone(d); }
API int cudnnCreateFilterDescriptor(void** d) { return made(d); }
API int cudnnDestroyFilterDescriptor(void* d) { return gone(d); }
API int cudnnCreateConvolutionDescriptor(void** d) { return made(d); }
API int cudnnDestroyConvolutionDescriptor(void* d) { return gone(d); }
API int cudnnCreateActivationDescriptor(void** d) { return made(d); }
API int cudnnDestroyActivationDescriptor(void* d) { return gone(d); }
API int cudnnCreatePoolingDescriptor(void** d) { return made(d); }
API int cudnnDestroyPoolingDescriptor(void* d) { return gone(d); }
API int cudnnSetTensorNdDescriptor(void* d, int type, int n, const int* dims, const int* strides) {
  if (n < 4) return 2000;
  as(d)->type = type, as(d)->a.assign(dims, dims + n), as(d)->b.assign(strides, strides + n);
  return 0;
}
API int cudnnSetFilterNdDescriptor(void* d, int type, int, int n, const int* dims) {
  if (n < 4) return 2000;
  return as(d)->type = type, as(d)->a.assign(dims, dims + n), 0;
}
API int cudnnSetConvolutionNdDescriptor(void* d, int n, const int* pad, const int* stride, const int* dilation, int, int) {
  return as(d)->a.assign(pad, pad + n), as(d)->b.assign(stride, stride + n), as(d)->c.assign(dilation, dilation + n), 0;
}
API int cudnnSetConvolutionMathType(void* d, int type) { return as(d)->mode = type, 0; }
API int cudnnSetConvolutionGroupCount(void* d, int n) { return as(d)->groups = n, 0; }
API int cudnnSetActivationDescriptor(void* d, int mode, int, double) { return as(d)->mode = mode, 0; }
API int cudnnSetPoolingNdDescriptor(void* d, int mode, int, int n, const int* window, const int* pad, const int* stride) {
  return as(d)->mode = mode, as(d)->a.assign(window, window + n), as(d)->b.assign(pad, pad + n), as(d)->c.assign(stride, stride + n), 0;
}
static size_t workspace_of(int algo) { return algo == 2 ? size_t{2} << 30 : algo == 1 ? 4096 : 0; }
API int cudnnGetConvolutionForwardAlgorithm_v7(void*, void*, void*, void*, void*, int wanted, int* n, ConvolutionPerf* perf) {
  *n = std::min(wanted, 4);
  const int algos[] = {2, 1, 0, 5};
  for (int i = 0; i < *n; ++i) perf[i] = {algos[i], algos[i] == 5 ? 3000 : 0, 0, workspace_of(algos[i]), 1, 0, {}};
  return 0;
}
API int cudnnGetConvolutionForwardWorkspaceSize(void*, void*, void*, void*, void*, int algo, size_t* n) { return *n = workspace_of(algo), 0; }
API int cudnnConvolutionForward(void*, const void* alpha, void* xd, const void* x, void* wd, const void* w, void* cd, int algo, void* space, size_t bytes,
                                const void*, void* yd, void* y) {
  if (bytes < workspace_of(algo)) return 2000;
  double scale = scalar(alpha, as(yd)->type);
  return submit(algo == 0 ? 30 : 20, [=] {
    if (bytes) std::memset(space, 7, bytes);
    convolve(*as(xd), x, *as(wd), w, *as(cd), *as(yd), y, scale, 0, nullptr, nullptr, false);
  });
}
API int cudnnConvolutionBiasActivationForward(void*, const void* alpha, void* xd, const void* x, void* wd, const void* w, void* cd, int algo, void*, size_t,
                                              const void* beta, void*, const void* z, void*, const void* bias, void* act, void* yd, void* y) {
  if (algo != 1) return 3000;                // as in life, not every routine takes everything along
  bool relu = as(act)->mode == kDnnRelu;
  double one = *static_cast<const float*>(alpha), two = *static_cast<const float*>(beta);
  return submit(22, [=] { convolve(*as(xd), x, *as(wd), w, *as(cd), *as(yd), y, one, two, z, bias, relu); });
}
API int cudnnPoolingForward(void*, void* pd, const void*, void* xd, const void* x, const void*, void* yd, void* y) {
  return submit(5, [=] {
    const Described &p = *as(pd), &a = *as(xd), &b = *as(yd);
    size_t space = p.a.size();
    int64_t out_plane = 1, in_plane = 1, window = 1;
    for (size_t d = 0; d < space; ++d) out_plane *= b.a[2 + d], in_plane *= a.a[2 + d], window *= p.a[d];
    for (int64_t i = 0; i < product(b.a); ++i) {
      double sum = 0, most = -INFINITY;
      int seen = 0;
      for (int64_t k = 0; k < window; ++k) {
        int64_t rest_o = i % out_plane, rest_k = k, from = 0, scale = 1;
        bool inside = true;
        for (size_t d = space; d-- > 0;) {
          int64_t at = rest_o % b.a[2 + d] * p.c[d] - p.b[d] + rest_k % p.a[d];
          rest_o /= b.a[2 + d], rest_k /= p.a[d];
          inside = inside && at >= 0 && at < a.a[2 + d];
          from += at * scale, scale *= a.a[2 + d];
        }
        if (!inside) continue;
        double v = get(x, a.type, i / out_plane * in_plane + from);
        sum += v, most = std::max(most, v), ++seen;
      }
      put(y, b.type, i, p.mode == kDnnPoolMax ? most : sum / (p.mode == kDnnPoolAverage ? seen : static_cast<double>(window)));
    }
  });
}
API int cudnnSoftmaxForward(void*, int how, int, const void*, void* xd, const void* x, const void*, void*, void* y) {
  return submit(5, [=] {
    const Described& a = *as(xd);
    int64_t inner = a.a[2] * a.a[3], extent = a.a[1];
    for (int64_t r = 0; r < a.a[0] * inner; ++r) {
      int64_t base = r / inner * extent * inner + r % inner;
      double top = -INFINITY, sum = 0;
      for (int64_t k = 0; k < extent; ++k) top = std::max(top, get(x, a.type, base + k * inner));
      for (int64_t k = 0; k < extent; ++k) sum += std::exp(get(x, a.type, base + k * inner) - top);
      for (int64_t k = 0; k < extent; ++k) {
        double v = get(x, a.type, base + k * inner) - top;
        put(y, a.type, base + k * inner, how == kDnnSoftmaxLog ? v - std::log(sum) : std::exp(v) / sum);
      }
    }
  });
}

// ---- cuBLASLt
API size_t cublasLtGetVersion() { return 130100; }
API const char* cublasLtGetStatusString(int) { return "CUBLAS_STATUS_NOT_SUPPORTED"; }
API int cublasLtCreate(void** h) { return *h = &now_us, 0; }
API int cublasLtDestroy(void*) { return 0; }
API int cublasLtMatmulDescCreate(void** d, int, int) { return *d = new Multiplication, 0; }
API int cublasLtMatmulDescDestroy(void* d) { return delete static_cast<Multiplication*>(d), 0; }
API int cublasLtMatmulDescSetAttribute(void* d, int which, const void* v, size_t n) {
  auto* m = static_cast<Multiplication*>(d);
  void* at = which == kBlasTransA ? static_cast<void*>(&m->trans_a) : which == kBlasTransB ? &m->trans_b : which == kBlasEpilogue ? &m->epilogue
             : which == kBlasBiasPointer ? static_cast<void*>(&m->bias) : nullptr;
  if (!at || n != (which == kBlasBiasPointer ? sizeof(void*) : 4)) return 7;
  return std::memcpy(at, v, n), 0;
}
API int cublasLtMatrixLayoutCreate(void** l, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  return *l = new Matrix{type, rows, columns, ld, 0, 1}, 0;
}
API int cublasLtMatrixLayoutDestroy(void* l) { return delete static_cast<Matrix*>(l), 0; }
API int cublasLtMatrixLayoutSetAttribute(void* l, int which, const void* v, size_t n) {
  auto* m = static_cast<Matrix*>(l);
  if (which == kBlasBatchCount && n == 4) return std::memcpy(&m->batch, v, n), 0;
  if (which == kBlasBatchStride && n == 8) return std::memcpy(&m->step, v, n), 0;
  return 7;
}
API int cublasLtMatmulPreferenceCreate(void** p) { return *p = new uint64_t(0), 0; }
API int cublasLtMatmulPreferenceDestroy(void* p) { return delete static_cast<uint64_t*>(p), 0; }
API int cublasLtMatmulPreferenceSetAttribute(void*, int which, const void*, size_t n) {
  return which == kBlasMaxWorkspace ? (n == 8 ? 0 : 7) : which >= kBlasAlignFirst && which <= kBlasAlignResult && n == 4 ? 0 : 7;
}
API int cublasLtMatmulAlgoGetHeuristic(void*, void* d, void* a, void* b, void*, void* out, void*, int wanted, MatmulHeuristic* found, int* n) {
  auto *m = static_cast<Multiplication*>(d);
  auto *x = static_cast<Matrix*>(a), *y = static_cast<Matrix*>(b), *z = static_cast<Matrix*>(out);
  bool agree = (m->trans_a ? x->columns : x->rows) == z->rows && (m->trans_b ? y->rows : y->columns) == z->columns &&
               (m->trans_a ? x->rows : x->columns) == (m->trans_b ? y->columns : y->rows);
  if (!agree) return 7;
  *n = std::min(wanted, 2);
  for (int i = 0; i < *n; ++i) {
    found[i] = {};
    found[i].algo.data[0] = static_cast<uint64_t>(i);
    found[i].workspace_size = i == 1 ? 1024 : 0;
  }
  ++count_algorithms;
  return 0;
}
API int cublasLtMatmul(void*, void* d, const void* alpha, const void* a, void* ad, const void* b, void* bd, const void*, const void*, void*, void* c, void* cd,
                       const MatmulAlgo* algo, void* space, size_t bytes, void*) {
  Multiplication m = *static_cast<Multiplication*>(d);
  Matrix x = *static_cast<Matrix*>(ad), y = *static_cast<Matrix*>(bd), z = *static_cast<Matrix*>(cd);
  int type = dnn_of(z.type);
  double scale = scalar(alpha, type);
  uint64_t number = algo->data[0];
  if (number == 1 && bytes < 1024) return 7;
  return submit(number == 1 ? 8 : 10, [=] {
    if (bytes) std::memset(space, 7, bytes);
    int64_t rows = static_cast<int64_t>(z.rows), columns = static_cast<int64_t>(z.columns), depth = static_cast<int64_t>(m.trans_a ? x.rows : x.columns);
    bool biased = m.epilogue & kBlasEpilogueBias, relu = m.epilogue & kBlasEpilogueRelu;
    for (int64_t i = 0; i < z.batch; ++i)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t q = 0; q < columns; ++q) {
          double sum = 0;
          for (int64_t k = 0; k < depth; ++k)
            sum += get(a, type, i * x.step + (m.trans_a ? r * x.ld + k : k * x.ld + r)) * get(b, type, i * y.step + (m.trans_b ? k * y.ld + q : q * y.ld + k));
          double v = scale * sum + (biased ? get(m.bias, type, r) : 0);
          put(c, type, i * z.step + q * z.ld + r, relu && v < 0 ? 0 : v);
        }
  });
}
API long long fake_live_bytes() { return live_bytes; }

// The stand-in has the interface that the back end calls.
#define RLFLOW_SAME(symbol, declared, result, arguments) static_assert(std::is_same_v<decltype(&symbol), decltype(Api::symbol)>, #symbol);
RLFLOW_CUDA_API(RLFLOW_SAME)
RLFLOW_NVRTC_API(RLFLOW_SAME)
RLFLOW_CUDNN_API(RLFLOW_SAME)
RLFLOW_CUBLAS_API(RLFLOW_SAME)
