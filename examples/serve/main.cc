// Serves requests with a model of Llama's architecture, eagerly and through cgtree, and compares
// every token.
//
// Read in this order: scheduler.h (which request is fed), server.cc (the two compiled functions and
// their inputs), model.cc (the kernels of a step), kernels.h (the kernels; each .cu file has those
// of both devices), rounds.h (many tokens in one launch, with or without a draft model).
// weights.cc, safetensors.cc and config.cc make or load a model; ranks.cc connects devices that
// share a model.
//
// benchmarks/serve measures this server: request traces from files, other treatments of varying
// sizes, long runs. With --metrics-port, metrics_endpoint.cc answers `GET /metrics` of Prometheus
// meanwhile, for the running servers (docs/metrics.md). --event-file is for a timeline
// (docs/events.md). Exit status: 0 if all tokens are equal, 1 if not, 2 for errors.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "examples/serve/metrics_endpoint.h"
#include "examples/serve/numbers.h"
#include "examples/serve/server.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/watch.h"
#include "interop/device/device.h"

namespace cgtree::serve {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string device = "auto";
  std::size_t requests = 40;
  std::string model = "tiny";
  std::filesystem::path weights;  // a folder; empty: made up
  std::string ranks = "1";
  std::uint64_t seed = 1;
  float temperature = 0;
  std::int64_t rounds = 1;
  std::int64_t draft_layers = 0;  // 0: no draft
  std::int64_t proposals = 4;
  std::size_t verify = 0;
  int metrics_port = 0;    // 0: no endpoint
  std::string event_file;  // empty: no file
  SchedulerOptions scheduler;
};

// The running servers, one for each rank of the process, and their metrics as one page.
class RunningServers {
 public:
  // A Registration lists a server as long as it lives.
  class Registration {
   public:
    Registration(RunningServers& all, int rank, const Server& server) : all_(all), rank_(rank) {
      const std::lock_guard lock(all_.mutex_);
      all_.servers_[rank_] = &server;
    }
    ~Registration() {
      const std::lock_guard lock(all_.mutex_);
      all_.servers_.erase(rank_);
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    RunningServers& all_;
    const int rank_;
  };

  // Any thread.
  std::string page() const {
    const std::lock_guard lock(mutex_);
    std::vector<ContextMetrics> all;
    for (const auto& [rank, server] : servers_)
      all.emplace_back(server->metrics()).context = fmt::format("rank {}", rank);
    return metrics_text(all);
  }

