// Growth of the cost of a decision with inputs, recordings, followers and live outputs.
//
// Every number is host time per decision, without its execution. Recordings are made up, because
// decide() reads only their records; live outputs are real. BM_Predict is the only decision of a
// steady loop; BM_Decide follows when the prediction does not fit.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/support/program.h"
#include "cgtree/cgtree.h"
#include "cgtree/tree/decide.h"
#include "cgtree/tree/engine.h"

namespace cgtree::benchmarks {
namespace {

constexpr int kDecisions = 256;  // per sample: reading the clock costs tens of ns

// The parameters that a row varies; the others keep their defaults.
struct Situated {
  int inputs = 1;     // static
  int siblings = 1;   // recordings of the function for the same shapes; the newest one fits
  int followers = 1;  // functions that followed the current node; this one was the last
  int live = 0;       // outputs held
  bool predicted = true;
};

// A tree in which one recording fits.
class MadeUpTree {
 public:
  MadeUpTree(Device device, const Situated& s) : context_(device) {
    const float zero = 0;
    for (int i = 0; i < s.inputs; ++i)
      inputs_.push_back(from_host(Shape{1}, std::span<const float>(&zero, 1), device));
    list_ = std::span<const Tensor>(inputs_);
    hold_outputs(s.live);
    const auto nothing = [](std::span<const Tensor>) { return std::vector<Tensor>(); };
    function_ = &tree_.add_function("f", nothing, {});
    for (int i = 1; i < s.followers; ++i) {
      FunctionState& other = tree_.add_function("other", nothing, {});
      add_node(other, other.find_or_add(call(other)));
    }
    KeyState& key = function_->find_or_add(call(*function_));
    key.warmed_up = true;
    for (int i = 0; i < s.siblings; ++i) {
      fitting_ = &add_node(*function_, key);
      record(fitting_->recording, device, /*fits=*/i + 1 == s.siblings);
    }
    if (!s.predicted) tree_.follow(*key.nodes.front());
  }

  Node* predict() {
    return cgtree::predict(tree_.current(), *function_, list_, memory_, GraphOverride::kNone);
  }
  Node* decide() {
    limits_ = {.recordings = tree_.nodes().size() + 1};
    call_.begin(*function_, memory_, list_);
    return cgtree::decide({tree_, *function_, memory_, limits_}, call_).node;
  }
  const Node* fitting() const { return fitting_; }

 private:
  void hold_outputs(int count) {
    if (count == 0) return;
    many_.emplace_back(compile(context_, "many", [count](std::span<const Tensor>) {
      std::vector<Tensor> outputs;
      for (int i = 0; i < count; ++i)
        outputs.push_back(empty({1}, DType::kFloat32));
      return outputs;
    }));
    held_ = many_.back()(std::span<const Tensor>());
  }

  Call call(FunctionState& function) { return Call(function, memory_, list_); }
  // A recording that follows the root.
  Node& add_node(FunctionState& function, KeyState& key) {
    tree_.go_to_root();
    Recording none;
    Node& node = tree_.add(tree_.make_node(function, key, none, Explanation(), memory_));
    tree_.go_to_root();
    return node;
  }
  // A recording that does not fit differs in the address of its last input, so all are compared.
  void record(Recording& recording, Device device, bool fits) {
    recording.device = device;
    std::vector<InputRecord> inputs;
    for (const Tensor& input : inputs_)
      inputs.emplace_back(input.shape(), input.dtype(), Treatment::kStatic, input.address());
    if (!fits) inputs.back().address += 1;
    recording.inputs = std::move(inputs);
    // Every word of the live mask is compared, and none conflicts.
    recording.conflicts.resize((memory_.slot_count() + 63) / 64, 0);
  }

  Context context_;
  ContextMemory& memory_ = *context_.share_engine()->memory;
  std::vector<CompiledFunction<std::vector<Tensor>(std::span<const Tensor>)>> many_;
  std::vector<Tensor> held_;
  std::vector<Tensor> inputs_;
  InputList list_;  // of inputs_
  Tree tree_;
  FunctionState* function_ = nullptr;
  Call call_;
  Limits limits_;
  Node* fitting_ = nullptr;
};

void run_row(benchmark::State& state, Device device, const Situated& s) {
  MadeUpTree tree(device, s);
  const auto decided = [&] { return s.predicted ? tree.predict() : tree.decide(); };
  if (decided() != tree.fitting()) {
    state.SkipWithError("the recording that fits was not found");
    return;
  }
  std::vector<double> samples;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kDecisions; ++i)
      benchmark::DoNotOptimize(decided());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    samples.push_back(seconds.count() / kDecisions);
    state.SetIterationTime(samples.back());
  }
  std::sort(samples.begin(), samples.end());
  state.counters["min_ns"] = samples.front() * 1e9;
  state.counters["median_ns"] = samples[samples.size() / 2] * 1e9;
  state.counters["p99_ns"] = samples[samples.size() * 99 / 100] * 1e9;
}

void add_row(const Options& options, const std::string& name, const Situated& s) {
  benchmark::RegisterBenchmark(
      name.c_str(),
      [device = options.device, s](benchmark::State& state) { run_row(state, device, s); })
      ->Iterations(options.samples)
      ->UseManualTime()
      ->Unit(benchmark::kNanosecond);
}

void add_rows(const Options& options) {
  for (const bool predicted : {true, false}) {
    const std::string name = predicted ? "BM_Predict" : "BM_Decide";
    const int siblings = predicted ? 1 : 2;  // decide() meets a misfit first
    const auto add = [&](const char* what, int count, Situated s) {
      s.predicted = predicted;
      s.siblings = std::max(s.siblings, siblings);
      add_row(options, fmt::format("{}/{}:{}", name, what, count), s);
    };
    for (const int n : {1, 4, 16, 64, 256, 1024})
      add("inputs", n, {.inputs = n});
    for (const int n : {2, 4, 16, 64})
      add("siblings", n, {.siblings = n});
    for (const int n : {1, 4, 16, 64})
      add("followers", n, {.followers = n});
    for (const int n : {0, 16, 64, 256, 1024})
      add("live", n, {.live = n});
  }
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv,
      {"How does deciding what to do with a call grow?", &cgtree::benchmarks::add_rows});
}
