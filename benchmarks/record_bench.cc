// Cost of recording, compared with the same work by hand.
//
// BM_TwoCalls: the first two calls of a function with a new key: warming up, recording and the
// first launch, until the device is done. /raw: the same kernels by hand, run once, captured,
// instantiated and launched. /arena: the step function makes one allocation and launches on its
// elements, as the work by hand does; /tensors: one allocation for each kernel. BM_SecondCall: only
// the second of the two calls, and by hand all except the first run.
//
// BM_Instantiate: `graphs` captures of so many kernels and their executable graphs, on so many
// threads: with 0 others each graph is instantiated before the next is captured, with 1 other
// thread that thread instantiates while the next graph is captured, with n others n threads
// alternate. BM_Capture is only the captures.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/support/kernels.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/times.h"
#include "cgtree/cgtree.h"
#include "interop/device/graph.h"
#include "interop/device/graph_api.h"

namespace cgtree::benchmarks {
namespace {

constexpr Batches kBatches = {.calls = 1, .until_drained = 1};

void launch_on_elements(StreamRef stream, const Tensor& arena, int kernels) {
  for (int i = 0; i < kernels; ++i)
    launch_trivial_kernel(stream, arena.data<float>() + i % 1024);
}

Graph capture(StreamRef stream, const Tensor& arena, int kernels) {
  Graph graph;
  Capture open(stream, CaptureMode::kThreadLocal);
  launch_on_elements(stream, arena, kernels);
  check(open.end(&graph), "capture");
  return graph;
}

// Keeps the graphs, as a context keeps its recordings.
void by_hand(benchmark::State& state, Device device, int kernels, bool runs_first) {
  const Stream stream(device);
  const Stream captured(device);
  const Tensor arena = empty({1024}, DType::kFloat32, device);
  std::deque<std::pair<Graph, GraphExec>> kept;
  HostTime(state, stream, kBatches).measure([&] {
    if (runs_first) launch_on_elements(stream, arena, kernels);
    Graph graph = capture(captured, arena, kernels);
    GraphExec exec(stream.ref().graphs(), graph);
    check(exec.api().launch(exec.handle(), stream.ref().handle()), "launch");
    stream.synchronize();
    kept.emplace_back(std::move(graph), std::move(exec));
  });
}

enum class StepKind { kArena, kTensors };

Tensor step(StepKind kind, int kernels, const Tensor& x) {
  if (kind == StepKind::kArena) {
    const Tensor arena = empty({1024}, DType::kFloat32);
    launch_on_elements(current_stream(), arena, kernels);
    return arena;
  }
  Tensor y = trivial_step({&x, 1});
  for (int i = 1; i < kernels; ++i)
    y = trivial_step({&y, 1});
  return y;
}

void through_context(benchmark::State& state, Device device, int kernels, StepKind kind,
                     bool both_calls) {
  constexpr std::size_t kAll = 1 << 20;
  Context context(device, {.max_recordings = kAll});
  const auto f = compile(context, "step", [=](Tensor x) { return step(kind, kernels, x); },
                         {.inputs = {{.name = "x", .is_static = true}}, .max_recordings = kAll});
  const Tensor x = empty({1}, DType::kFloat32, device);
  std::int64_t key = 0;
  std::vector<double> samples;
  const auto sample = [&] {
    const auto keyed = f.keyed({{"sample", ++key}});
    const auto begin = std::chrono::steady_clock::now();
    static_cast<void>(keyed(x));
    if (!both_calls) context.synchronize();
    const auto second = std::chrono::steady_clock::now();
    static_cast<void>(keyed(x));
    context.synchronize();
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(end - (both_calls ? begin : second)).count();
  };
  static_cast<void>(sample());
  for (auto _ : state) {
    samples.push_back(sample());
    state.SetIterationTime(samples.back());
  }
  add_counters(state, std::move(samples));
  if (f.stats().recordings != static_cast<std::uint64_t>(key))
    state.SkipWithError("a call was not recorded");
}

// Instantiators are threads that make graphs executable in the order of arrival.
class Instantiators {
 public:
  Instantiators(GraphAPI& graphs, int threads) : graphs_(graphs) {
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([this] { run(); });
  }
  // Returns the executable graphs of all added graphs.
  std::vector<GraphExec> finish() {
    {
      const std::lock_guard lock(mutex_);
      is_finished_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_)
      thread.join();
    return std::move(made_);
  }
  void add(const Graph& graph) {
    if (threads_.empty()) return void(made_.emplace_back(graphs_, graph));
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(&graph);
    }
    changed_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return is_finished_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const Graph& graph = *waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      GraphExec exec(graphs_, graph);
      lock.lock();
      made_.push_back(std::move(exec));
    }
  }

  GraphAPI& graphs_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_, if there are threads.
  std::deque<const Graph*> waiting_;
  std::vector<GraphExec> made_;
  bool is_finished_ = false;
};

// Without other threads nothing is instantiated if `others` is negative.
void instantiate(benchmark::State& state, Device device, int graphs, int kernels, int others) {
  const Stream stream(device);
  const Tensor arena = empty({1024}, DType::kFloat32, device);
  std::vector<double> samples;
  for (auto _ : state) {
    std::deque<Graph> captured;  // elements keep their addresses
    const auto begin = std::chrono::steady_clock::now();
    Instantiators instantiators(stream.ref().graphs(), std::max(others, 0));
    for (int i = 0; i < graphs; ++i) {
      captured.push_back(capture(stream, arena, kernels));
      if (others >= 0) instantiators.add(captured.back());
    }
    const std::vector<GraphExec> execs = instantiators.finish();
    const auto end = std::chrono::steady_clock::now();
    samples.push_back(std::chrono::duration<double>(end - begin).count());
    state.SetIterationTime(samples.back());
  }
  add_counters(state, std::move(samples));
}

void add_rows(const Options& options) {
  Batches batches = kBatches;
  const Device device = options.device;
  const auto add = [&](const std::string& name, std::int64_t samples, auto run) {
    batches.samples = std::max<std::int64_t>(samples, 1);
    batches.apply_to(benchmark::RegisterBenchmark(name.c_str(), run));
  };
  for (const auto& [row, both] : {std::pair{"TwoCalls", true}, {"SecondCall", false}}) {
    for (const int kernels : {1, 30, 300}) {
      const auto add_kind = [&](const char* kind, auto run) {
        add(fmt::format("BM_{}/{}/kernels:{}", row, kind, kernels), options.samples / 4, run);
      };
      add_kind("raw", [=, both = both](benchmark::State& state) {
        by_hand(state, device, kernels, both);
      });
      for (const auto& [name, kind] :
           {std::pair{"arena", StepKind::kArena}, {"tensors", StepKind::kTensors}}) {
        add_kind(name, [=, kind = kind, both = both](benchmark::State& state) {
          through_context(state, device, kernels, kind, both);
        });
      }
    }
  }
  constexpr int kGraphs = 32, kKernels = 300;
  add(fmt::format("BM_Capture/graphs:{}/kernels:{}", kGraphs, kKernels), options.samples / 40,
      [=](benchmark::State& state) { instantiate(state, device, kGraphs, kKernels, -1); });
  for (const int others : {0, 1, 2, 4}) {
    add(fmt::format("BM_Instantiate/graphs:{}/kernels:{}/others:{}", kGraphs, kKernels, others),
        options.samples / 40,
        [=](benchmark::State& state) { instantiate(state, device, kGraphs, kKernels, others); });
  }
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv, {"What does it cost to record?", &cgtree::benchmarks::add_rows});
}
