// Cost of tokens that a loop on the device decodes, compared with replays that the host launches.
//
// BM_Round: a round of the Llama example, a token for each row. "loop": so many rounds in one
// replay; the host takes the tokens as they come. "queued": a replay for each, enqueued ahead; the
// host reads no tokens. "read": a replay for each, and the host reads the tokens before the next.
//
// BM_Draft: a round with four proposals of a draft, which is the first two layers. "loop": 16 such
// rounds in one replay, in each of them the draft in a loop. "unrolled": the same, with the draft's
// steps one after the other. "replays": a replay for each step of the draft and one for the check,
// and the host reads the tokens of each round.
//
// Times are device times of a round, and in host_us host times of a round: to launch, and to read
// available tokens.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/support/program.h"
#include "benchmarks/support/times.h"
#include "cgtree/cgtree.h"
#include "examples/serve/rounds.h"
#include "extensions/flow/control_flow.h"
#include "extensions/flow/loop_stream.h"
#include "interop/tensor/copy.h"

namespace cgtree::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr int kRounds = 64;  // of a sample
constexpr int kProposals = 4;
constexpr int kDraftLayers = 2;
constexpr int kContext = 512;  // tokens
constexpr int kFirst = 64;     // position of the first token of a sample

// Two models may share weights. They are made once for all rows.
const serve::Model& model_of(Device device, const std::string& name, bool is_draft) {
  static std::string of;
  static std::unique_ptr<const serve::Model> model, draft;
  if (of != name) {
    draft.reset();
    model.reset();
    of = name;
    serve::ModelConfig config = serve::named_config(name);
    serve::Weights weights = serve::random_weights(config, {}, 1, device);
    model = std::make_unique<serve::Model>(config, serve::Shard(), weights, kContext);
    config.layers = kDraftLayers;
    weights.layers.resize(kDraftLayers);
    draft = std::make_unique<serve::Model>(config, serve::Shard(), std::move(weights), kContext);
  }
  return is_draft ? *draft : *model;
}

// The state of a batch, and functions that change it in place.
class Bench {
 public:
  using Function = CompiledFunction<Tensor(Tensor, Tensor, Tensor, Tensor)>;

  Bench(Device device, const std::string& name, std::int64_t rows, bool has_draft,
        std::int64_t most)
      : context(device),
        model(model_of(device, name, false)),
        draft(has_draft ? &model_of(device, name, true) : nullptr),
        options{.most = most, .draft = draft, .proposals = has_draft ? kProposals : 0},
        stream(device, static_cast<std::size_t>(rows * options.width()) * 4,
               static_cast<std::size_t>(kRounds)),
        row(static_cast<std::size_t>(rows * options.width())) {
    const std::int64_t blocks = kContext / serve::kBlockSize;
    std::vector<std::int32_t> first;
    for (std::int64_t r = 0; r < rows; ++r) {
      first.push_back(static_cast<std::int32_t>(r) + 1);
      first.push_back(kFirst);
      for (std::int64_t b = 0; b < blocks; ++b)
        first.push_back(static_cast<std::int32_t>(r * blocks + b));
    }
    const std::vector<std::int32_t> many(static_cast<std::size_t>(rows), 1 << 20);
    begin = from_host({rows, 2 + blocks}, std::span<const std::int32_t>(first), device);
    state.batch = empty(begin.shape(), DType::kInt32, device);
    state.left = from_host({rows}, std::span<const std::int32_t>(many), device);
    state.kv_cache = model.make_kv_cache(rows * blocks);
    state.draft_cache =
        has_draft ? draft->make_kv_cache(rows * blocks) : empty({1}, DType::kInt32, device);
    reset();
  }

