// Ways for a graph to follow a decision of the host. Decode attention has as many splits as the
// context has parts of 256 tokens. The host decides the number: frozen at the capture, frozen for
// the longest context, in a key that the engine writes, or asked by a guard.
//
// Contexts of 128 to 32k tokens grow by one token a step, in turns. `wrong` counts the steps whose
// output differs from that of eager execution in any bit. Each step ends before the next begins, as
// in a decoder, which needs the token.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/support/attention.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/times.h"
#include "cgtree/cgtree.h"
#include "extensions/guards/guard.h"

namespace cgtree::benchmarks {
namespace {

constexpr int kHeads = 32;
constexpr int kStepsOfContext = 32;  // in a row
constexpr int kTurns = 4;

enum class Mode { kEager, kFrozenFirst, kFrozenLongest, kKeyed, kGuarded };

struct Row {
  const char* name;
  Mode mode;
};
constexpr Row kRows[] = {{"eager", Mode::kEager},
                         {"frozen_at_the_first_capture", Mode::kFrozenFirst},
                         {"frozen_for_the_longest", Mode::kFrozenLongest},
                         {"keyed_by_hand", Mode::kKeyed},
                         {"guarded", Mode::kGuarded}};

Tensor random_values(Device device, const Shape& shape, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 0.3F);
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  for (float& value : values)
    value = normal(random);
  return from_host(shape, std::span<const float>(values), device);
}

// Splits of a power of two, as engines choose them, so that few graphs serve all lengths.
int splits_of(int length) {
  constexpr int kSplit = Attention::kSplit;
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>((length + kSplit - 1) / kSplit)));
}

class Decoder {
 public:
  Decoder(Device device, int longest)
      : context_(device),
        stream_(device, StreamKind::kNonBlocking),
        capacity_(longest + kStepsOfContext * kTurns) {
    std::mt19937 random(7);
    query_ = random_values(device, {kHeads, Attention::kWidth}, random);
    keys_ = random_values(device, {kHeads, capacity_, Attention::kWidth}, random);
    values_ = random_values(device, {kHeads, capacity_, Attention::kWidth}, random);
    scores_ = empty({kHeads, splits_of(capacity_) * Attention::kSplit}, DType::kFloat32, device);
    partial_ =
        empty({kHeads, splits_of(capacity_), Attention::kWidth + 2}, DType::kFloat32, device);
    output_ = empty({kHeads, Attention::kWidth}, DType::kFloat32, device);
    for (int length = 128; length <= longest; length *= 4)
      lengths_.push_back(length);
  }

  // Decodes all contexts in turns. Returns the outputs of all steps.
  std::vector<std::vector<float>> run(Mode mode, std::vector<double>* seconds) {
    Steps steps(context_, "decode",
                {.bindings = {{.name = "length", .host_bytes = sizeof(int)}},
                 .enabled = mode != Mode::kEager});
    std::vector<std::vector<float>> outputs;
    std::vector<int> lengths = lengths_;
    for (int turn = 0; turn < kTurns; ++turn) {
      for (int& length : lengths) {
        for (int i = 0; i < kStepsOfContext; ++i, ++length) {
          const auto begin = std::chrono::steady_clock::now();
          step(steps, mode, length);
          stream_.synchronize();
          const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
          seconds->push_back(time.count());
          std::vector<float>& output =
              outputs.emplace_back(static_cast<std::size_t>(output_.elements()));
          output_.copy_to_host(output.data(), output_.bytes());
        }
      }
    }
    stats_ = steps.stats();
    return outputs;
  }

  const FunctionStats& stats() const { return stats_; }

 private:
  void step(Steps& steps, Mode mode, int length) {
    length_ = length;
    const Binding bindings[] = {{&length_, sizeof length_}};
    Key key;
    if (mode == Mode::kKeyed) key = Key{{"splits", splits_of(length)}};
    for (Step one = steps.begin(key, bindings, stream_); one.must_run(); one.end()) {
      int splits = splits_of(length);
      if (mode == Mode::kFrozenLongest) splits = splits_of(capacity_);
      if (mode == Mode::kGuarded) splits = decide("splits", [this] { return splits_of(length_); });
      launch_attention(stream_,
                       {.query = query_.data<float>(),
                        .keys = keys_.data<float>(),
                        .values = values_.data<float>(),
                        .length = static_cast<const int*>(one.address(0)),
                        .scores = scores_.data<float>(),
                        .partial = partial_.data<float>(),
                        .output = output_.data<float>(),
                        .heads = kHeads,
                        .capacity = capacity_},
                       splits);
    }
  }

  Context context_;
  const Stream stream_;
  const int capacity_;
  std::vector<int> lengths_;  // of the contexts, at first
  Tensor query_, keys_, values_, scores_, partial_, output_;
  int length_ = 0;  // of the present step
  FunctionStats stats_;
};

void run_row(benchmark::State& state, Device device, Mode mode) {
  const int longest = device.type == DeviceType::kHost ? 2'048 : 32'768;
  Decoder decoder(device, longest);
  std::vector<double> ignored;
  const std::vector<std::vector<float>> expected = decoder.run(Mode::kEager, &ignored);
  std::int64_t wrong = 0;
  double total = 0;
  std::vector<double> seconds;
  for (auto _ : state) {
    seconds.clear();
    const std::vector<std::vector<float>> outputs = decoder.run(mode, &seconds);
    wrong = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      wrong += outputs[i] != expected[i];
    total = 0;
    for (const double one : seconds)
      total += one;
    state.SetIterationTime(total / static_cast<double>(seconds.size()));
  }
  state.counters["tokens_per_second"] = static_cast<double>(seconds.size()) / total;
  state.counters["steps"] = static_cast<double>(seconds.size());
  state.counters["wrong"] = static_cast<double>(wrong);
  state.counters["recordings"] = static_cast<double>(decoder.stats().recordings);
  state.counters["replays"] = static_cast<double>(decoder.stats().replays);
  add_counters(state, std::move(seconds));
}

void add_rows(const Options& options) {
  for (const Row& row : kRows) {
    benchmark::RegisterBenchmark(fmt::format("BM_Decode/{}", row.name).c_str(),
                                 [device = options.device, mode = row.mode](
                                     benchmark::State& state) { run_row(state, device, mode); })
        ->Iterations(3)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv,
      {"How does a graph keep a decision of the host: frozen, keyed by hand, or guarded?",
       &cgtree::benchmarks::add_rows});
}
