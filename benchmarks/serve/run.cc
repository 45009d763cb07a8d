// Makes all possible checks first, serves the trace in the requested modes, and compares.
#include "benchmarks/serve/run.h"

#include <algorithm>
#include <memory>
#include <span>

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

// Returns the runs through cgtree, in order.
std::vector<PolicyRun> runs_to_do(const Options& options) {
  if (options.mode == Mode::kEager) return {};
  if (options.policy) return {{.policy = *options.policy, .budget = options.budget}};
  std::vector<PolicyRun> runs;
  for (const Policy policy :
       {Policy::kExact, Policy::kBuckets, Policy::kSuggested, Policy::kLearned}) {
    for (const std::int64_t budget : kBudgets)
      runs.push_back({.policy = policy, .budget = budget});
  }
  return runs;
}

// A Job holds the common parts of a run and a soak.
struct Job {
  explicit Job(const Options& options)
      : requests((expect_json(options), load_requests(options))),
        ranks(make_thread_ranks(parse_device(options.device), options.ranks)),
        scheduler(options.scheduler()),
        sizes(count_sizes(requests, scheduler)),
        seen(options.suggest_from ? count_sizes(first(*options.suggest_from), scheduler) : sizes),
        verify_every(static_cast<std::size_t>(options.verify)) {
    for (const Rank& rank : ranks)
      models.push_back(make_model(options, rank));
    for_each_rank(ranks, [&](const Rank& rank) {
      prime(*models[static_cast<std::size_t>(rank.shard.rank)], scheduler, rank);
    });
  }

  static void expect_json(const Options& options) {
    if (options.json) expect_writable(from_caller(*options.json));
  }
  std::span<const Request> first(std::int64_t count) const {
    return std::span(requests).first(std::min(requests.size(), static_cast<std::size_t>(count)));
  }
  std::unique_ptr<const Model> make_model(const Options& options, const Rank& rank) const {
    const std::int64_t contexts = options.soak_seconds > 0 ? count_contexts(options) : 1;
    expect_memory(options.model, scheduler, contexts, rank.device);
    const auto seed = static_cast<std::uint64_t>(options.seed);
    return std::make_unique<Model>(options.model, rank.shard,
                                   random_weights(options.model, rank.shard, seed, rank.device),
                                   scheduler.context);
  }

  // Serves on all ranks, and returns the results of the first one.
  Served serve(const SizePlan& plan, bool compiled) {
    std::vector<Served> served(ranks.size());
    for_each_rank(ranks, [&](const Rank& rank) {
      const auto index = static_cast<std::size_t>(rank.shard.rank);
      served[index] = serve::serve(*models[index], requests, scheduler, plan, sizes.steps, compiled,
                                   rank, verify_every);
    });
    for (const Served& other : served) {
      if (find_difference(served[0].tokens, other.tokens)) {
        throw InvalidArgument("the ranks have generated different tokens");
      }
    }
    return std::move(served[0]);
  }

  std::vector<Request> requests;
  std::vector<Rank> ranks;
  SchedulerOptions scheduler;
  std::vector<std::unique_ptr<const Model>> models;  // the shards, by rank
  StepSizes sizes;
  StepSizes seen;  // of the requests from which sizes are suggested
  std::size_t verify_every;
};

}  // namespace

Report run(const Options& options) {
  Job job(options);
  Report report{.device = device_facts(job.ranks[0].device), .options = options};
  report.requests = job.requests.size();
  const auto serve_with = [&](Policy policy, std::int64_t budget, bool compiled) {
    const SizePlan plan(policy, budget, options.limits(), job.seen, options.batches);
    return job.serve(plan.sharing(options.switch_nodes), compiled);
  };
  report.runs = runs_to_do(options);
  if (report.runs.empty()) report.eager = serve_with(Policy::kExact, 0, false);
  for (PolicyRun& run : report.runs) {
    run.served = serve_with(run.policy, run.budget, true);
    // Products of other sizes may be rounded differently, so each policy has its own eager run.
    // Learned sizes change meanwhile.
    if (options.mode == Mode::kBoth && run.policy != Policy::kLearned) {
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
  if (options.policy == Policy::kLearned) {
    throw InvalidArgument(
        "a soak compares tokens with those of eager steps that are padded alike, and sizes that "
        "are "
        "learned change: take another --policy");
  }
  const Job job(options);
  SoakReport report = soak(*job.models[0], job.requests, options, job.seen);
  nlohmann::ordered_json json = {{"device", to_string(job.ranks[0].device)},
                                 {"commit", options.commit},
                                 {"command", options.command}};
  json.update(to_json(report));
  if (options.json) write_whole(from_caller(*options.json), json.dump(2) + "\n");
  return report;
}

}  // namespace cgtree::serve
