// RegisterCustomOps, by which ONNX Runtime loads this library and its operators, those of the domain `rlflow.kernels`.
#include <cstdlib>
#include <cstring>
#include <string>

#include "generated.h"
#include "isa.h"
#include "operators.h"

#if defined(_WIN32)
#define RLFLOW_EXPORT extern "C" __declspec(dllexport)
#else
#define RLFLOW_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace rlflow::kernels {
namespace {

constexpr const char* kDomain = "rlflow.kernels";

// The minor number of a version like "1.31.1"; -1 where it is none.
long minor_version(const char* text) {
  if (!text || std::strncmp(text, "1.", 2) != 0) return -1;
  char* end = nullptr;
  const long minor = std::strtol(text + 2, &end, 10);
  return end == text + 2 ? -1 : minor;
}

}  // namespace

void add_operators(const Api& api, ort::SessionOptions* options) {
  ort::CustomOpDomain* domain = nullptr;
  api.call<ort::CreateCustomOpDomain>(kDomain, &domain);
  try {
    for (const ort::CustomOp* op : {&winograd_operator(), &norm_operator(), &product_operator(), &depthwise_operator(), &grouped_operator(),
                                    &gelu_operator(), &unrolled_operator(), &blocked_product_operator(), &blocked_norm_operator()})
      api.call<ort::CustomOpDomainAdd>(domain, op);
    if (const ort::CustomOp* op = generated_operator(api, options)) api.call<ort::CustomOpDomainAdd>(domain, op);
    api.call<ort::AddCustomOpDomain>(options, domain);
  } catch (...) {
    ort::release_domain(api.table, domain);
    throw;
  }
}

}  // namespace rlflow::kernels

// Called by ONNX Runtime's RegisterCustomOpsLibrary. The domain lives as long as the process, because sessions that were
// made with these options may.
RLFLOW_EXPORT rlflow::ort::Status* RLFLOW_ORT_CALL RegisterCustomOps(rlflow::ort::SessionOptions* options, const rlflow::ort::ApiBase* base) {
  namespace ort = rlflow::ort;
  using rlflow::kernels::Api;
  const char* version = base->version_string();
  if (rlflow::kernels::minor_version(version) < static_cast<long>(ort::kVersion)) {
    const void* oldest = base->get_api(1);  // its first entries make a status
    const std::string sentence =
        std::string("rlflow.kernels needs ONNX Runtime 1.17 or a later 1.x; this is ") + (version ? version : "of an unknown version") + ".";
    return oldest ? Api{oldest}.status(ort::kFail, sentence.c_str()) : nullptr;
  }
  const Api api{base->get_api(ort::kVersion)};
  if (!api.table)
    return Api{base->get_api(1)}.status(ort::kFail, "rlflow.kernels: this ONNX Runtime does not offer the C interface of version 1.17.");
  return api.guarded([&] {
    rlflow::kernels::process_isa();  // refuses what RLFLOW_KERNELS_ISA may not say
    rlflow::kernels::add_operators(api, options);
  });
}