 private:
  mutable std::mutex mutex_;
  std::map<int, const Server*> servers_;  // by rank
};

enum class Mode { kEager, kEagerUnpadded, kCgtree };

// The contexts of all ranks append to one file of events, under different names.
ContextOptions context_options(const Options& options, const Rank& rank, Mode mode) {
  if (mode != Mode::kCgtree) return {.extensions = {verify({.every = options.verify})}};
  return {.name = fmt::format("rank {}", rank.shard.rank),
          .extensions = {watch({.event_file = options.event_file, .event_file_has_replays = true}),
                         verify({.every = options.verify})}};
}

struct Served {
  std::vector<std::vector<std::int32_t>> tokens;  // by request
  std::int64_t generated = 0;                     // sum of their sizes
  std::int64_t steps = 0;
  std::int64_t rounds = 0;                                // handed out while steps ran
  std::chrono::duration<double> time{0};                  // total
  std::chrono::duration<double, std::micro> launched{0};  // until a step's work is enqueued
  FunctionStats decode;
  std::uint64_t recordings = 0;
  Verification verification;
};

AxisOptions padded_to(const std::vector<std::int64_t>& sizes) {
  AxisOptions axis;
  axis.policy = AxisPolicy::kBuckets;
  axis.sizes = sizes;
  return axis;
}

// Serves on one rank. The sizes of batches and prompts vary from step to step: each is padded to a
// power of two, so that few recordings serve all of them.
Served serve(const Model& model, const RoundsOptions& rounds, const Rank& rank,
             std::span<const Request> requests, const Options& options, Mode mode,
             RunningServers& running) {
  const std::vector<std::int64_t> batches = powers_of_two(options.scheduler.max_batch);
  const std::vector<std::int64_t> lengths = powers_of_two(options.scheduler.max_prompt);
  CompileOptions decode = decode_options(padded_to(batches));
  CompileOptions prefill = prefill_options(padded_to(batches), padded_to(lengths));
  decode.enabled = prefill.enabled = mode == Mode::kCgtree;  // otherwise the functions run eagerly
  Server server(model, options.scheduler, std::move(decode), std::move(prefill),
                options.temperature, rank, context_options(options, rank, mode), rounds);
  if (mode == Mode::kEager) server.pad_to({batches, batches, lengths});
  const RunningServers::Registration registration(running, rank.shard.rank, server);

  Scheduler scheduler(requests, options.scheduler);
  Served served;
  const auto begin = Clock::now();
  for (auto start = begin; scheduler.begin_step(); start = Clock::now()) {
    server.launch(scheduler);
    served.launched += Clock::now() - start;
    server.wait([&](std::span<const std::int32_t>) { ++served.rounds; });
    scheduler.end_step(server.first(), server.next(), server.depth());
    ++served.steps;
  }
  served.time = Clock::now() - begin;
  served.tokens = scheduler.tokens();
  served.generated = scheduler.generated();
  served.decode = server.decode_stats();
  served.recordings = server.stats().recordings;
  served.verification = server.verification();
  return served;
}

std::vector<Rank> make_ranks(const Options& options) {
  const Device device = parse_device(options.device);
  if (options.ranks == "mpi") return {make_mpi_rank(device.type)};
  return make_thread_ranks(device, std::stoll(options.ranks));
}

Model make_model(const Options& options, const ModelConfig& config, const Rank& rank) {
  Weights weights = options.weights.empty()
                        ? random_weights(config, rank.shard, options.seed, rank.device)
                        : load_weights(options.weights, config, rank.shard, rank.device);
  return Model(config, rank.shard, std::move(weights), options.scheduler.context);
}

// Returns the draft: the model's first layers, with its embedding and head, all shared. Source:
// Zhang et al., "Draft & Verify", 2023.
Model make_draft(const Model& model, std::int64_t layers) {
  ModelConfig config = model.config();
  config.layers = layers;
  Weights weights = model.weights();
  weights.layers.resize(static_cast<std::size_t>(layers));
  return Model(config, Shard(), std::move(weights), model.context());
}

// The results of a rank.
struct Results {
  Served eager, cgtree, unpadded;
};

Results serve_all(const Options& options, const ModelConfig& config, const Rank& rank,
                  RunningServers& running) {
  const std::vector<Request> requests = seeded_requests(options.seed, options.requests);
  const Model model = make_model(options, config, rank);
  std::unique_ptr<const Model> draft;
  RoundsOptions rounds{.most = options.rounds};
  if (options.draft_layers > 0) {
    const std::int64_t layers = std::min(options.draft_layers, config.layers);
    draft.reset(new Model(make_draft(model, layers)));
    rounds.draft = draft.get();
    rounds.proposals = options.proposals;
  }
  const auto serve_as = [&](Mode mode, std::size_t count) {
    return serve(model, rounds, rank, std::span(requests).first(count), options, mode, running);
  };
  serve_as(Mode::kEager, 1);  // loads the kernels
  return {serve_as(Mode::kEager, requests.size()), serve_as(Mode::kCgtree, requests.size()),
          options.temperature > 0 ? Served() : serve_as(Mode::kEagerUnpadded, requests.size())};
}

// Returns null without a port, and for an unusable port: serving continues without metrics.
std::unique_ptr<MetricsEndpoint> serve_metrics(int port, const RunningServers& running) {
  if (port == 0) return nullptr;
  try {
    return std::make_unique<MetricsEndpoint>(port, [&] { return running.page(); });
  } catch (const InvalidArgument& error) {
    fmt::print(stderr, "serve: {}\n", error.what());
    return nullptr;
  }
}

void print_table(const Served& eager, const Served& cgtree) {
  fmt::print("{:<24}{:>12}{:>12}\n", "", "eager", "cgtree");
  const auto rate = [](const Served& s) {
    return static_cast<double>(s.generated) / s.time.count();
  };
  const auto launch = [](const Served& s) {
    return s.launched.count() / static_cast<double>(s.steps);
  };
  fmt::print("{:<24}{:>12.1f}{:>12.1f}\n", "tokens/s", rate(eager), rate(cgtree));
  fmt::print("{:<24}{:>12.1f}{:>12.1f}\n", "host us per step", launch(eager), launch(cgtree));
  fmt::print("{:<24}{:>12}{:>12}\n", "recordings", "", cgtree.recordings);
  fmt::print("{:<24}{:>24}\n", "decode steps replayed",
             fmt::format("{} of {}", cgtree.decode.replays, cgtree.decode.calls));
  if (cgtree.rounds > 0)
    fmt::print("{:<24}{:>12}{:>12}\n", "rounds handed out", eager.rounds, cgtree.rounds);
}

int run(Options options) {
  const ModelConfig config = options.weights.empty() ? named_config(options.model)
                                                     : read_config(options.weights / "config.json");
  options.scheduler.vocabulary = static_cast<std::int32_t>(config.vocabulary);
  RunningServers running;
  const std::unique_ptr<MetricsEndpoint> endpoint = serve_metrics(options.metrics_port, running);
  std::vector<Rank> ranks = make_ranks(options);
  std::vector<Results> results(ranks.size());
  for_each_rank(ranks, [&](const Rank& rank) {
    results[static_cast<std::size_t>(&rank - ranks.data())] =
        serve_all(options, config, rank, running);
  });
  const auto& [eager, cgtree, unpadded] = results[0];
  for (const Results& other : results) {
    if (other.eager.tokens != eager.tokens || other.cgtree.tokens != cgtree.tokens)
      throw InvalidArgument("ranks differ about a token");
  }
  const bool equal = eager.tokens == cgtree.tokens;
  if (ranks[0].shard.rank > 0) return equal ? 0 : 1;  // another process prints

  const Device device = ranks[0].device;
  fmt::print("{} requests, {} tokens in {} steps on {} x {}\n{} parameters, {}\n\n",
             options.requests, eager.generated, eager.steps, ranks[0].shard.ranks,
             to_string(device), config.parameters(), name(number_type(device)));
  print_table(eager, cgtree);
  if (device.type == DeviceType::kHost)
    fmt::print("\non the host device both times include the computation itself\n");
  if (options.temperature == 0) {
    std::size_t same = 0;
    for (std::size_t i = 0; i < options.requests; ++i)
      same += eager.tokens[i] == unpadded.tokens[i] ? 1 : 0;
    fmt::print("\nwithout padding {} of {} requests get the same tokens\n", same, options.requests);
  }
  if (options.verify > 0) fmt::print("\n{}\n", to_string(cgtree.verification));
  fmt::print("\n{}\n", equal ? "every token is equal" : "tokens differ: this is a bug");
  return equal ? 0 : 1;
}

Options parse(int argc, char** argv, CLI::App& app) {
  Options o;
  app.option_defaults()->always_capture_default();
  app.add_option("--device", o.device, "auto is a GPU if there is one, else the host")
      ->check(CLI::IsMember({"auto", "host", "cuda"}));
  app.add_option("--requests", o.requests, "requests to serve")->check(CLI::Range(1, 10'000));
  app.add_option("--model", o.model, "a model with made-up weights: tiny, 1b or 8b")
      ->check(CLI::IsMember({"tiny", "1b", "8b"}));
  app.add_option("--weights", o.weights, "a folder with config.json and safetensors");
  app.add_option("--ranks", o.ranks, "devices that share the model; mpi: one for each process")
      ->check(CLI::Range(1, 64) | CLI::IsMember({"mpi"}));
  app.add_option("--max-batch", o.scheduler.max_batch, "requests decoded together")
      ->check(CLI::Range(1, 1024));
  app.add_option("--max-prompt", o.scheduler.max_prompt, "tokens of a prompt")
      ->check(CLI::Range(1, 8192));
  app.add_option("--temperature", o.temperature, "0 takes the most likely token")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--rounds", o.rounds, "tokens of each request in one launch, by a loop")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--draft-layers", o.draft_layers,
                 "the model's first layers propose tokens in each round; 0: none do")
      ->check(CLI::Range(0, 1000));
  app.add_option("--proposals", o.proposals, "of the draft, in each round")
      ->check(CLI::Range(1, 64));
  app.add_option("--seed", o.seed, "of weights, requests and what is drawn");
  app.add_option("--verify", o.verify,
                 "compare each n-th replay of a recording with an eager run; 0: none")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--metrics-port", o.metrics_port,
                 "answer GET /metrics of Prometheus on this port of 127.0.0.1; 0: do not")
      ->check(CLI::Range(0, 65'535));
  app.add_option("--event-file", o.event_file,
                 "append what happens to this file, for tools/trace_events; empty: do not");
  app.parse(argc, argv);
  const std::int64_t longest = o.scheduler.max_prompt + 144;  // length of a seeded request
  o.scheduler.context = (longest + kBlockSize - 1) / kBlockSize * kBlockSize;
  // Three quarters of the blocks that all slots may need, so that requests sometimes wait for
  // blocks.
  o.scheduler.blocks =
      std::max<std::int64_t>(o.scheduler.max_batch * 3 / 4, 1) * o.scheduler.context / kBlockSize;
  return o;
}

}  // namespace
}  // namespace cgtree::serve

int main(int argc, char** argv) {
  CLI::App app("Serves requests with a Llama model, eagerly and through cgtree.", "serve");
  try {
    return cgtree::serve::run(cgtree::serve::parse(argc, argv, app));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "serve: {}; see --help\n", error.what());
    return 2;
  }
}
