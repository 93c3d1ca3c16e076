// ---- cuBLASLt
#include <algorithm>
#include <cstring>

#include "common.h"

namespace fake {
namespace {

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

}  // namespace
}  // namespace fake

static int handle;
API size_t cublasLtGetVersion() { return 130100; }
API const char* cublasLtGetStatusString(int) { return "CUBLAS_STATUS_NOT_SUPPORTED"; }
API int cublasLtCreate(void** h) { return *h = &handle, 0; }
API int cublasLtDestroy(void*) { return 0; }
API int cublasLtMatmulDescCreate(void** d, int, int) { return *d = new Multiplication, 0; }
API int cublasLtMatmulDescDestroy(void* d) { return delete static_cast<Multiplication*>(d), 0; }
API int cublasLtMatmulDescSetAttribute(void* d, int which, const void* v, size_t n) {
  auto* m = static_cast<Multiplication*>(d);
  void* at = which == kBlasTransA        ? static_cast<void*>(&m->trans_a)
             : which == kBlasTransB      ? &m->trans_b
             : which == kBlasEpilogue    ? &m->epilogue
             : which == kBlasBiasPointer ? static_cast<void*>(&m->bias)
                                         : nullptr;
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
  auto* m = static_cast<Multiplication*>(d);
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
  return 0;
}
API int cublasLtMatmul(void*, void* d, const void* alpha, const void* a, void* ad, const void* b, void* bd, const void*, const void*, void*, void* c,
                       void* cd, const MatmulAlgo* algo, void* space, size_t bytes, void*) {
  Multiplication m = *static_cast<Multiplication*>(d);
  Matrix x = *static_cast<Matrix*>(ad), y = *static_cast<Matrix*>(bd), z = *static_cast<Matrix*>(cd);
  int type = dnn_of(z.type);
  double scale = scalar(alpha, type);
  uint64_t number = algo->data[0];
  if (number == 1 && bytes < 1024) return 7;
  return submit(number == 1 ? 8 : 10, [=] {
    if (bytes) std::memset(space, 7, bytes);
    int64_t rows = static_cast<int64_t>(z.rows), columns = static_cast<int64_t>(z.columns),
            depth = static_cast<int64_t>(m.trans_a ? x.rows : x.columns);
    bool biased = m.epilogue & kBlasEpilogueBias, relu = m.epilogue & kBlasEpilogueRelu;
    for (int64_t i = 0; i < z.batch; ++i)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t q = 0; q < columns; ++q) {
          double sum = 0;
          for (int64_t k = 0; k < depth; ++k)
            sum += get(a, type, i * x.step + (m.trans_a ? r * x.ld + k : k * x.ld + r)) *
                   get(b, type, i * y.step + (m.trans_b ? k * y.ld + q : q * y.ld + k));
          double v = scale * sum + (biased ? get(m.bias, type, r) : 0);
          put(c, type, i * z.step + q * z.ld + r, relu && v < 0 ? 0 : v);
        }
  });
}
