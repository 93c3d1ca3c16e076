// Generated(X, ...) -> Y: a kernel of the library of generated code that the session's options name. Attribute:
// function, its number there. The library says what shapes it takes; others are refused before it is called, whatever
// the model says.
#include "generated.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "isa.h"
#include "operators.h"

#if defined(__unix__) || defined(__APPLE__)
#include <dlfcn.h>
#endif

namespace rlflow::kernels {
namespace {

constexpr int32_t kMostInputs = 4;
constexpr int64_t kMostRank = 8;

std::string text_of(const std::vector<int64_t>& sizes) {
  std::string text = "[";
  for (const int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

struct GeneratedOperator : ort::CustomOp {
  const GeneratedLibrary* library;
};

class GeneratedKernel {
 public:
  static constexpr const char* kName = "Generated";
  static constexpr std::size_t kInputs = kMostInputs, kRequired = 1, kOutputs = 1;
  const Api api;

  GeneratedKernel(Api calls, const ort::KernelInfo* info, const ort::CustomOp& op) : api(calls) {
    const GeneratedLibrary& library = *static_cast<const GeneratedOperator&>(op).library;
    const int64_t number = Attributes{api, info}.integer("function", -1);
    if (number < 0 || number >= library.count) throw std::invalid_argument("Generated: the library has no function " + std::to_string(number) + ".");
    const GeneratedFunction& found = library.functions[number];
    if (found.inputs < 1 || found.inputs > kMostInputs || !found.shapes || !found.call)
      throw std::invalid_argument("Generated: function " + std::to_string(number) + " of the library is damaged.");
    call_ = found.call;
    const int64_t* at = found.shapes;
    for (int32_t tensor = 0; tensor <= found.inputs; ++tensor) {
      const int64_t rank = *at++;
      if (rank < 0 || rank > kMostRank) throw std::invalid_argument("Generated: a shape of function " + std::to_string(number) + " is damaged.");
      shapes_.emplace_back(at, at + rank);
      at += rank;
    }
  }

  void run(ort::KernelContext* context) const {
    const float* inputs[kMostInputs] = {};
    const std::size_t given = shapes_.size() - 1;
    for (std::size_t number = 0; number < given; ++number) {
      const ort::Value* value = api.input(context, number);
      const std::vector<int64_t> sizes = value ? api.shape(value) : std::vector<int64_t>{-1};
      if (sizes != shapes_[number])
        throw std::invalid_argument("Generated: input " + std::to_string(number) + " is " + text_of(sizes) + "; the code is for " +
                                    text_of(shapes_[number]) + ".");
      inputs[number] = api.data(value);
    }
    if (call_(inputs, api.output(context, 0, shapes_.back())) != 0) throw std::runtime_error("Generated: the code reported a failure.");
  }

 private:
  int32_t (*call_)(const float* const*, float*);
  std::vector<std::vector<int64_t>> shapes_;  // the inputs', then the output's
};

const GeneratedOperator& operator_for(const GeneratedLibrary& library) {
  static std::mutex mutex;
  static std::map<const GeneratedLibrary*, GeneratedOperator>& known = *new std::map<const GeneratedLibrary*, GeneratedOperator>;
  const std::lock_guard<std::mutex> lock(mutex);
  return known.try_emplace(&library, GeneratedOperator{operator_of<GeneratedKernel>(), &library}).first->second;
}

const GeneratedLibrary& opened(const std::string& path) {
#if defined(__unix__) || defined(__APPLE__)
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = dlerror();
    throw std::invalid_argument("The library of generated code cannot be loaded: " + std::string(why ? why : path) + ".");
  }
  const void* found = dlsym(handle, kGeneratedSymbol);
  if (!found) throw std::invalid_argument("The library " + path + " holds no generated code of this version.");
  return *static_cast<const GeneratedLibrary*>(found);
#else
  throw std::invalid_argument("Generated code cannot be loaded on this system: " + path + ".");
#endif
}

void check_isa(const char* needed) {
  const std::string name = needed ? needed : "";
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (name != name_of(isa)) continue;
    if (isa <= process_isa()) return;
    throw std::invalid_argument("The generated code is for " + name + ", and the kernels use " + name_of(process_isa()) + " here.");
  }
  throw std::invalid_argument("The generated code is for an instruction set that nobody knows.");
}

}  // namespace

const ort::CustomOp* generated_operator(const Api& api, const ort::SessionOptions* options) {
  std::size_t size = 0;
  if (!api.try_call<ort::GetSessionConfigEntry>(options, kGeneratedEntry, static_cast<char*>(nullptr), &size) || size == 0) return nullptr;
  std::string path(size, '\0');
  api.call<ort::GetSessionConfigEntry>(options, kGeneratedEntry, path.data(), &size);
  path.resize(path.find('\0') == std::string::npos ? size : path.find('\0'));  // the runtime counts the end
  if (path.empty()) return nullptr;
  if (path[0] != '/') throw std::invalid_argument("The library of generated code is named by an absolute path, not by " + path + ".");
  const GeneratedLibrary& library = opened(path);
  check_isa(library.isa);
  return &operator_for(library);
}

}  // namespace rlflow::kernels
