// Cost of a decoding step of a Llama model, eagerly and through cgtree. The step is the model and
// the kernels of examples/serve without its scheduler: each step decodes one token of each sequence
// at the position after --context others, takes the likeliest token, and feeds it back on the
// device. benchmarks/peers/torch_llama.py measures the same in PyTorch.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/serve/options.h"
#include "benchmarks/serve/report.h"
#include "benchmarks/support/audit_share.h"
#include "cgtree/cgtree.h"
#include "examples/serve/model.h"
#include "examples/serve/numbers.h"
#include "examples/serve/ranks.h"
#include "extensions/ranks/communicator.h"
#include "extensions/watch/monitor.h"
#include "interop/device/device.h"
#include "interop/tensor/copy.h"

namespace cgtree::serve {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int kWarmUps = 8;  // steps
constexpr int kBlock = 20;   // steps between two synchronizations

struct LlamaOptions {
  std::string device = "auto";
  std::string model = "1b";
  std::vector<std::int64_t> batches = {1, 16, 64};
  std::int64_t context = 1024;  // positions in the cache already
  int steps = 400;              // of each measurement
  std::int64_t ranks = 1;
  bool audit = false;  // rows have the results of the recording's audit
  std::string json;
  std::string commit;
};

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// Adds median, minimum and 90th percentile.
void add_times(Json& row, const std::string& name, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  row[name + "_us"] = values[values.size() / 2];
  row[name + "_min_us"] = values.front();
  row[name + "_p90_us"] = values[values.size() * 9 / 10];
}

// The bytes that a step must read at least: each weight except the embedding, and the cache.
std::int64_t bytes_read(const ModelConfig& c, std::int64_t batch, std::int64_t context,
                        std::size_t element) {
  const std::int64_t weights = c.parameters() - (c.tied ? 0 : c.vocabulary * c.hidden);
  const std::int64_t cache = 2 * c.layers * batch * c.kv_heads * (context + 1) * c.head_size;
  return (weights + cache) * static_cast<std::int64_t>(element);
}

// A Bench is one rank's model, and the rows that it measures.
class Bench {
 public:
  Bench(const LlamaOptions& options, const ModelConfig& config, const Rank& rank)
      : options_(options),
        model_(config, rank.shard, random_weights(config, rank.shard, 1, rank.device),
               options.context / kBlockSize * kBlockSize + kBlockSize) {}

  Json measure(std::int64_t batch, bool through_cgtree, const Rank& rank) const {
    Context context(model_.device(), {.group = rank.group});
    std::optional<Communicator> own;
    if (rank.collectives) own.emplace(context, rank.collectives);
    Communicator* const communicator = own ? &*own : nullptr;
    const std::int64_t table = model_.context() / kBlockSize;
    const Tensor cache = model_.make_kv_cache(batch * table);
    context.eager([&] {
      fill_uniform(current_stream(), cache.reshape({cache.dim(0), cache.elements() / cache.dim(0)}),
                   {.seed = 2, .columns = cache.elements() / cache.dim(0)}, 0, 1);
    });
    std::vector<std::int32_t> rows;
    for (std::int64_t i = 0; i < batch; ++i) {
      rows.push_back(static_cast<std::int32_t>(i));
      rows.push_back(static_cast<std::int32_t>(options_.context));
      for (std::int64_t block = 0; block < table; ++block)
        rows.push_back(static_cast<std::int32_t>(block * batch + i));  // not consecutive
    }
    const Tensor input = from_host<std::int32_t>({batch, 2 + table}, rows, model_.device());
    const auto decode =
        compile(context, "decode",
                [&](Tensor in, Tensor kv_cache) {
                  const Tensor logits = model_.decode(in, kv_cache, communicator);
                  Tensor next = model_.choose_tokens(logits, 0, Generator(), communicator);
                  copy_elements(current_stream(), in.slice(1, 0, 1), next.reshape({batch, 1}));
                  return next;
                },
                {.inputs = {{.is_static = true, .is_mutated = true},
                            {.is_static = true, .is_mutated = true}},
                 .enabled = through_cgtree});
    const auto step = [&] {
      context.mark_step();
      static_cast<void>(decode(input, cache));
    };
    if (rank.group) static_cast<void>(agree(*rank.group, true));  // all ranks are ready
    for (int i = 0; i < kWarmUps; ++i)
      step();
    context.synchronize();
    std::vector<double> blocks, host;
    for (int done = 0; done < options_.steps; done += kBlock) {
      const auto begin = Clock::now();
      for (int i = 0; i < kBlock; ++i)
        step();
      context.synchronize();
      blocks.push_back(microseconds(Clock::now() - begin) / kBlock);
    }
    for (int i = 0; i < options_.steps; ++i) {
      const auto begin = Clock::now();
      step();
      host.push_back(microseconds(Clock::now() - begin));
      context.synchronize();
    }
    Json row = {{"model", options_.model},
                {"mode", through_cgtree ? "cgtree" : "eager"},
                {"batch", batch},
                {"context", options_.context},
                {"ranks", options_.ranks},
                {"bytes_read",
                 bytes_read(model_.config(), batch, options_.context, size_of(model_.dtype()))},
                {"steps", blocks.size() * kBlock},
                {"block", kBlock}};
    add_times(row, "step", blocks);
    add_times(row, "host", host);
    row["tokens_per_second"] = static_cast<double>(batch) / row["step_us"].get<double>() * 1e6;
    const FunctionStats stats = decode.stats();
    row["recordings"] = stats.recordings;
    row["replays"] = stats.replays;
    if (options_.audit && through_cgtree) {
      row["audit"] = benchmarks::audit_share(snapshot_json(context));
    }
    if (through_cgtree && stats.replays + 2 < stats.calls) {
      throw InvalidArgument(fmt::format("not only replays were measured: {}", to_string(stats)));
    }
    return row;
  }

