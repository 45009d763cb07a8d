// Checks, then serves the trace in the modes asked for, then compares.
#include "examples/serve/run.h"

#include <algorithm>

#include "examples/serve/json_file.h"
#include "examples/serve/seeded_trace.h"
#include "interop/registry.h"

namespace cgtree::serve {
namespace {

constexpr std::int64_t kSeededRequests = 40;

std::vector<Request> load_requests(const Options& options) {
  if (!options.trace) {
    return seeded_trace(static_cast<std::uint64_t>(options.seed),
                        static_cast<std::size_t>(options.requests.value_or(kSeededRequests)));
  }
  std::vector<Request> requests = read_trace(from_caller(*options.trace));
  if (options.requests && *options.requests < std::ssize(requests)) {
    requests.resize(static_cast<std::size_t>(*options.requests));
  }
  return requests;
}

}  // namespace

Report run(const Options& options) {
  Report report{.options = options};
  if (options.json) expect_writable(from_caller(*options.json));
  const std::vector<Request> requests = load_requests(options);
  report.requests = requests.size();
  const Device device = parse_device(options.device);
  report.device = device_facts(device);
  expect_memory(options.sizes, device);

  const Model model(options.sizes, static_cast<std::uint64_t>(options.seed), device);
  prime(model);
  const auto serve_with = [&](bool compiled) {
    return serve(model, requests, options.scheduler(), compiled);
  };
  if (options.mode != Mode::kCgtree) report.eager = serve_with(false);
  if (options.mode != Mode::kEager) report.cgtree = serve_with(true);
  if (options.mode == Mode::kBoth) {
    report.difference = find_difference(report.eager->tokens, report.cgtree->tokens);
  }
  if (options.json) write_whole(from_caller(*options.json), to_json(report).dump(2) + "\n");
  return report;
}

}  // namespace cgtree::serve
