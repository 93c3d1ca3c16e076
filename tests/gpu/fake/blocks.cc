#include "blocks.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

namespace host {

Place place;

namespace {

constexpr size_t kStack = 64 << 10, kSharedBytes = 48 << 10, kZone = 64;
constexpr unsigned kWarp = 32;
constexpr unsigned char kPoison = 0xff;      // NaN as a number

enum class State : uint8_t { kNew, kReady, kAtBarrier, kAtShuffle, kDone };

struct Fibre {
  explicit Fibre(size_t number) : top(number % 61 * 320) {}
  std::unique_ptr<char[]> stack{new char[kStack]};
  size_t top;                                // bytes that are left free there, so that stacks do not share the cache's sets
  ucontext_t start;
  jmp_buf now;
  bool begun = false;
};
struct Thread {
  State state = State::kNew;
  int site = 0;
  unsigned lanes = 0, distance = 0;
  uint64_t bits = 0;
  Fibre* fibre = nullptr;
};

std::string text(unsigned n) { return std::to_string(n); }

// The order in which what is numbered 0, 1, ... has its turn.
class Order {
 public:
  explicit Order(const std::string& how)
      : how_(how), random_(how == "forward" || how == "reverse" ? 1u : static_cast<unsigned>(std::strtoul(how.c_str(), nullptr, 10)) + 2) {}
  std::vector<unsigned> of(unsigned count) {
    std::vector<unsigned> turns(count);
    std::iota(turns.begin(), turns.end(), 0u);
    if (how_ == "reverse") std::reverse(turns.begin(), turns.end());
    else if (how_ != "forward") std::shuffle(turns.begin(), turns.end(), random_);
    return turns;
  }

 private:
  std::string how_;
  std::mt19937 random_;
};

// The launch at hand. Fibres leave it by the jump `escape` where there is a fault.
struct Launch {
  const std::function<void()>* kernel = nullptr;
  std::vector<Thread> threads;
  std::vector<std::unique_ptr<Fibre>> fibres;
  std::vector<Fibre*> idle;
  jmp_buf scheduler;
  sigjmp_buf escape;
  std::string fault;
  bool running = false;
  alignas(64) unsigned char shared[kSharedBytes];
  size_t shared_end = 0;
  std::map<const void*, std::pair<size_t, size_t>> arrays;      // place and size in `shared`
} run;

[[noreturn]] void fail(const std::string& sentence) {
  run.fault = sentence;
  siglongjmp(run.escape, 1);
}
std::string who(unsigned thread) { return run.kernel ? "thread " + text(thread) + " of block " + text(place.block) : std::string("a routine"); }

[[noreturn]] void fibre_main() {
  for (;;) {
    (*run.kernel)();
    Thread& self = run.threads[place.thread];
    self.state = State::kDone;
    run.idle.push_back(self.fibre);
    if (!_setjmp(self.fibre->now)) _longjmp(run.scheduler, 1);
  }
}

Fibre* fresh_fibre() {
  if (run.idle.empty()) {
    run.fibres.push_back(std::make_unique<Fibre>(run.fibres.size()));
    run.idle.push_back(run.fibres.back().get());
  }
  Fibre* f = run.idle.back();
  run.idle.pop_back();
  return f;
}

void begin(Fibre& f) {
  f.begun = true;
  getcontext(&f.start);
  f.start.uc_stack.ss_sp = f.stack.get();
  f.start.uc_stack.ss_size = kStack - f.top;
  f.start.uc_link = nullptr;
  makecontext(&f.start, reinterpret_cast<void (*)()>(fibre_main), 0);
  setcontext(&f.start);
}

// Lets one thread run until it waits or ends.
void resume(unsigned thread) {
  Thread& t = run.threads[thread];
  if (!t.fibre) t.fibre = fresh_fibre();
  place.thread = thread;
  if (_setjmp(run.scheduler)) return;
  if (t.fibre->begun) _longjmp(t.fibre->now, 1);
  begin(*t.fibre);
}

void wait(State state, int site) {
  Thread& self = run.threads[place.thread];
  self.state = state;
  self.site = site;
  if (!_setjmp(self.fibre->now)) _longjmp(run.scheduler, 1);
}

const char* doing(const Thread& t) {
  return t.state == State::kDone ? "has ended" : t.state == State::kAtBarrier ? "waits at a barrier" : "waits in another shuffle";
}

// Exchanges the values of the lanes that wait in a shuffle; whether there were any.
bool release_shuffle(unsigned warp) {
  const unsigned first = warp * kWarp;
  unsigned waiting = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane)
    if (run.threads[first + lane].state == State::kAtShuffle) waiting |= 1u << lane;
  if (!waiting) return false;
  const unsigned leader = static_cast<unsigned>(__builtin_ctz(waiting));
  const Thread lead = run.threads[first + leader];
  if (!(lead.lanes >> leader & 1)) fail(who(first + leader) + " shuffles with lanes that do not name its own");
  uint64_t bits[kWarp];
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const Thread& t = run.threads[first + lane];
    bits[lane] = t.bits;
    if (!(lead.lanes >> lane & 1)) continue;
    if (t.state != State::kAtShuffle || t.site != lead.site || t.lanes != lead.lanes || t.distance != lead.distance)
      fail(who(first + leader) + " waits in a shuffle for thread " + text(first + lane) + ", which " + doing(t));
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if (!(lead.lanes >> lane & 1)) continue;
    const unsigned from = lane ^ lead.distance;
    if (from >= kWarp || !(lead.lanes >> from & 1))
      fail(who(first + lane) + " takes the value of lane " + text(from) + ", which its shuffle does not name");
    run.threads[first + lane].bits = bits[from];
    run.threads[first + lane].state = State::kReady;
  }
  return true;
}