  // Compiles a function of the state, warms it up and records it.
  template <typename Step>
  Function make(const char* name, Step step) {
    const InputOptions in_place{.is_static = true, .is_mutated = true};
    Function function =
        compile(context, name,
                [this, step](Tensor batch, Tensor left, Tensor cache, Tensor draft_cache) {
                  return step(serve::RoundState{batch, left, cache, draft_cache});
                },
                {.inputs = {in_place, in_place, in_place, in_place}});
    for (int i = 0; i < 3; ++i) {
      reset();
      call(function);
      context.synchronize();
      discard();
    }
    reset();
    return function;
  }
  Tensor call(const Function& function) {
    return function(state.batch, state.left, state.kv_cache, state.draft_cache);
  }
  void reset() { copy_elements(context.stream(), state.batch, begin); }
  void read_row() {
    while (!stream.next(std::as_writable_bytes(std::span(row)), std::chrono::seconds(5))) {
    }
  }
  void discard() {
    while (stream.next(std::as_writable_bytes(std::span(row)), std::chrono::seconds(0))) {
    }
  }
  void read(const Tensor& tokens) {
    tokens.copy_to_host(row.data(), tokens.bytes(), context.stream());
  }

  Context context;
  const serve::Model& model;
  const serve::Model* const draft;
  const serve::RoundsOptions options;
  LoopStream stream;
  std::vector<std::int32_t> row;  // of tokens, on the host
  Tensor begin;
  serve::RoundState state;
};

// Sets host_us: the time of `launch`, repeated for all rounds, and of `read` once the device is
// done.
template <typename Launch, typename Read>
void add_host_time(benchmark::State& state, Bench& bench, Launch launch, Read read) {
  std::vector<double> samples;
  for (int sample = 0; sample < 20; ++sample) {
    bench.reset();
    bench.context.synchronize();
    const auto begin = Clock::now();
    for (int i = 0; i < kRounds; ++i)
      launch(i);
    const auto launched = Clock::now();
    bench.context.synchronize();
    const auto ended = Clock::now();
    for (int i = 0; i < kRounds; ++i)
      read();
    samples.push_back(Microseconds(launched - begin + (Clock::now() - ended)).count() / kRounds);
  }
  std::ranges::sort(samples);
  state.counters["host_us"] = samples[samples.size() / 2];
}

void round(benchmark::State& state, Device device, const std::string& name, std::int64_t rows,
           std::string_view how, std::int64_t most) {
  Bench bench(device, name, rows, /*has_draft=*/false, most);
  const Generator none;
  const auto one = [&](const serve::RoundState& on) {
    return serve::decode_round(bench.model, bench.options, on, 0, none).row;
  };
  const auto all = [&](const serve::RoundState& on) {
    return loop(most, bench.stream,
                [&] { return serve::decode_round(bench.model, bench.options, on, 0, none); });
  };
  const bool is_loop = how == "loop";
  const Bench::Function function = is_loop ? bench.make("loop", all) : bench.make("round", one);
  int calls = 0;
  DeviceTime(state, bench.context.stream(), kRounds).measure([&] {
    const int i = calls++ % kRounds;
    if (i == 0) bench.reset();
    if (!is_loop) {
      const Tensor tokens = bench.call(function);
      if (how == "read") bench.read(tokens);
      return;
    }
    if (i % most == 0) (void)bench.call(function);
    bench.read_row();
  });
  add_host_time(
      state, bench,
      [&](int i) {
        if (!is_loop || i % most == 0) (void)bench.call(function);
      },
      [&] {
        if (is_loop) bench.read_row();
      });
}

