// Asks cuDNN itself for plans of our convolutions, for a GPU that it knows by a description alone: a program for `make gpu-compile`.
//   plans FOLDER-WITH-CUDNN DESCRIPTION
// Every operation graph that the back end makes must be one that cuDNN accepts and has a plan for. Nothing runs, and nothing is timed.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cudnn/libraries.h"
#include "cudnn/operation_graph.h"

using namespace rlflow::gpu;

namespace {

constexpr size_t kWorkspace = size_t{256} << 20, kMost = 5;

struct Case {
  std::string name;
  DnnConvolution convolution;
  bool wanted = true;                        // its absence is a failure; where not, cuDNN would compile a kernel on the GPU, or has none
};

DnnConvolution square(int64_t channels, int64_t extent, int64_t filters, int64_t window, int64_t per_group) {
  const int64_t pad = window / 2;
  DnnConvolution c;
  c.x = {1, channels, extent, extent}, c.w = {filters, per_group, window, window}, c.y = {1, filters, extent, extent};
  c.before = c.after = {pad, pad}, c.stride = c.dilation = {1, 1};
  return c;
}

std::vector<std::pair<std::string, DnnConvolution>> shapes() {
  std::vector<std::pair<std::string, DnnConvolution>> found = {{"3x3", square(64, 56, 64, 3, 64)},
                                                               {"1x1", square(256, 14, 64, 1, 256)},
                                                               {"32 groups", square(128, 28, 128, 3, 4)},
                                                               {"depthwise", square(96, 28, 96, 3, 1)},
                                                               {"odd channels", square(5, 9, 7, 3, 5)}};
  DnnConvolution uneven = square(64, 56, 64, 3, 64);
  uneven.before = {0, 0}, uneven.after = {1, 1}, uneven.stride = {2, 2}, uneven.y = {1, 64, 28, 28};
  found.emplace_back("uneven padding", uneven);
  DnnConvolution dilated = square(64, 28, 64, 3, 64);
  dilated.before = dilated.after = dilated.dilation = {2, 2};
  found.emplace_back("dilated", dilated);
  DnnConvolution line = square(8, 1, 8, 3, 8);
  line.x = {1, 8, 1, 20}, line.w = {8, 8, 1, 3}, line.y = {1, 8, 1, 20}, line.before = line.after = {0, 1};
  found.emplace_back("one axis", line);
  DnnConvolution space = square(8, 6, 8, 3, 8);
  space.x = {1, 8, 6, 6, 6}, space.w = {8, 8, 3, 3, 3}, space.y = {1, 8, 6, 6, 6};
  space.before = space.after = space.stride = space.dilation = {1, 1, 1};
  found.emplace_back("three axes", space);
  return found;
}

struct Numbers {
  const char* name;
  int type;
  bool exact;
};
constexpr Numbers kNumbers[] = {{"float32", kDnnFloat, true},
                                {"tf32", kDnnFloat, false},
                                {"float16", kDnnHalf, false},
                                {"bfloat16", kDnnBFloat16, false},
                                {"float64", kDnnDouble, false}};

std::vector<Case> make_cases() {
  std::vector<Case> cases;
  auto activation = [](int mode) {
    Activation made;
    made.mode = mode;
    return made;
  };
  Activation leaky, six;
  leaky.slope = 0.1, six.clipped = true, six.upper = 6;
  // Those of the last two are compiled on the GPU.
  const std::vector<std::pair<std::string, Activation>> others = {{"Sigmoid", activation(kModeSigmoid)}, {"Tanh", activation(kModeTanh)},
                                                                  {"Elu", activation(kModeElu)},         {"Clip", six},
                                                                  {"Gelu", activation(kModeGelu)},       {"LeakyRelu", leaky}};
  for (const Numbers& n : kNumbers)
    for (bool last : {false, true})
      for (const auto& [shape, plain] : shapes()) {
        const bool doubles = n.type == kDnnDouble;
        if (doubles && last) continue;
        DnnConvolution c = plain;
        c.type = n.type, c.exact = n.exact, c.channels_last = last;
        const std::string name = std::string(n.name) + ", channels " + (last ? "last" : "second") + ", " + shape;
        cases.push_back({name, c});
        c.bias = true;
        cases.push_back({name + ", bias", c});
        if (doubles) continue;
        c.residual = true;
        cases.push_back({name + ", residual, bias", c});
        c.activation = {activation(kModeRelu)};
        cases.push_back({name + ", residual, bias, Relu", c});
        c.residual = false;
        cases.push_back({name + ", bias, Relu", c});
        for (size_t i = 0; i < others.size() && shape == "3x3"; ++i) {
          c.activation = {others[i].second};
          cases.push_back({name + ", bias, " + others[i].first, c, i < 4});
        }
      }
  return cases;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: plans FOLDER DESCRIPTION\n"), 2;
  const Libraries l = Libraries::load({argv[1]}, false);
  if (!l.api.cudnnBackendExecute) return std::fprintf(stderr, "cuDNN was not found in %s\n", argv[1]), 1;
  std::ifstream file(argv[2]);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  int failed = 0;
  try {
    Descriptor device(l.api, kDescribeDevice, "describing a GPU");
    device.set(kDeviceText, kTypeChar, static_cast<int64_t>(text.size()) + 1, text.c_str()).finish();
    const DnnTarget target{&l.api, nullptr, device.raw()};
    size_t with_plans = 0;
    const std::vector<Case> cases = make_cases();
    for (const Case& one : cases) {
      std::string why_not;
      const std::vector<DnnPlan> plans = plans_for(target, one.convolution, kWorkspace, kMost, &why_not);
      with_plans += !plans.empty();
      if (!plans.empty()) continue;
      failed += one.wanted;
      std::printf("%s: %s: %s\n", one.wanted ? "FAILED" : "no plan here", one.name.c_str(), why_not.c_str());
    }
    std::printf("cuDNN %zu.%zu.%zu: plans for %zu of %zu convolutions on a GPU that is described to it\n", l.cudnn / 10000, l.cudnn / 100 % 100,
                l.cudnn % 100, with_plans, cases.size());
  } catch (const Failure& failure) {
    std::printf("FAILED: %s\n", failure.what());
    ++failed;
  }
  return failed ? 1 : 0;
}