void run_warp(unsigned warp, const std::vector<unsigned>& lanes) {
  do {
    for (unsigned lane : lanes) {
      const State s = run.threads[warp * kWarp + lane].state;
      if (s == State::kNew || s == State::kReady) resume(warp * kWarp + lane);
    }
  } while (release_shuffle(warp));
}

// Lets all threads go on from the barrier where they wait; false where all have ended.
bool release_barrier() {
  const Thread* there = nullptr;
  for (const Thread& t : run.threads)
    if (t.state == State::kAtBarrier) there = &t;
  if (!there) return false;
  for (unsigned i = 0; i < run.threads.size(); ++i) {
    const Thread& t = run.threads[i];
    if (t.state == State::kAtBarrier && t.site == there->site) continue;
    fail(who(static_cast<unsigned>(there - run.threads.data())) + " waits at a barrier that thread " + text(i) + " does not reach: it " +
         (t.state == State::kAtBarrier ? "waits at another barrier" : doing(t)));
  }
  for (Thread& t : run.threads) t.state = State::kReady;
  return true;
}

void check_zones() {
  size_t at = 0;
  auto clean = [&](size_t end) {
    for (; at < end; ++at)
      if (run.shared[at] != kPoison) fail("block " + text(place.block) + " writes beside its shared arrays");
  };
  std::vector<std::pair<size_t, size_t>> arrays;
  for (const auto& [key, where] : run.arrays) arrays.push_back(where);
  std::sort(arrays.begin(), arrays.end());
  for (const auto& [start, size] : arrays) {
    clean(start);
    at = start + size;
  }
  clean(std::min(at + kZone, kSharedBytes));
}

void run_block(Order& order) {
  for (Thread& t : run.threads) t = {};
  std::memset(run.shared, kPoison, sizeof run.shared);
  run.arrays.clear();
  run.shared_end = kZone;
  do {
    for (unsigned warp : order.of(static_cast<unsigned>(run.threads.size()) / kWarp)) run_warp(warp, order.of(kWarp));
  } while (release_barrier());
  check_zones();
}

// --- memory that is guarded

std::map<uintptr_t, std::pair<size_t, size_t>> taken;           // start of the bytes: their number, and what lies before them
size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

struct sigaction before;
void on_fault(int number, siginfo_t* info, void* context) {
  if (!run.running) {
    sigaction(number, &before, nullptr);
    return;
  }
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const auto& [start, size] : taken) {
    if (at >= start + size.first && at < start + size.first + 2 * page())
      fail(who(place.thread) + " touches memory " + std::to_string(at - start - size.first) + " bytes behind the end of an operand");
    if (at < start && at + page() + size.second >= start)
      fail(who(place.thread) + " touches memory " + std::to_string(start - at) + " bytes before the start of an operand");
  }
  fail(who(place.thread) + " touches memory that is nobody's");
}

}  // namespace

void synchronise(int site) { wait(State::kAtBarrier, site); }

void check_alignment(const void* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0)
    fail(who(place.thread) + " takes " + std::to_string(bytes) + " bytes at once from an address that is no multiple of that");
}

uint64_t exchange(int site, unsigned lanes, uint64_t bits, unsigned distance) {
  Thread& self = run.threads[place.thread];
  self.lanes = lanes;
  self.bits = bits;
  self.distance = distance;
  wait(State::kAtShuffle, site);
  return run.threads[place.thread].bits;
}

void* shared_bytes(const void* key, size_t bytes) {
  auto [at, fresh] = run.arrays.try_emplace(key, run.shared_end, bytes);
  if (fresh) {
    run.shared_end += (bytes + 15) / 16 * 16 + kZone;
    if (run.shared_end > kSharedBytes) fail("a block wants more than " + std::to_string(kSharedBytes) + " bytes of shared memory");
  }
  return run.shared + at->second.first;
}

std::string guarded(const std::function<void()>& routine) {
  run.fault.clear();
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &before);
  run.running = true;
  if (sigsetjmp(run.escape, 1) == 0) {
    routine();
  } else {
    run.fibres.clear();                      // they stand in the middle of a kernel
    run.idle.clear();
  }
  run.running = false;
  run.kernel = nullptr;
  sigaction(SIGSEGV, &before, nullptr);
  return run.fault;
}

std::string run_grid(unsigned grid, unsigned threads, const std::string& order, const std::function<void()>& kernel) {
  if (threads == 0 || threads % kWarp != 0 || threads > 1024) return "a block has " + text(threads) + " threads, expected whole warps up to 1024";
  run.kernel = &kernel;
  run.threads.assign(threads, {});
  place.threads = threads, place.blocks = grid;
  return guarded([&] {
    Order turns(order);
    for (unsigned block : turns.of(grid)) {
      place.block = block;
      run_block(turns);
    }
  });
}

void* take(size_t bytes, bool at_end) {
  const size_t size = (std::max<size_t>(bytes, 1) + page() - 1) / page() * page();
  char* whole = static_cast<char*>(mmap(nullptr, size + 2 * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (whole == MAP_FAILED || mprotect(whole + page(), size, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::memset(whole + page(), kPoison, size);
  const size_t lead = at_end ? size - bytes : 0;
  char* memory = whole + page() + lead;
  taken[reinterpret_cast<uintptr_t>(memory)] = {bytes, lead};
  return memory;
}

void give(void* memory) {
  auto at = taken.find(reinterpret_cast<uintptr_t>(memory));
  const auto [bytes, lead] = at->second;
  const size_t size = (std::max<size_t>(bytes, 1) + page() - 1) / page() * page();
  munmap(static_cast<char*>(memory) - lead - page(), size + 2 * page());
  taken.erase(at);
}

}  // namespace host
