// Modules: built for the context's device, looked up by name, launched inside step functions.
#include "targets/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "targets/code_generator.h"
#include "tests/support/buildable_devices.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void scale_on_host(const LaunchDims&, const float* x, float* y, float factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    y[i] = factor * x[i];
}
void negate_on_host(const LaunchDims&, float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    x[i] = -x[i];
}

void nothing_on_host(const LaunchDims&) {
}

constexpr const char* kSource = R"(
extern "C" __global__ void scale(const float* x, float* y, float factor, long long n) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i];
}
template <typename T>
__global__ void negate(T* x, long long n) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) x[i] = -x[i];
}
)";

KernelSet kernels() {
  KernelSet set{.cuda_source = kSource};
  set.add<scale_on_host>("scale").add<negate_on_host>("negate<float>");
  return set;
}

template <typename Function>
std::string refusal(Function function) {
  try {
    function();
  } catch (const InvalidArgument& error) {
    return std::string(error.message());
  }
  return "nothing was thrown";
}

class ModuleTest : public TreeTest {
 protected:
  Module build() { return build_module(kernels(), Target::from_device(device())); }
};
INSTANTIATE_TEST_SUITE_P(Devices, ModuleTest, ::testing::ValuesIn(buildable_devices()),
                         [](const auto& info) { return info.param.name; });

LaunchDims dims(std::int64_t n) {
  return {.grid = {static_cast<std::uint32_t>((n + 255) / 256)}, .block = {256}};
}

TEST_P(ModuleTest, ItsKernelsAreRecordedAndReplayed) {
  const Module module = build();
  const auto scale = module.kernel<const float*, float*, float, std::int64_t>("scale");
  const auto negate = module.kernel<float*, std::int64_t>("negate<float>");
  auto f = compile(context(), "f", [&](Tensor x) {
    const std::int64_t n = x.elements();
    Tensor y = empty(x.shape(), DType::kFloat32);
    launch(current_stream(), scale, dims(n), x.data<float>(), y.data<float>(), 3.0f, n);
    launch(current_stream(), negate, dims(n), y.data<float>(), n);
    return y;
  });
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(1000);
    EXPECT_EQ(values(f(tensor({1000}, x))), affine_of(x, -3, 0));
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

TEST_P(ModuleTest, MayBeBuiltInsideAStepFunction) {
  auto f = compile(context(), "f", [&](Tensor x) {
    const auto negate = build().kernel<float*, std::int64_t>("negate<float>");
    Tensor y = affine(x, 2, 0);
    launch(current_stream(), negate, dims(x.elements()), y.data<float>(), x.elements());
    return y;
  });
  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(10);
    EXPECT_EQ(values(f(tensor({10}, x))), affine_of(x, -2, 0));
  }
}

TEST_P(ModuleTest, AKernelMayHaveNoParameters) {
  KernelSet set{.cuda_source = "__global__ void nothing() {}"};
  set.add<nothing_on_host>("nothing");
  const auto nothing = build_module(set, Target::from_device(device())).kernel<>("nothing");
  const Stream stream(device());

  launch(stream, nothing, {});
  stream.synchronize();
}

TEST_P(ModuleTest, EveryKernelOfTheSetIsFoundByName) {
  const Module module = build();
  EXPECT_THAT(module.names(), ElementsAre("scale", "negate<float>"));
  EXPECT_EQ(module.target(), Target::from_device(device()));
  EXPECT_THAT(refusal([&] { (void)module.kernel<float*>("turn"); }),
              HasSubstr("has no kernel 'turn'; there are scale, negate<float>"));
}

TEST_P(ModuleTest, OtherParametersAreRefusedBeforeALaunch) {
  const Module module = build();
  EXPECT_EQ(refusal([&] { (void)module.kernel<float*>("negate<float>"); }),
            "kernel 'negate<float>' takes parameters of {8, 8} bytes, and was asked for with {8}");
  EXPECT_THAT(refusal([&] { (void)module.kernel<float*, int>("negate<float>"); }),
              HasSubstr("was asked for with {8, 4}"));
}

TEST_P(ModuleTest, TheSameIsBuiltOnce) {
  const auto function = [](const Module& module) {
    return module.kernel<float*, std::int64_t>("negate<float>").function.name;
  };
  EXPECT_EQ(function(build()), function(build()));
  KernelSet other = kernels();
  other.cuda_source += " ";
  EXPECT_NE(function(build()), function(build_module(other, Target::from_device(device()))));
}

TEST(BuildModuleTest, NamesMustBeThereAndTheirOwn) {
  KernelSet set;
  EXPECT_THAT(refusal([&] { build_module(set, Target("host")); }), HasSubstr("no kernels"));
  set.add<negate_on_host>("a").add<scale_on_host>("a");
  EXPECT_THAT(refusal([&] { build_module(set, Target("host")); }),
              HasSubstr("kernel 'a' has no name of its own"));
}

TEST(BuildModuleTest, AKernelWithoutWhatItsTargetNeedsIsRefused) {
  KernelSet of_cuda{.cuda_source = kSource};
  of_cuda.add("scale");
  EXPECT_THAT(refusal([&] { build_module(of_cuda, Target("host")); }),
              HasSubstr("kernel 'scale' has no host body"));
  KernelSet of_host;
  of_host.add<negate_on_host>("negate");
  const std::string message = refusal([&] { build_module(of_host, Target("cuda")); });
  if (message.find("is not enabled") == std::string::npos &&
      message.find("need CUDA 12.8") == std::string::npos) {
    EXPECT_THAT(message, HasSubstr("kernel 'negate' has no CUDA source"));
  }
}

// In TVM the error for a missing generator is "target.build.<kind> is not enabled".
TEST(BuildModuleTest, AKindOfTheUsersTakesAGeneratorOfTheUsers) {
  register_target_kind({"backwards", DeviceType::kHost, {}, {}, nullptr});
  KernelSet set;
  set.add<negate_on_host>("negate");
  EXPECT_THAT(refusal([&] { build_module(set, Target("backwards")); }),
              HasSubstr("target.build.backwards is not enabled; there are host"));
  EXPECT_NE(build_problem("backwards"), "");

  const auto generate = [](const KernelSet& kernels, const Target&) {
    std::vector<ModuleFunction> functions;
    for (const NamedKernel& kernel : kernels.kernels)
      functions.push_back({std::string(kernel.name.rbegin(), kernel.name.rend()), kernel.host});
    return functions;
  };
  register_code_generator({"backwards", generate});

  EXPECT_EQ(build_problem("backwards"), "");
  EXPECT_THAT(build_module(set, Target("backwards")).names(), ElementsAre("etagen"));
  EXPECT_THROW(register_code_generator({"backwards", generate}), InvalidArgument);
  EXPECT_THROW(register_code_generator({"cuda", generate}), InvalidArgument);
}

}  // namespace
}  // namespace cgtree::testing
