// The sizes of this processor's caches, as far as they are known.
#pragma once
#include <cstdint>

namespace rlflow::kernels {

// Bytes of the second level, of one core; 512 KiB where the system does not say.
int64_t second_level_cache();

}  // namespace rlflow::kernels
