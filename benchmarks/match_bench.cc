// How does deciding what to do with a call grow: with inputs, depth, siblings and live outputs?
//
// Every number is host time per decision, without what it leads to. Recordings are made up, as
// decide() sees no more of them than their records; live outputs are real. BM_Predict is all that a
// steady loop asks; BM_Decide is what follows when the prediction does not fit.
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
#include "cgtree/tree/tree_manager.h"

namespace cgtree::benchmarks {
namespace {

constexpr int kDecisions = 256;  // per sample: reading the clock costs tens of ns

// What a row varies; the rest stays at its default.
struct Situated {
  int inputs = 1;     // static
  int depth = 1;      // nodes from the root to the current one
  int siblings = 1;   // recordings of the function for the same shapes; the last one fits
  int followers = 1;  // functions that have followed the current node; ours longest ago
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
    hold_outputs(s.live);
    Node* parent = &root_;
    for (int i = 1; i < s.depth; ++i) {
      Node& node = add_node(other_function(), parent);
      parent->follow(&node);
      parent = &node;
    }
    current_ = parent;
    KeyState& key = function_.find_or_add(list());
    key.warmed_up = true;
    for (int i = 0; i < s.siblings; ++i) {
      Node& node = add_node(function_, current_);
      record(node.recording, device, /*fits=*/i + 1 == s.siblings);
      key.nodes.push_back(&node);
      fitting_ = &node;
    }
    Node* const predicted = s.predicted ? fitting_ : key.nodes.front();
    current_->follow(predicted);
    for (int i = 1; i < s.followers; ++i)
      current_->follow(&add_node(other_function(), current_));
  }

  Situation situation() {
    limits_ = {.recordings = nodes_.size() + 1, .depth = 1};
    return {function_, *current_, list(), memory(), nodes_, limits_};
  }
  const Node* fitting() const { return fitting_; }

 private:
  ContextMemory& memory() { return context_.share_manager()->memory(); }
  InputList list() const { return {std::span<const Tensor>(inputs_)}; }

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

  FunctionState& other_function() {
    return *others_.emplace_back(std::make_unique<FunctionState>());
  }
  Node& add_node(FunctionState& function, Node* parent) {
    Node& node = *nodes_.emplace_back(std::make_unique<Node>());
    node.function = &function;
    node.parent = parent;
    return node;
  }
  // A recording that does not fit differs in the address of its last input, so all are compared.
  void record(Recording& recording, Device device, bool fits) {
    recording.device = device;
    std::vector<InputRecord> inputs;
    for (const Tensor& input : inputs_)
      inputs.push_back({input.shape(), input.dtype(), Treatment::kStatic, input.address()});
    if (!fits) inputs.back().address += 1;
    recording.set_inputs(std::move(inputs));
    // Every word of the live mask is looked at, and none conflicts.
    recording.conflicts.resize((memory().slot_count() + 63) / 64, 0);
  }

  Context context_;
  std::vector<CompiledFunction<std::vector<Tensor>(std::span<const Tensor>)>> many_;
  std::vector<Tensor> held_;
  std::vector<Tensor> inputs_;
  FunctionState function_;
  std::vector<std::unique_ptr<FunctionState>> others_;
  Node root_;
  std::vector<std::unique_ptr<Node>> nodes_;
  Node* current_ = nullptr;
  Limits limits_;
  Node* fitting_ = nullptr;
};

void run_row(benchmark::State& state, Device device, const Situated& s) {
  MadeUpTree tree(device, s);
  const Situation situation = tree.situation();
  const auto decided = [&] { return s.predicted ? predict(situation) : decide(situation).node; };
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
    const int siblings = predicted ? 1 : 2;  // for decide(), one that does not fit comes first
    const auto add = [&](const char* what, int count, Situated s) {
      s.predicted = predicted;
      s.siblings = std::max(s.siblings, siblings);
      add_row(options, fmt::format("{}/{}:{}", name, what, count), s);
    };
    for (const int n : {1, 4, 16, 64, 256, 1024})
      add("inputs", n, {.inputs = n});
    for (const int n : {1, 4, 16, 64})
      add("depth", n, {.depth = n});
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
