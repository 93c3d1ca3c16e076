#include "isa.h"

#include <cstdlib>
#include <stdexcept>

namespace rlflow::kernels {

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::avx512: return "avx512";
    case Isa::avx2: return "avx2";
    case Isa::portable: break;
  }
  return "portable";
}

bool runs_here(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == Isa::avx2) return avx2;
  if (isa == Isa::avx512)
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw");
#endif
  return isa == Isa::portable;
}

Isa chosen_isa(const char* asked) {
  const std::string wanted = asked ? asked : "";
  for (const Isa isa : {Isa::avx512, Isa::avx2, Isa::portable}) {
    if (wanted.empty() ? runs_here(isa) : wanted == name_of(isa)) {
      if (runs_here(isa)) return isa;
      throw std::invalid_argument("RLFLOW_KERNELS_ISA asks for " + wanted + ", which this processor does not have.");
    }
  }
  throw std::invalid_argument("RLFLOW_KERNELS_ISA is \"" + wanted + "\"; expected avx512, avx2 or portable.");
}

Isa process_isa() {
  static const Isa isa = chosen_isa(std::getenv("RLFLOW_KERNELS_ISA"));
  return isa;
}

const Stages* stages(Isa isa, const Form& form, int block) {
  switch (isa) {
    case Isa::avx512: return avx512_stages(form, block);
    case Isa::avx2: return avx2_stages(form, block);
    case Isa::portable: break;
  }
  return portable_stages(form, block);
}

const Routines& routines(Isa isa) {
  const Routines* found = isa == Isa::avx512 ? avx512_routines() : isa == Isa::avx2 ? avx2_routines() : nullptr;
  return found ? *found : *portable_routines();
}

}  // namespace rlflow::kernels
