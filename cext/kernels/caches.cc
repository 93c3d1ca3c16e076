#include "caches.h"

#include <algorithm>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace rlflow::kernels {

int64_t second_level_cache() {
  static const int64_t size = [] {
    int64_t found = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    found = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    // Where cores share a large one, a core's own part is not known.
    return found > 0 ? std::clamp<int64_t>(found, 256 << 10, 2 << 20) : int64_t{512} << 10;
  }();
  return size;
}

}  // namespace rlflow::kernels
