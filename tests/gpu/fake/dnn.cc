// ---- cuDNN's calls with descriptors of their own: pools and softmax
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common.h"

namespace fake {
namespace {

struct Legacy {                              // a tensor or a pool
  int type = 0, mode = 0;
  std::vector<int> a, b, c;
};
Legacy* as(void* d) { return static_cast<Legacy*>(d); }

int64_t product(const std::vector<int>& v) {
  int64_t n = 1;
  for (int x : v) n *= x;
  return n;
}

}  // namespace
}  // namespace fake

static int handle;
API size_t cudnnGetVersion() { return static_cast<size_t>(setting("RLFLOW_FAKE_CUDNN", 91000)); }
API const char* cudnnGetErrorString(int status) { return status < 3000 ? "CUDNN_STATUS_BAD_PARAM" : "CUDNN_STATUS_NOT_SUPPORTED"; }
API int cudnnCreate(void** h) { return *h = &handle, 0; }
API int cudnnDestroy(void*) { return 0; }
API int cudnnSetStream(void*, void*) { return 0; }
static int made(void** d) { return *d = new Legacy, 0; }
static int gone(void* d) { return delete as(d), 0; }
API int cudnnCreateTensorDescriptor(void** d) { return made(d); }
API int cudnnDestroyTensorDescriptor(void* d) { return gone(d); }
API int cudnnCreatePoolingDescriptor(void** d) { return made(d); }
API int cudnnDestroyPoolingDescriptor(void* d) { return gone(d); }
API int cudnnSetTensorNdDescriptor(void* d, int type, int n, const int* dims, const int* strides) {
  if (n < 4) return 2000;
  as(d)->type = type, as(d)->a.assign(dims, dims + n), as(d)->b.assign(strides, strides + n);
  return 0;
}
API int cudnnSetPoolingNdDescriptor(void* d, int mode, int, int n, const int* window, const int* pad, const int* stride) {
  return as(d)->mode = mode, as(d)->a.assign(window, window + n), as(d)->b.assign(pad, pad + n), as(d)->c.assign(stride, stride + n), 0;
}
API int cudnnPoolingForward(void*, void* pd, const void*, void* xd, const void* x, const void*, void* yd, void* y) {
  return submit(5, [=] {
    const Legacy &p = *as(pd), &a = *as(xd), &b = *as(yd);
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
    const Legacy& a = *as(xd);
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
