// Kernels with a fault each, which the emulator has to name: a program of their own for the tests.
#include <map>

#include "kernels.h"

namespace host {
namespace {

using Faulty = void (*)(float*);
const std::map<std::string, Faulty> kFaults = {
    {"some threads end before a barrier",
     [](float*) {
       if (THREAD != 5) SYNC;
     }},
    {"threads wait at two barriers",
     [](float*) {
       if (THREAD < 32) SYNC;
       else SYNC;
     }},
    {"a warp shuffles while another waits at a barrier",
     [](float* p) {
       if (THREAD < 32) p[THREAD] = SHUFFLE_XOR(0xffffffffu, 1.0f, 1);
       SYNC;
     }},
    {"a lane has ended",
     [](float* p) {
       if (THREAD % 32 != 9) p[THREAD] = SHUFFLE_XOR(0xffffffffu, 1.0f, 1);
     }},
    {"a lane does not name itself", [](float* p) { p[THREAD] = SHUFFLE_XOR(0xfffffffeu, 1.0f, 1); }},
    {"a lane is not named", [](float* p) { p[THREAD] = SHUFFLE_XOR(0x0000ffffu << (THREAD / 16 % 2 * 16), 1.0f, 16); }},
    {"half a warp shuffles for itself", [](float* p) { p[THREAD] = SHUFFLE_XOR(0x0000ffffu << (THREAD / 16 % 2 * 16), 1.0f, 8); }},
    {"lanes wait in two shuffles",
     [](float* p) {
       if (THREAD % 2) p[THREAD] = SHUFFLE_XOR(0xffffffffu, 1.0f, 1);
       else p[THREAD] = SHUFFLE_XOR(0xffffffffu, 1.0f, 2);
     }},
    {"behind the end", [](float* p) { p[THREAD + 1] = 1; }},
    {"before the start", [](float* p) { p[static_cast<int>(THREAD) - 1] = 1; }},
    {"an odd place", [](float* p) { *ALIGNED(p + 1, 16) = 1; }},
    {"nobody's memory", [](float*) { *reinterpret_cast<volatile float*>(16) = 1; }},
    {"beside a shared array",
     [](float*) {
       SHARED(float, line, [64]);
       float* const from = line;
       from[THREAD + 1] = 1;
     }},
    {"too much shared memory",
     [](float* p) {
       SHARED(float, many, [13000]);
       p[THREAD] = many[THREAD];
     }},
    {"shared memory of the block before",
     [](float* p) {
       SHARED(float, line, [64]);
       if (BLOCK == 0) line[THREAD] = 1;
       if (BLOCK == 1) p[THREAD] = line[THREAD];
     }},
    {"a barrier is missing",
     [](float* p) {
       SHARED(float, line, [64]);
       line[THREAD] = 1;
       p[THREAD] = line[63 - THREAD];
     }},
    {"none",
     [](float* p) {
       SHARED(float, line, [64]);
       line[THREAD] = static_cast<float>(THREAD);
       SYNC;
       p[THREAD] = line[63 - THREAD] + SHUFFLE_XOR(0xffffffffu, static_cast<float>(THREAD), 16) + static_cast<float>(BLOCK);
     }},
};

}  // namespace

std::string launch(const std::string& name, const long long*, const void* pointers, unsigned grid, unsigned threads, const std::string& order) {
  float* out = static_cast<float*>(static_cast<const Pointers*>(pointers)->out[0]);
  return run_grid(grid, threads, order, [&] { kFaults.at(name)(out); });
}

}  // namespace host
