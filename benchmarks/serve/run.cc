// Checks what can be checked first, serves the trace in the modes asked for, and compares.
#include "benchmarks/serve/run.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "examples/serve/ranks.h"
#include "interop/device/device.h"

namespace cgtree::serve {
namespace {

constexpr std::int64_t kSeededRequests = 40;

std::vector<Request> load_requests(const Options& options) {
  if (!options.trace) {
    return seeded_requests(static_cast<std::uint64_t>(options.seed),
                           static_cast<std::size_t>(options.requests.value_or(kSeededRequests)));
  }
  std::vector<Request> requests = read_trace(from_caller(*options.trace));
  if (options.requests && *options.requests < std::ssize(requests)) {
    requests.resize(static_cast<std::size_t>(*options.requests));
  }
  return requests;
}

// Returns what is to be served through cgtree, in order.
std::vector<PolicyRun> runs_to_do(const Options& options) {
  if (options.mode == Mode::kEager) return {};
  if (options.policy) return {{.policy = *options.policy, .budget = options.budget}};
  std::vector<PolicyRun> runs;
  for (const Policy policy : {Policy::kExact, Policy::kBuckets, Policy::kSuggested}) {
    for (const std::int64_t budget : kBudgets)
      runs.push_back({.policy = policy, .budget = budget});
  }
  return runs;
}

// A Job holds what a run and a soak have in common.
struct Job {
  explicit Job(const Options& options)
      : requests((expect_json(options), load_requests(options))),
        devices(devices_from(parse_device(options.device), options.ranks)),
        scheduler(options.scheduler()),
        sizes(count_sizes(requests, scheduler)) {
    for (std::int64_t rank = 0; rank < options.ranks; ++rank)
      models.push_back(make_model(options, {rank, options.ranks}));
    for_each_rank(devices, [&](std::int64_t rank, const RankEnds& ends) {
      prime(*models[static_cast<std::size_t>(rank)], scheduler, ends);
    });
  }

  static void expect_json(const Options& options) {
    if (options.json) expect_writable(from_caller(*options.json));
  }
  std::unique_ptr<const Model> make_model(const Options& options, const Shard& shard) const {
    const Device device = devices[static_cast<std::size_t>(shard.rank)];
    const std::int64_t contexts = options.soak_seconds > 0 ? count_contexts(options) : 1;
    expect_memory(options.model, scheduler, contexts, device);
    const DType dtype = device.type == DeviceType::kHost ? DType::kFloat32 : DType::kBFloat16;
    const auto seed = static_cast<std::uint64_t>(options.seed);
    return std::make_unique<Model>(options.model, shard,
                                   random_weights(options.model, shard, seed, dtype, device),
                                   scheduler.context);
  }

  // Serves on all ranks, and returns the results of the first one.
  Served serve(const SizePlan& plan, bool compiled) const {
    std::vector<Served> served(devices.size());
    for_each_rank(devices, [&](std::int64_t rank, const RankEnds& ends) {
      const auto index = static_cast<std::size_t>(rank);
      served[index] =
          serve::serve(*models[index], requests, scheduler, plan, sizes.steps, compiled, ends);
    });
    for (const Served& other : served) {
      if (find_difference(served[0].tokens, other.tokens)) {
        throw InvalidArgument("the ranks have generated different tokens");
      }
    }
    return std::move(served[0]);
  }

  std::vector<Request> requests;
  std::vector<Device> devices;  // by rank
  SchedulerOptions scheduler;
  std::vector<std::unique_ptr<const Model>> models;  // the shards, by rank
  StepSizes sizes;
};

}  // namespace

Report run(const Options& options) {
  const Job job(options);
  Report report{.device = device_facts(job.devices[0]), .options = options};
  report.requests = job.requests.size();
  const auto serve_with = [&](Policy policy, std::int64_t budget, bool compiled) {
    const SizePlan plan(policy, budget, options.limits(), job.sizes);
    return job.serve(plan, compiled);
  };
  report.runs = runs_to_do(options);
  if (report.runs.empty()) report.eager = serve_with(Policy::kExact, 0, false);
  for (PolicyRun& run : report.runs) {
    run.served = serve_with(run.policy, run.budget, true);
    // Products of other sizes may be rounded otherwise, so each policy has its own eager run.
    if (options.mode == Mode::kBoth) {
      report.eager = serve_with(run.policy, run.budget, false);
      run.difference = find_difference(report.eager->tokens, run.served.tokens);
    }
    // Only the tokens of the last run are used again, and a whole trace has millions.
    if (&run != &report.runs.back()) run.served.tokens.clear();
  }
  if (options.json) write_whole(from_caller(*options.json), to_json(report).dump(2) + "\n");
  return report;
}

SoakReport run_soak(const Options& options) {
  if (options.ranks != 1) {
    throw InvalidArgument(
        "a soak has several contexts at once, and is for one rank: leave --ranks");
  }
  const Job job(options);
  SoakReport report = soak(*job.models[0], job.requests, options, job.sizes);
  nlohmann::ordered_json json = {{"device", to_string(job.devices[0])},
                                 {"commit", options.commit},
                                 {"command", options.command}};
  json.update(to_json(report));
  if (options.json) write_whole(from_caller(*options.json), json.dump(2) + "\n");
  return report;
}

}  // namespace cgtree::serve
