// A kernel that is built from text when the program runs, and used in a step function like any
// other.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "cgtree/cgtree.h"
#include "targets/code_generator.h"

namespace cgtree::jit_kernel {
namespace {

// On a GPU the formula is compiled.
constexpr const char* kSource = R"(
extern "C" __global__ void apply(const float* input, float* output, long long n) {{
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = input[i];
  output[i] = {};
}}
)";
// The host device has no compiler, so it runs this function, which is linked into the program.
constexpr const char* kHostFormula = "x * x + 1";
void apply_on_host(const LaunchDims&, const float* input, float* output, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    output[i] = input[i] * input[i] + 1;
}

Module build(const std::string& formula, const Target& target) {
  KernelSet kernels;
  kernels.cuda_source = fmt::format(kSource, formula);
  kernels.add<apply_on_host>("apply");
  return build_module(kernels, target);
}

void run(const std::string& device, const std::string& formula) {
  Context context(parse_device(device));
  const Target target = Target::from_device(context.device());
  if (target.kind().name == "host" && formula != kHostFormula) {
    throw InvalidArgument(fmt::format("the host device knows one formula: {}", kHostFormula));
  }
  const Module module = build(formula, target);
  const auto apply = module.kernel<const float*, float*, std::int64_t>("apply");
  const auto f = compile(context, "f", [&](Tensor x) {
    const std::int64_t n = x.elements();
    Tensor y = empty(x.shape(), DType::kFloat32);
    launch(current_stream(), apply,
           {.grid = {static_cast<std::uint32_t>((n + 255) / 256)}, .block = {256}}, x.data<float>(),
           y.data<float>(), n);
    return y;
  });

  fmt::print("f(x) = {} for {}\n", formula, target.to_json());
  for (int step = 0; step < 4; ++step) {
    context.mark_step();  // outputs of the last step may now be overwritten
    const std::vector<float> x = {0, 1, 2, static_cast<float>(step)};
    const Tensor y = f(from_host<float>({4}, x, context.device()));
    fmt::print("f({}) = {}\n", fmt::join(x, ", "), fmt::join(y.to_vector<float>(), ", "));
  }
  // Two of the four calls are replays: the recording launches the kernel that was built above.
  fmt::print("{} replays\n", f.stats().replays);
}

}  // namespace
}  // namespace cgtree::jit_kernel

int main(int argc, char** argv) {
  CLI::App app("Builds a kernel from a formula at run time and replays it in a step function.");
  std::string device = "auto";
  std::string formula = cgtree::jit_kernel::kHostFormula;
  app.add_option("--device", device, "auto (a GPU, else the host device), host, cuda or cuda:N");
  app.add_option("--formula", formula, "CUDA C++ of a float x, e.g. 'sinf(x)'; needs a GPU");
  try {
    app.parse(argc, argv);
    cgtree::jit_kernel::run(device, formula);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const cgtree::Error& error) {
    fmt::print(stderr, "jit_kernel: {}\n", error.message());
    return 2;
  }
}
