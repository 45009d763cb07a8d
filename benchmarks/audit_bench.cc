// Cost of the audit for a recording.
//
// BM_Raw: a capture of so many kernels, made executable and launched, as by hand. BM_Read: the
// same, and each node is read. BM_Audited: the same, and the addresses in the nodes are attributed.
// BM_Context: a call that records, through a context, which audits while the device works; the
// counter audit_percent is the host time of the audit relative to the rest. In each of them a third
// of the kernels' addresses are one input, and the others are in an arena that the audit knows.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/support/kernels.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/times.h"
#include "cgtree/cgtree.h"
#include "extensions/audit/audit.h"
#include "extensions/watch/monitor.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/device/graph_api.h"
#include "interop/device/node_contents.h"

namespace cgtree::benchmarks {
namespace {

constexpr Batches kBatches = {.calls = 1, .until_drained = 1};

enum class Part { kCapture, kRead, kAudit };

// A Step is a chain of kernels by hand, between two elements of an arena.
class Step {
 public:
  Step(Device device, int kernels)
      : device_(device), kernels_(kernels), arena_(empty({1024}, DType::kFloat32, device)) {
    known_.add(MemoryOwner::kScratch, 0, {arena_.address(), arena_.bytes()});
    known_.sort();
  }

  void record(StreamRef stream, Part part) {
    GraphAPI& graphs = stream.graphs();
    Graph graph;
    Capture capture(stream, CaptureMode::kThreadLocal);
    for (int i = 0; i < kernels_; ++i)
      launch_trivial_kernel(stream, arena_.data<float>() + i % 1024);
    check(capture.end(&graph), "capture");
    if (part != Part::kCapture) read(graphs, graph, part);
    const GraphExec exec(graphs, graph);
    check(graphs.launch(exec.handle(), stream.handle()), "launch");
    stream.synchronize();
  }

 private:
  void read(GraphAPI& graphs, const Graph& graph, Part part) {
    std::vector<NodeContents> nodes;
    check(graphs.read_nodes(graph.handle(), &nodes), "read the nodes");
    Auditor auditor(device_api(device_), known_);
    for (NodeContents& node : nodes)
      if (part == Part::kAudit) auditor.read(std::move(node));
    if (part == Part::kAudit) benchmark::DoNotOptimize(auditor.finish());
  }

  const Device device_;
  const int kernels_;
  const Tensor arena_;
  KnownMemory known_;
};

void by_hand(benchmark::State& state, Device device, int kernels, Part part) {
  const Stream stream(device);
  Step step(device, kernels);
  HostTime(state, stream, kBatches).measure([&] { step.record(stream, part); });
}

// Returns the time of the audit of the context's only recording.
double microseconds_of_audit(const Context& context) {
  const auto snapshot = nlohmann::json::parse(snapshot_json(context));
  return snapshot.at("nodes").at(0).at("audit_us").get<double>();
}

// Each sample is the second call with a new key; the first call is a warm-up, and is not timed.
void through_context(benchmark::State& state, Device device, int kernels) {
  Context context(device);
  const auto f =
      compile(context, "step",
              [kernels](Tensor x) {
                Tensor y = trivial_step({&x, 1});
                for (int i = 1; i < kernels; ++i)
                  y = trivial_step({&y, 1});
                return y;
              },
              {.inputs = {{.is_static = true}}, .max_recordings = 1, .at_limit = AtLimit::kEvict});
  const Tensor x = empty({1}, DType::kFloat32, device);
  std::vector<double> samples;
  std::vector<double> audits;
  std::int64_t key = 0;
  const auto sample = [&] {
    ++key;
    const auto keyed = f.keyed({{"sample", key}});
    static_cast<void>(keyed(x));
    context.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    static_cast<void>(keyed(x));
    context.synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  static_cast<void>(sample());
  for (auto _ : state) {
    samples.push_back(sample());
    state.SetIterationTime(samples.back());
    audits.push_back(microseconds_of_audit(context));
  }
  if (samples.empty()) return;
  std::ranges::sort(samples);
  std::ranges::sort(audits);
  state.counters["min_us"] = samples.front() * 1e6;
  const double median = samples[samples.size() / 2] * 1e6;
  const double audit = audits[audits.size() / 2];
  state.counters["median_us"] = median;
  state.counters["audit_us"] = audit;
  state.counters["audit_percent"] = 100 * audit / (median - audit);
}

void add_rows(const Options& options) {
  Batches batches = kBatches;
  batches.samples = options.samples / 4;
  const auto add = [&](const std::string& name, auto run) {
    batches.apply_to(benchmark::RegisterBenchmark(name.c_str(), run));
  };
  for (const int kernels : {1, 30, 300}) {
    const Device device = options.device;
    for (const auto& [name, part] :
         {std::pair{"Raw", Part::kCapture}, {"Read", Part::kRead}, {"Audited", Part::kAudit}}) {
      add(fmt::format("BM_{}/kernels:{}", name, kernels),
          [=, part = part](benchmark::State& state) { by_hand(state, device, kernels, part); });
    }
    add(fmt::format("BM_Context/kernels:{}", kernels),
        [=](benchmark::State& state) { through_context(state, device, kernels); });
  }
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv, {"What does the audit cost a recording?", &cgtree::benchmarks::add_rows});
}