 private:
  LlamaOptions options_;
  Model model_;
};

void print_row(const Json& row) {
  fmt::print("{:>5}  {:<8}{:>10.1f} {:>10.1f} {:>10.0f} {:>10.2f}\n", row["batch"].get<int>(),
             row["mode"].get<std::string>(), row["step_us"].get<double>(),
             row["host_us"].get<double>(), row["tokens_per_second"].get<double>(),
             row["bytes_read"].get<double>() / row["step_us"].get<double>() / 1e6);
  if (row.contains("audit")) fmt::print("{}\n", row["audit"].dump(2));
}

int run(const LlamaOptions& options, const std::string& command) {
  const Device device = parse_device(options.device);
  std::vector<Rank> ranks = make_thread_ranks(device, options.ranks);
  const ModelConfig config = named_config(options.model);
  const DeviceFacts facts = device_facts(device);
  Json json = {{"context",
                {{"device", to_string(device)},
                 {"gpu", facts.name},
                 {"driver", facts.driver},
                 {"command", command},
                 {"commit", options.commit},
                 {"model", options.model},
                 {"dtype", name(number_type(device))},
                 {"context", options.context}}},
               {"rows", Json::array()}};
  std::vector<std::unique_ptr<Bench>> benches;
  for (const Rank& rank : ranks)
    benches.push_back(std::make_unique<Bench>(options, config, rank));
  fmt::print("batch  mode       step us    host us   tokens/s  read TB/s\n");
  for (const std::int64_t batch : options.batches) {
    for (const bool through_cgtree : {false, true}) {
      Json row;
      for_each_rank(ranks, [&](const Rank& rank) {
        const auto index = static_cast<std::size_t>(rank.shard.rank);
        Json own = benches[index]->measure(batch, through_cgtree, rank);
        if (index == 0) row = std::move(own);
      });
      print_row(row);
      json["rows"].push_back(std::move(row));
      // After each row, because a run may be interrupted.
      if (!options.json.empty()) write_whole(from_caller(options.json), json.dump(2) + "\n");
    }
  }
  return 0;
}

}  // namespace
}  // namespace cgtree::serve

int main(int argc, char** argv) {
  cgtree::serve::LlamaOptions options;
  CLI::App app("What does a decoding step of a Llama model cost, eagerly and through cgtree?");
  app.option_defaults()->always_capture_default();
  app.add_option("--device", options.device, "auto, host, cuda or cuda:N");
  app.add_option("--model", options.model)->check(CLI::IsMember({"tiny", "1b", "8b"}));
  app.add_option("--batch", options.batches, "sequences of a step")->check(CLI::Range(1, 1024));
  app.add_option("--context", options.context, "positions in the KV cache already")
      ->check(CLI::Range(1, 131'071));
  app.add_option("--steps", options.steps, "of each measurement")->check(CLI::Range(1, 1'000'000));
  app.add_option("--ranks", options.ranks, "devices that share the model")->check(CLI::Range(1, 8));
  app.add_flag("--audit", options.audit, "also tell what the audit says of the recordings");
  app.add_option("--json", options.json, "file to write the results to");
  app.add_option("--commit", options.commit, "named in the results");
  CLI11_PARSE(app, argc, argv);
  try {
    return cgtree::serve::run(options, fmt::format("{}", fmt::join(argv, argv + argc, " ")));
  } catch (const std::exception& error) {
    fmt::print(stderr, "llama_bench: {}\n", error.what());
    return 1;
  }
}
