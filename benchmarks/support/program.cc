// Parses the command line, notes the origin of the numbers, and runs the rows.
#include "benchmarks/support/program.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#ifdef CGTREE_WITH_CUDA
#include "benchmarks/support/cuda.h"
#endif

namespace cgtree::benchmarks {
namespace {

struct Attribute {
  DeviceAPI& api;
  int id;
  std::string operator()(DeviceAttribute attribute) const {
    const AttributeValue value = api.attribute(id, attribute);
    if (const auto* text = std::get_if<std::string>(&value)) return *text;
    if (const auto* number = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *number);
    return "none";
  }
};

std::string cuda_version(std::int64_t number) {  // CUDA counts 13000 for 13.0
  return number == 0 ? "none" : fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

void describe_run(Device device, const std::string& commit, const std::vector<std::string>& line) {
  const Attribute attribute{device_api(device), device.id};
  benchmark::AddCustomContext("commit", commit);
  benchmark::AddCustomContext("command", fmt::format("{}", fmt::join(line, " ")));
  benchmark::AddCustomContext("device", to_string(device));
  benchmark::AddCustomContext("device_name", attribute(DeviceAttribute::kName));
  benchmark::AddCustomContext("compute_capability", attribute(DeviceAttribute::kComputeCapability));
  const AttributeValue driver = attribute.api.attribute(device.id, DeviceAttribute::kDriverVersion);
  const auto* const number = std::get_if<std::int64_t>(&driver);
  benchmark::AddCustomContext("driver_cuda", cuda_version(number == nullptr ? 0 : *number));
  benchmark::AddCustomContext("driver", attribute(DeviceAttribute::kDriverRelease));
#ifdef CGTREE_WITH_CUDA
  benchmark::AddCustomContext("cuda", cuda_version(kCudaVersion));
#else
  benchmark::AddCustomContext("cuda", "none");
#endif
}

// Returns `path` relative to the caller's folder. `bazel run` starts programs in another folder and
// names the caller's; google/benchmark needs an absolute path.
std::string absolute(const std::string& path) {
  const char* const caller = std::getenv("BUILD_WORKING_DIRECTORY");
  return std::filesystem::absolute(std::filesystem::path(caller == nullptr ? "" : caller) / path);
}

int run_rows(const std::string& program, std::vector<std::string> flags) {
  flags.insert(flags.begin(), program);
  std::vector<char*> pointers;
  for (std::string& flag : flags)
    pointers.push_back(flag.data());
  int count = static_cast<int>(pointers.size());
  pointers.push_back(nullptr);
  benchmark::Initialize(&count, pointers.data());
  if (benchmark::ReportUnrecognizedArguments(count, pointers.data())) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv, const Program& program) {
  CLI::App app(program.question);
  app.allow_extras();
  app.footer("Other flags are google/benchmark's, such as --benchmark_filter=REGEX.");
  std::string device = "auto";
  std::string json;
  std::string commit = "unknown";
  Options options{.samples = 800};
  app.add_option("--device", device, "auto, host, cuda or cuda:N");
  app.add_option("--samples", options.samples, "samples per row (800)")->check(CLI::PositiveNumber);
  app.add_option("--json", json, "also write the results to this file");
  app.add_option("--commit", commit, "of the source; noted in the results");
  if (program.takes_traces) {
    app.add_option("--trace", options.traces, "allocation logs (RMM's CSV, gzip or not) to run");
  }
  CLI11_PARSE(app, argc, argv);
  try {
    options.device = parse_device(device);
    describe_run(options.device, commit, {argv, argv + argc});
    std::vector<std::string> flags = app.remaining();
    flags.insert(flags.begin(), "--benchmark_counters_tabular=true");
    if (!json.empty()) {
      flags.push_back("--benchmark_out=" + absolute(json));
      flags.push_back("--benchmark_out_format=json");
    }
    program.add_rows(options);
    return run_rows(argv[0], std::move(flags));
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace cgtree::benchmarks
