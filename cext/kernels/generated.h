// What a library of generated code exports, and the operator that calls it.
//
// Such a library holds kernels that another compiler made for one machine's instruction set and for fixed shapes. It is
// named by the user in the session's options, never by a model: this file's operator knows no other way to one.
#pragma once
#include <cstdint>

#include "ort_calls.h"

namespace rlflow::kernels {

// One kernel. `shapes`: of each input and then of the output, their rank and their sizes. `call` returns 0 where all
// went well, and may be called by several threads.
struct GeneratedFunction {
  int32_t inputs;
  const int64_t* shapes;
  int32_t (*call)(const float* const* inputs, float* output);
};

// The symbol `rlflow_generated_1`. `isa`: as name_of() has it.
struct GeneratedLibrary {
  const char* isa;
  int32_t count;
  const GeneratedFunction* functions;
};

inline constexpr const char* kGeneratedSymbol = "rlflow_generated_1";
// The entry of the session's options that names the library, by an absolute path.
inline constexpr const char* kGeneratedEntry = "rlflow.kernels.generated";

// The operator for the library that these options name; null where they name none. Throws std::invalid_argument with
// the reason where it cannot be used. It lives as long as the process, as the library does.
const ort::CustomOp* generated_operator(const Api& api, const ort::SessionOptions* options);

}  // namespace rlflow::kernels
