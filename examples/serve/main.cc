// Serves requests with a small transformer, eagerly and through cgtree, and compares every token.
//
// benchmarks/serve measures this server: request traces from files, other ways to treat sizes that
// vary, long runs. Exit status: 0 if all tokens are equal, 1 if not, 2 for errors.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <exception>
#include <string>

#include "examples/serve/server.h"
#include "interop/device/device.h"

namespace cgtree::serve {
namespace {

using Clock = std::chrono::steady_clock;

struct Served {
  std::vector<std::vector<std::int32_t>> tokens;  // by request
  std::int64_t generated = 0;                     // sum of their sizes
  std::int64_t steps = 0;
  Clock::duration time{0};       // in all
  Clock::duration host_time{0};  // of it, until a step's work was enqueued
  FunctionStats decode;
  ContextStats context;

  double tokens_per_second() const {
    return static_cast<double>(generated) / std::chrono::duration<double>(time).count();
  }
  double host_us_per_step() const {
    return std::chrono::duration<double, std::micro>(host_time).count() /
           static_cast<double>(steps);
  }
};

// The sizes of batches and prompts vary from step to step. Each axis is padded to a power of two,
// so that few recordings serve all of them.
AxisOptions padded_to_powers_of_two(std::int64_t largest) {
  AxisOptions axis;
  axis.policy = AxisPolicy::kBuckets;
  axis.sizes = powers_of_two(largest);
  return axis;
}

Served serve(const Model& model, std::span<const Request> requests, const SchedulerOptions& options,
             bool through_cgtree) {
  const AxisOptions batch = padded_to_powers_of_two(options.max_batch);
  const AxisOptions length = padded_to_powers_of_two(options.max_prompt);
  CompileOptions decode = decode_options(batch);
  CompileOptions prefill = prefill_options(batch, length);
  decode.enabled = prefill.enabled = through_cgtree;  // else the same functions run eagerly
  Server server(model, options.max_prompt, std::move(decode), std::move(prefill));

  Scheduler scheduler(requests, options);
  Served served;
  const auto begin = Clock::now();
  for (auto start = begin; scheduler.begin_step(); start = Clock::now()) {
    server.launch(scheduler);
    served.host_time += Clock::now() - start;
    server.wait();
    scheduler.end_step(server.first(), server.next());
    ++served.steps;
  }
  served.time = Clock::now() - begin;
  served.tokens = scheduler.tokens();
  served.generated = scheduler.generated();
  served.decode = server.decode_stats();
  served.context = server.stats();
  return served;
}

void print_table(const Served& eager, const Served& cgtree) {
  const auto row = [](const char* what, const std::string& a, const std::string& b) {
    fmt::print("{:<24}{:>12}{:>12}\n", what, a, b);
  };
  const auto number = [](double value) { return fmt::format("{:.1f}", value); };
  row("", "eager", "cgtree");
  row("tokens/s", number(eager.tokens_per_second()), number(cgtree.tokens_per_second()));
  row("host us per step", number(eager.host_us_per_step()), number(cgtree.host_us_per_step()));
  row("recordings", "", fmt::format("{}", cgtree.context.recordings));
  row("decode steps replayed", "",
      fmt::format("{} of {}", cgtree.decode.replays, cgtree.decode.calls));
  row("pool bytes", "", fmt::format("{}", cgtree.context.pool_reserved_bytes));
}

int run(Device device, std::size_t count) {
  const std::vector<Request> requests = seeded_requests(1, count);
  const SchedulerOptions options;
  const ModelSizes sizes;
  const Model model(sizes, 1, device);
  serve(model, std::span(requests).first(1), options, false);  // loads the kernels
  const Served eager = serve(model, requests, options, false);
  const Served cgtree = serve(model, requests, options, true);

  fmt::print("{} requests, {} tokens in {} steps on {}\n\n", count, eager.generated, eager.steps,
             to_string(device));
  print_table(eager, cgtree);
  if (device.type == DeviceType::kHost)
    fmt::print("\non the host device both times include the computation itself\n");
  const bool equal = eager.tokens == cgtree.tokens;
  fmt::print("\n{}\n", equal ? "every token is equal" : "tokens differ: this is a bug");
  return equal ? 0 : 1;
}

}  // namespace
}  // namespace cgtree::serve

int main(int argc, char** argv) {
  std::string device = "auto";
  std::size_t requests = 40;
  CLI::App app("Serves requests with a small transformer, eagerly and through cgtree.", "serve");
  app.add_option("--device", device, "auto is a GPU if there is one, else the host")
      ->check(CLI::IsMember({"auto", "host", "cuda"}));
  app.add_option("--requests", requests, "requests to serve (40)")->check(CLI::Range(1, 10'000));
  try {
    app.parse(argc, argv);
    return cgtree::serve::run(cgtree::parse_device(device), requests);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "serve: {}; see --help\n", error.what());
    return 2;
  }
}
