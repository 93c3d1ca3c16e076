// Which instruction set the kernels use on this machine.
#pragma once
#include <string>

#include "routines.h"
#include "stages.h"

namespace rlflow::kernels {

enum class Isa { portable, avx2, avx512 };

const char* name_of(Isa isa);
bool runs_here(Isa isa);

// The best one that runs here, or the one that `asked` names ("portable", "avx2", "avx512"; null or "": the best).
// Throws std::invalid_argument with a sentence where that is unknown or cannot run here.
Isa chosen_isa(const char* asked);

// The same for the environment variable RLFLOW_KERNELS_ISA, which is read once.
Isa process_isa();

const Stages* stages(Isa isa, const Form& form, int block);
const Routines& routines(Isa isa);

}  // namespace rlflow::kernels