void draft(benchmark::State& state, Device device, const std::string& name, std::int64_t rows,
           std::string_view how) {
  constexpr std::int64_t kMost = 16;
  Bench bench(device, name, rows, /*has_draft=*/true, kMost);
  const Generator none;
  const std::int64_t width = bench.options.width();
  const StreamRef stream = bench.context.stream();
  const Tensor fed = empty(bench.begin.shape(), DType::kInt32, device);
  const Tensor verify = empty({rows * width, fed.dim(1)}, DType::kInt32, device);
  const Tensor proposed = empty(Shape(), DType::kInt32, device);
  const auto propose = [&](const serve::RoundState& on) {
    const Tensor logits = bench.draft->decode(fed, on.draft_cache, nullptr);
    const Tensor next = bench.draft->choose_tokens(logits, 0, none, nullptr);
    serve::propose(current_stream(), next, fed, verify, proposed);
    return next;
  };
  const auto lay_out = [&](const serve::RoundState& on) {
    serve::lay_out_proposals(current_stream(), on.batch, on.left, fed, verify, proposed);
  };
  const auto check = [&](const serve::RoundState& on) -> LoopRound {
    LoopRound made{empty(Shape(), DType::kInt32), empty({rows, width}, DType::kInt32)};
    const Tensor logits = bench.model.decode(verify, on.kv_cache, nullptr);
    const Tensor chosen = bench.model.choose_tokens(logits, 0, none, nullptr);
    serve::accept(current_stream(), chosen, verify, on.batch, on.left, made.row, made.goes_on);
    return made;
  };
  const bool is_loop = how == "loop", is_replays = how == "replays";
  const Bench::Function rounds = bench.make("rounds", [&](const serve::RoundState& on) {
    return loop(kMost, bench.stream, [&] {
      if (is_loop) return serve::decode_round(bench.model, bench.options, on, 0, none);
      lay_out(on);
      for (std::int64_t i = 0; i < width; ++i)
        (void)propose(on);
      return check(on);
    });
  });
  const Bench::Function first = bench.make("first", [&](const serve::RoundState& on) {
    lay_out(on);
    return propose(on);
  });
  const Bench::Function step = bench.make("step", propose);
  const Bench::Function last =
      bench.make("last", [&](const serve::RoundState& on) { return check(on).row; });
  const auto launch = [&](int i) {
    if (!is_replays) {
      if (i % kMost == 0) (void)bench.call(rounds);
      return Tensor();
    }
    (void)bench.call(first);
    for (std::int64_t s = 1; s < width; ++s)
      (void)bench.call(step);
    return bench.call(last);
  };
  int calls = 0;
  DeviceTime(state, stream, kRounds).measure([&] {
    const int i = calls++ % kRounds;
    if (i == 0) bench.reset();
    const Tensor tokens = launch(i);
    if (is_replays) {
      bench.read(tokens);
    } else {
      bench.read_row();
    }
  });
  add_host_time(
      state, bench, [&](int i) { (void)launch(i); },
      [&] {
        if (!is_replays) bench.read_row();
      });
}

void add_rows(const Options& options) {
  const auto add = [&](const std::string& text, auto row) {
    Batches batches{.calls = kRounds};
    batches.samples = options.samples;
    batches.apply_to(benchmark::RegisterBenchmark(text.c_str(), row));
  };
  const Device device = options.device;
  std::vector<std::string> models = {"tiny"};
  if (device.type != DeviceType::kHost) models.emplace_back("1b");
  for (const std::string& model : models) {
    for (const std::int64_t rows : {1, 16}) {
      const std::string where = fmt::format("model:{}/batch:{}", model, rows);
      for (const char* const how : {"queued", "read"}) {
        add(fmt::format("BM_Round/{}/{}", where, how),
            [=](benchmark::State& state) { round(state, device, model, rows, how, 1); });
      }
      for (const std::int64_t most : {1, 4, 16, 64}) {
        add(fmt::format("BM_Round/{}/loop/rounds:{}", where, most),
            [=](benchmark::State& state) { round(state, device, model, rows, "loop", most); });
      }
      for (const char* const how : {"loop", "unrolled", "replays"}) {
        add(fmt::format("BM_Draft/{}/{}", where, how),
            [=](benchmark::State& state) { draft(state, device, model, rows, how); });
      }
    }
  }
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv,
      {"What do tokens cost that a loop on the device decodes?", &cgtree::benchmarks::add_rows});
}
