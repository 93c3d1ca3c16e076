// ---- cuDNN's calls with descriptors of their own: pools and softmax
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common.h"

namespace fake {
namespace {

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

}  // namespace
}  // namespace fake

using namespace fake;

static int handle;
API size_t cudnnGetVersion() { return static_cast<size_t>(setting("RLFLOW_FAKE_CUDNN", 91000)); }
API const char* cudnnGetErrorString(int) { return "CUDNN_STATUS_NOT_SUPPORTED"; }
API int cudnnCreate(void** h) { return *h = &handle, 0; }
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

RLFLOW_CUDNN_API(RLFLOW_SAME)
