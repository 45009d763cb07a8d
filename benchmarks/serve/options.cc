// Parses the command line with CLI11 and rejects values that make no sense.
#include "benchmarks/serve/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>

#include "examples/serve/kernels.h"

namespace cgtree::serve {
namespace {

void add_work(CLI::App& app, Options& options) {
  app.add_option("--trace", options.trace,
                 "CSV of requests: TIMESTAMP,ContextTokens,GeneratedTokens; none: a seeded trace");
  app.add_option("--requests", options.requests,
                 "serve the first of them; default: all of the file's, or 40 seeded ones")
      ->check(CLI::Range(1, 10'000'000));
  app.add_option("--device", options.device, "auto is a GPU if there is one, else the host")
      ->check(CLI::IsMember({"auto", "host", "cuda"}))
      ->capture_default_str();
  const std::map<std::string, Mode> modes = {
      {"eager", Mode::kEager}, {"cgtree", Mode::kCgtree}, {"both", Mode::kBoth}};
  app.add_option("--mode", options.mode, "both also compares every token: eager, cgtree or both")
      ->transform(CLI::CheckedTransformer(modes).description(""))
      ->default_str("both");
  app.add_option("--step-ms", options.step_ms, "what a step takes on the virtual clock")
      ->check(CLI::Range(1, 60'000))
      ->capture_default_str();
  app.add_option("--prompt", options.prompt,
                 "tokens of a request's context to feed, at most; they go in at once")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of weights, prompts and the seeded trace")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  app.add_option("--verify", options.verify,
                 "compare each n-th replay of a recording with an eager run; 0: none")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--json", options.json, "file to write the results to");
  app.add_option("--commit", options.commit, "named in the results");
}

void add_policy(CLI::App& app, Options& options) {
  const std::map<std::string, std::optional<Policy>> policies = {
      {"exact", Policy::kExact},   {"buckets", Policy::kBuckets}, {"suggested", Policy::kSuggested},
      {"listed", Policy::kListed}, {"learned", Policy::kLearned}, {"all", std::nullopt}};
  app.add_option_function<std::string>(
         "--policy",
         [&options, policies](const std::string& name) { options.policy = policies.at(name); },
         "how sizes that vary are treated: exact records each; buckets pads to powers of two, "
         "suggested to sizes chosen for the trace, listed to those of --batches, learned to sizes "
         "found while it is served; all compares them but listed, for several budgets")
      ->check(CLI::IsMember(policies))
      ->default_str("suggested");
  app.add_option("--budget", options.budget,
                 "recordings that each function keeps at most; 0: no limit")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option(
         "--switch-nodes", options.switch_nodes,
         "recordings of a function that differ in at most so many nodes share an executable "
         "graph; 0: each has its own")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--batches", options.batches,
                 "batches that --policy=listed pads to, beside the largest: 1,2,4,8")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(CLI::Range(1, 4096));
  app.add_option("--suggest-from", options.suggest_from,
                 "--policy=suggested counts the sizes of so many requests, the first; default: all")
      ->check(CLI::Range(1, 10'000'000));
  app.add_option("--soak", options.soak_seconds,
                 "serve random parts of the trace for so many seconds, eagerly and through cgtree "
                 "side by side, and watch tokens and memory; 0: serve the trace once")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
}

void add_model(CLI::App& app, Options& options) {
  app.add_option_function<std::string>(
         "--model", [&options](const std::string& name) { options.model = named_config(name); },
         "a model of Llama's architecture with made-up weights: tiny, 1b or 8b")
      ->check(CLI::IsMember({"tiny", "1b", "8b"}))
      ->default_str("tiny");
  const auto add = [&app](const char* name, std::int64_t& value, const char* what, std::int64_t low,
                          std::int64_t high) {
    app.add_option(name, value, what)->check(CLI::Range(low, high))->capture_default_str();
  };
  add("--ranks", options.ranks, "devices that share the model", 1, 64);
  add("--max-batch", options.max_batch, "requests decoded together", 1, 4096);
  add("--layers", options.layers, "transformer layers; 0: those of the model", 0, 1000);
  add("--context", options.context, "tokens of a request; what it generates beyond is cut", 1,
      1'000'000);
}

}  // namespace

SchedulerOptions Options::scheduler() const {
  const std::int64_t tables = (context + kBlockSize - 1) / kBlockSize;
  return {.max_batch = static_cast<int>(max_batch),
          .max_prompt = std::min(prompt, context),
          .context = tables * kBlockSize,
          .blocks = max_batch * tables,
          .step_ns = step_ms * 1'000'000,
          .vocabulary = static_cast<std::int32_t>(model.vocabulary),
          .seed = static_cast<std::uint64_t>(seed)};
}

SizeLimits Options::limits() const {
  return {.batch = max_batch, .length = scheduler().max_prompt};
}

std::variant<Options, EarlyExit> parse_options(int argc, const char* const* argv) {
  Options options;
  for (int i = 0; i < argc; ++i)
    options.command += fmt::format("{}{}", i == 0 ? "" : " ", argv[i]);
  CLI::App app("Serves a trace of requests with a Llama model, eagerly and through cgtree.",
               "serve");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  add_work(app, options);
  add_policy(app, options);
  add_model(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return EarlyExit{0, app.help()};
  } catch (const CLI::ParseError& error) {
    return EarlyExit{2, fmt::format("{}; see --help", error.what())};
  }
  if (options.layers != 0) options.model.layers = options.layers;
  if ((options.policy == Policy::kListed) != !options.batches.empty()) {
    return EarlyExit{2, "--policy=listed and --batches need each other; see --help"};
  }
  if (options.suggest_from && options.policy != Policy::kSuggested) {
    return EarlyExit{2, "--suggest-from is for --policy=suggested; see --help"};
  }
  std::ranges::sort(options.batches);
  return options;
}

std::string from_caller(const std::string& path) {
  const char* const folder = std::getenv("BUILD_WORKING_DIRECTORY");
  if (folder == nullptr || path.empty()) return path;
  return (std::filesystem::path(folder) / path).string();
}

}  // namespace cgtree::serve
