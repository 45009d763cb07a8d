// The command line of trace_replay.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "allocator/segments/device_sources.h"
#include "base/error.h"
#include "interop/device/device.h"
#include "tests/support/made_up_segment_source.h"
#include "tests/support/rmm_log.h"
#include "tools/trace_replay/replay.h"
#include "tools/trace_replay/report.h"

namespace cgtree::tools {
namespace {

struct Arguments {
  std::string trace;
  std::string json;
  std::string device = "simulated";
  std::string growth = "compact";
  ReplayOptions options;
};

// Returns the path relative to the folder of the user: `bazel run` starts programs elsewhere.
std::string absolute(const std::string& path) {
  const char* const caller = std::getenv("BUILD_WORKING_DIRECTORY");
  return std::filesystem::path(caller == nullptr ? "" : caller) / path;
}

ReplayResult replay_on(const std::string& device, const Trace& trace,
                       const ReplayOptions& options) {
  if (device == "simulated") {
    MadeUpSegmentSource source;
    return replay(trace, source, options);
  }
  DeviceSegmentSource source(parse_device(device));
  return replay(trace, source, options);
}

void run(const Arguments& arguments) {
  const Trace trace = read_rmm_log(absolute(arguments.trace));
  const ReplayResult result = replay_on(arguments.device, trace, arguments.options);
  if (!arguments.json.empty()) {
    write_file(absolute(arguments.json),
               to_json(trace, result, {arguments.trace, arguments.device, arguments.growth}));
  }
  fmt::print("{}", to_text(trace, result));
}

int parse_and_run(int argc, char** argv) {
  CLI::App app(
      "Replays a log of allocations on a pool, and says how much memory and time it takes.");
  app.footer(
      "The log has RMM's format: a CSV file, plain or gzip, with the columns\n"
      "Thread,Time,Action,Pointer,Size,Stream.\n"
      "Exit status: 0 done, 1 no room or no device, 2 bad usage or a broken log (no JSON then).");
  Arguments arguments;
  app.add_option("--trace", arguments.trace, "the log")->required();
  app.add_option("--json", arguments.json, "also write the results to this file");
  app.add_option("--device", arguments.device,
                 "simulated (no memory, the default), host, cuda or cuda:N");
  app.add_option("--rounds", arguments.options.rounds, "timed replays; the fastest counts (20)")
      ->check(CLI::PositiveNumber);
  app.add_option("--growth", arguments.growth,
                 "of the pool: compact (the default) or fast (PyTorch's segment sizes)")
      ->check(CLI::IsMember({"compact", "fast"}));
  try {
    app.parse(argc, argv);
    if (arguments.growth == "fast") arguments.options.growth = Growth::kFast;
    run(arguments);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const InvalidArgument& error) {
    fmt::print(stderr, "trace_replay: {}\n", error.message());
    return 2;
  } catch (const Error& error) {
    fmt::print(stderr, "trace_replay: {}\n", error.message());
    return 1;
  }
}

}  // namespace
}  // namespace cgtree::tools

int main(int argc, char** argv) {
  return cgtree::tools::parse_and_run(argc, argv);
}
