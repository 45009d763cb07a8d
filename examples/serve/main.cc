// Serves requests with a model of Llama's architecture, eagerly and through cgtree, and compares
// every token.
//
// To read, in this order: scheduler.h (which request is fed), server.cc (the two compiled functions
// and their inputs), model.cc (the kernels of a step), kernels.h and attention.cuh (the kernels).
// weights.cc, safetensors.cc and config.cc make or load a model; ranks.cc divides it.
//
// benchmarks/serve measures this server: request traces from files, other ways to treat sizes that
// vary, long runs. Exit status: 0 if all tokens are equal, 1 if not, 2 for errors.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "examples/serve/numbers.h"
#include "examples/serve/server.h"
#include "interop/device/device.h"

namespace cgtree::serve {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string device = "auto";
  std::size_t requests = 40;
  std::string model = "tiny";
  std::string weights;  // a folder; empty: made up
  std::string dump;     // a folder; empty: serve
  std::int64_t ranks = 1;
  std::uint64_t seed = 1;
  SchedulerOptions scheduler;
  Sampling sampling;
};

enum class Mode { kEager, kEagerUnpadded, kCgtree };

struct Served {
  std::vector<std::vector<std::int32_t>> tokens;  // by request
  std::int64_t generated = 0;                     // sum of their sizes
  std::int64_t steps = 0;
  std::int64_t rows = 0, padded = 0;  // of decode steps, with the padding; the padding
  Clock::duration time{0};            // in all
  Clock::duration host_time{0};       // of it, until a step's work was enqueued
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

AxisOptions padded_to(const std::vector<std::int64_t>& sizes) {
  AxisOptions axis;
  axis.policy = AxisPolicy::kBuckets;
  axis.sizes = sizes;
  return axis;
}

// Serves on one rank. The sizes of batches and prompts vary from step to step: each is padded to a
// power of two, so that few recordings serve all of them.
Served serve(const Model& model, std::span<const Request> requests, const SchedulerOptions& options,
             ServerOptions server_options, Mode mode) {
  const std::vector<std::int64_t> batches = powers_of_two(options.max_batch);
  const std::vector<std::int64_t> lengths = powers_of_two(options.max_prompt);
  CompileOptions decode = decode_options(padded_to(batches));
  CompileOptions prefill = prefill_options(padded_to(batches), padded_to(lengths));
  decode.enabled = prefill.enabled = mode == Mode::kCgtree;  // else the functions run eagerly
  Server server(model, server_options, std::move(decode), std::move(prefill));
  if (mode == Mode::kEager) server.pad_to({batches, batches, lengths});

  Scheduler scheduler(requests, options);
  Served served;
  const auto begin = Clock::now();
  for (auto start = begin; scheduler.begin_step(); start = Clock::now()) {
    server.launch(scheduler);
    served.host_time += Clock::now() - start;
    server.wait();
    const std::int64_t rows = std::ssize(scheduler.rows());
    if (rows > 0 && mode != Mode::kEagerUnpadded) {
      served.rows += StepBuckets::pad(batches, rows);
      served.padded += StepBuckets::pad(batches, rows) - rows;
    }
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

// A Ranks is a model that is divided between devices, with a thread for each.
class Ranks {
 public:
  explicit Ranks(const Options& options) : options_(options) {
    devices_ = devices_from(parse_device(options.device), options.ranks);
    const std::filesystem::path folder = options.weights;
    config_ = folder.empty() ? named_config(options.model) : read_config(folder / "config.json");
    options_.scheduler.vocabulary = static_cast<std::int32_t>(config_.vocabulary);
    const DType dtype = devices_[0].type == DeviceType::kHost ? DType::kFloat32 : DType::kBFloat16;
    for (std::int64_t rank = 0; rank < options.ranks; ++rank) {
      const Device device = devices_[static_cast<std::size_t>(rank)];
      const Shard shard{rank, options.ranks};
      Weights weights = folder.empty() ? random_weights(config_, shard, options.seed, dtype, device)
                                       : load_weights(folder, config_, shard, dtype, device);
      models_.push_back(
          std::make_unique<Model>(config_, shard, std::move(weights), options_.scheduler.context));
    }
  }

  const ModelConfig& config() const { return config_; }
  const Model& model() const { return *models_[0]; }

  // Returns the results of the first rank. Throws InvalidArgument if those of another one differ.
  Served serve(std::span<const Request> requests, Mode mode) const {
    std::vector<Served> served(devices_.size());
    for_each_rank(devices_, [&](std::int64_t rank, const RankEnds& ends) {
      ServerOptions server{.max_batch = options_.scheduler.max_batch,
                           .max_prompt = options_.scheduler.max_prompt,
                           .blocks = options_.scheduler.blocks,
                           .sampling = options_.sampling,
                           .seed = options_.seed,
                           .ends = ends};
      const auto index = static_cast<std::size_t>(rank);
      served[index] = serve::serve(*models_[index], requests, options_.scheduler, server, mode);
    });
    for (const Served& other : served) {
      if (other.tokens != served[0].tokens) throw InvalidArgument("ranks differ about a token");
    }
    return std::move(served[0]);
  }

 private:
  Options options_;
  std::vector<Device> devices_;
  ModelConfig config_;
  std::vector<std::unique_ptr<Model>> models_;
};

std::size_t count_equal(const Served& a, const Served& b) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.tokens.size(); ++i)
    count += a.tokens[i] == b.tokens[i] ? 1 : 0;
  return count;
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
  row("decode rows padded", "", fmt::format("{} of {}", cgtree.padded, cgtree.rows));
  row("pool bytes", "", fmt::format("{}", cgtree.context.pool_reserved_bytes));
}

int run(const Options& options) {
  const Ranks ranks(options);
  const std::vector<Request> requests = seeded_requests(options.seed, options.requests);
  ranks.serve(std::span(requests).first(1), Mode::kEager);  // loads the kernels
  const Served eager = ranks.serve(requests, Mode::kEager);
  const Served cgtree = ranks.serve(requests, Mode::kCgtree);

  fmt::print("{} requests, {} tokens in {} steps on {} x {}\n{} parameters, {}\n\n",
             requests.size(), eager.generated, eager.steps, options.ranks,
             to_string(ranks.model().device()), ranks.config().parameters(),
             name(ranks.model().dtype()));
  print_table(eager, cgtree);
  if (ranks.model().device().type == DeviceType::kHost)
    fmt::print("\non the host device both times include the computation itself\n");
  if (options.sampling.temperature == 0) {
    const Served unpadded = ranks.serve(requests, Mode::kEagerUnpadded);
    fmt::print("\nwithout padding {} of {} requests get the same tokens\n",
               count_equal(eager, unpadded), requests.size());
  }
  const bool equal = eager.tokens == cgtree.tokens;
  fmt::print("\n{}\n", equal ? "every token is equal" : "tokens differ: this is a bug");
  return equal ? 0 : 1;
}

// Writes the model, prompts, and the logits after each prompt, for a comparison with another
// implementation.
int dump_logits(const Options& options) {
  if (options.ranks != 1) throw InvalidArgument("--dump-logits needs --ranks=1");
  const Ranks ranks(options);
  const Model& model = ranks.model();
  const std::filesystem::path folder = options.dump;
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << to_json(ranks.config(), name(model.dtype()));
  save_weights(folder, model.weights());

  std::vector<std::int32_t> table(static_cast<std::size_t>(model.context() / kBlockSize));
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] = static_cast<std::int32_t>(i);
  const auto upload = [&](const std::vector<std::int32_t>& values) {
    return from_host<std::int32_t>({1, std::ssize(values)}, values, model.device());
  };
  const Tensor tables = upload(table), cache = model.make_kv_cache(std::ssize(table));
  Context context(model.device());
  nlohmann::json prompts, logits;
  for (const std::int64_t length : {1, 2, 7, 16, 33, 100}) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < std::min(length, model.context()); ++i) {
      const std::uint64_t hash = mix(mix(options.seed + static_cast<std::uint64_t>(length)) ^
                                     static_cast<std::uint64_t>(i));
      tokens.push_back(
          static_cast<std::int32_t>(hash % static_cast<std::uint64_t>(ranks.config().vocabulary)));
    }
    const Tensor input = upload(tokens);
    const Tensor last = context.eager([&] { return model.prefill(input, tables, cache, nullptr); });
    context.synchronize();
    prompts.push_back(tokens);
    logits.push_back(last.to_vector<float>());
  }
  std::ofstream(folder / "tokens.json") << nlohmann::json{{"prompts", prompts}};
  std::ofstream(folder / "logits.json") << nlohmann::json{{"logits", logits}};
  fmt::print("wrote the model and the logits of {} prompts to {}\n", prompts.size(), options.dump);
  return 0;
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
  app.add_option("--ranks", o.ranks, "devices that share the model")->check(CLI::Range(1, 64));
  app.add_option("--max-batch", o.scheduler.max_batch, "requests decoded together")
      ->check(CLI::Range(1, 1024));
  app.add_option("--max-prompt", o.scheduler.max_prompt, "tokens of a prompt")
      ->check(CLI::Range(1, 8192));
  app.add_option("--temperature", o.sampling.temperature, "0 takes the most likely token")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--top-k", o.sampling.top_k, "draw from so many of the most likely; 0: from all")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--seed", o.seed, "of weights, requests and what is drawn");
  app.add_option("--dump-logits", o.dump, "write the model and some logits to this folder instead");
  app.parse(argc, argv);
  const std::int64_t longest = o.scheduler.max_prompt + 144;  // what seeded requests generate
  o.scheduler.context = (longest + kBlockSize - 1) / kBlockSize * kBlockSize;
  // Three quarters of what all slots may need, so that requests wait for blocks sometimes.
  o.scheduler.blocks =
      std::max<std::int64_t>(o.scheduler.max_batch * 3 / 4, 1) * o.scheduler.context / kBlockSize;
  return o;
}

}  // namespace
}  // namespace cgtree::serve

int main(int argc, char** argv) {
  CLI::App app("Serves requests with a Llama model, eagerly and through cgtree.", "serve");
  try {
    const cgtree::serve::Options options = cgtree::serve::parse(argc, argv, app);
    return options.dump.empty() ? run(options) : dump_logits(options);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "serve: {}; see --help\n", error.what());
    return 2;
  }
}
