// The command line of trace_replay.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "allocator/pool/page_map.h"
#include "allocator/pool/segment_source.h"
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
  std::string growth = "fast";
  ReplayOptions options;
};

// Made-up segments that grow, with made-up pages; 1 TiB apart.
class MadeUpPages final : public SegmentSource {
 public:
  void* allocate(std::size_t, StreamId) override {
    return reinterpret_cast<void*>(++segments_ << 40);
  }
  void free(void*, std::size_t, StreamId) noexcept override {}
  bool grow(void*, std::size_t, std::size_t, StreamId) override { return true; }
  std::size_t shrink(void*, std::size_t, std::size_t least, StreamId) noexcept override {
    return least;
  }
  void map(void*, std::size_t, std::size_t, std::size_t, StreamId) override {}
  bool unmap(void*, std::size_t, std::size_t, std::size_t, StreamId) noexcept override {
    return true;
  }

 private:
  std::uintptr_t segments_ = 0;
};

// Returns the path relative to the user's folder: `bazel run` starts programs in another folder.
std::string absolute(const std::string& path) {
  const char* const caller = std::getenv("BUILD_WORKING_DIRECTORY");
  return std::filesystem::path(caller == nullptr ? "" : caller) / path;
}

ReplayResult replay_on(const std::string& device, const Trace& trace,
                       const ReplayOptions& options) {
  const bool has_pages = options.growth == Growth::kInPages;
  if (device == "simulated" && has_pages) {
    MadeUpPages source;
    return replay(trace, source, options);
  }
  if (device == "simulated") {
    MadeUpSegmentSource source;
    return replay(trace, source, options);
  }
  if (has_pages) {
    VirtualSegmentSource source(parse_device(device), std::size_t{32} << 30, PageMap::kPage);
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
                 "of the pool: fast (PyTorch's segment sizes, the default) or pages (as "
                 "pools_grow_in_place "
                 "has it)")
      ->check(CLI::IsMember({"fast", "pages"}));
  try {
    app.parse(argc, argv);
    if (arguments.growth == "pages") arguments.options.growth = Growth::kInPages;
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
