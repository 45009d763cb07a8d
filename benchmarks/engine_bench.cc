// Host cost of an engine's step through Steps, compared with the usual code of engines: a map from
// shape to executable graph, with static buffers and one copy per moving input. Also the cost of a
// step block compared with one copy per array of host data, of an eager break compared with the
// launches around it, and of alternating sessions with one recording compared with a recording
// each.
//
// Host time per step as the engine sees it, including making the key; on the cuda device without
// the GPU's time. The map checks only the shape.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator/device/pinned_memory.h"
#include "benchmarks/support/kernels.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/times.h"
#include "cgtree/cgtree.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"

namespace cgtree::benchmarks {
namespace {

constexpr std::int64_t kBytes = 4096;  // of each binding
constexpr int kShapes = 8;             // recorded; steps alternate between them
constexpr Batches kBatches = {.calls = 16, .until_drained = 4};

std::vector<Tensor> make_memory(Device device, int count) {
  const std::vector<float> zeros(kBytes / sizeof(float));
  std::vector<Tensor> memory;
  for (int i = 0; i < count; ++i)
    memory.push_back(from_host(Shape{kBytes / 4}, std::span<const float>(zeros), device));
  return memory;
}

std::vector<Binding> bindings_of(const std::vector<Tensor>& memory) {
  std::vector<Binding> bindings;
  for (const Tensor& tensor : memory)
    bindings.push_back({reinterpret_cast<const void*>(tensor.address()), tensor.bytes()});
  return bindings;
}

struct Row {
  Device device;
  int bindings = 0;
  bool copied = false;  // otherwise at stable addresses; copied bindings move at each step

  // The engine's work: one kernel.
  static void forward(StreamRef stream, const Tensor& x) {
    launch_trivial_kernel(stream, x.data<float>());
  }
};

void run_steps(benchmark::State& state, const Batches& batches, const Row& row) {
  Context context(row.device);
  StepsOptions options;
  if (row.copied) options.bindings.resize(static_cast<std::size_t>(row.bindings));
  for (BindingOptions& binding : options.bindings)
    binding.is_copied = true;
  Steps steps(context, "step", std::move(options));
  const Stream stream(row.device, StreamKind::kNonBlocking);
  const std::vector<Tensor> memory[] = {make_memory(row.device, row.bindings),
                                        make_memory(row.device, row.bindings)};
  const std::vector<Binding> sets[] = {bindings_of(memory[0]), bindings_of(memory[1])};
  const Tensor work = make_memory(row.device, 1)[0];
  unsigned call = 0;
  const auto step = [&] {
    const std::vector<Binding>& bindings = sets[row.copied ? call / kShapes % 2 : 0];
    const Key key{{"batch", call++ % kShapes}};
    for (Step one = steps.begin(key, bindings, stream); one.must_run(); one.end())
      Row::forward(stream, work);
  };
  for (int i = 0; i < 4 * kShapes; ++i)
    step();
  const FunctionStats before = steps.stats();
  HostTime(state, stream, batches).measure(step);
  const FunctionStats after = steps.stats();
  if (after.replays - before.replays != after.calls - before.calls) {
    state.SkipWithError(fmt::format("not only replays: {}", to_string(after)).c_str());
  }
}

// The usual code of engines.
void run_map(benchmark::State& state, const Batches& batches, const Row& row) {
  const Stream stream(row.device, StreamKind::kNonBlocking);
  const std::vector<Tensor> memory[] = {make_memory(row.device, row.bindings),
                                        make_memory(row.device, row.bindings)};
  const std::vector<Tensor> buffers = make_memory(row.device, row.bindings);
  const Tensor work = make_memory(row.device, 1)[0];
  DeviceAPI& api = stream.ref().api();
  std::unordered_map<std::uint64_t, std::pair<Graph, GraphExec>> graphs;
  for (std::uint64_t shape = 0; shape < kShapes; ++shape) {
    Capture capture(stream, CaptureMode::kThreadLocal);
    Row::forward(stream, work);
    Graph graph;
    check(capture.end(&graph), "capture a step");
    GraphExec exec(stream.ref().graphs(), graph);
    graphs.emplace(shape, std::pair(std::move(graph), std::move(exec)));
  }
  unsigned call = 0;
  HostTime(state, stream, batches).measure([&] {
    const std::vector<Tensor>& given = memory[call / kShapes % 2];
    for (std::size_t i = 0; row.copied && i < given.size(); ++i) {
      check(api.copy(stream.ref().handle(), buffers[i].data(), given[i].data(), kBytes), "copy");
    }
    const GraphExec& exec = graphs.at(call++ % kShapes).second;
    check(exec.api().launch(exec.handle(), stream.ref().handle()), "launch");
  });
}

// Host data that changes at each step: one struct, compared with three arrays in pinned memory.
void run_block(benchmark::State& state, const Batches& batches, Device device, std::size_t bytes) {
  Context context(device);
  Steps steps(context, "step", {.bindings = {{.host_bytes = bytes}}});
  const Stream stream(device, StreamKind::kNonBlocking);
  const Tensor work = make_memory(device, 1)[0];
  std::vector<unsigned> block(bytes / sizeof(unsigned));
  const Binding bindings[] = {{block.data(), bytes}};
  const auto step = [&] {
    ++block[0];
    for (Step one = steps.begin({}, bindings, stream); one.must_run(); one.end())
      Row::forward(stream, work);
  };
  for (int i = 0; i < 4; ++i)
    step();
  HostTime(state, stream, batches).measure(step);
}

void run_copies_of_arrays(benchmark::State& state, const Batches& batches, Device device,
                          std::size_t bytes) {
  const Stream stream(device, StreamKind::kNonBlocking);
  PinnedMemory pinned(device);
  constexpr std::size_t kArrays = 3;
  const auto count = static_cast<std::int64_t>(bytes / kArrays);
  std::vector<Tensor> from, to;
  for (std::size_t i = 0; i < kArrays; ++i) {
    from.push_back(pinned.empty({count}, DType::kUInt8));
    to.push_back(empty({count}, DType::kUInt8, device));
  }
  const Tensor work = make_memory(device, 1)[0];
  Capture capture(stream, CaptureMode::kThreadLocal);
  Row::forward(stream, work);
  Graph graph;
  check(capture.end(&graph), "capture a step");
  const GraphExec exec(stream.ref().graphs(), graph);
  DeviceAPI& api = stream.ref().api();
  HostTime(state, stream, batches).measure([&] {
    for (std::size_t i = 0; i < kArrays; ++i) {
      check(api.copy(stream.ref().handle(), to[i].data(), from[i].data(), from[i].bytes()), "copy");
    }
    check(exec.api().launch(exec.handle(), stream.ref().handle()), "launch");
  });
}

// Graphs of one kernel each, with an empty function between two of them.
void run_breaks(benchmark::State& state, const Batches& batches, Device device, int segments) {
  Context context(device);
  Steps steps(context, "step");
  const Stream stream(device, StreamKind::kNonBlocking);
  const Tensor work = make_memory(device, 1)[0];
  const auto step = [&] {
    for (Step one = steps.begin({}, {}, stream); one.must_run(); one.end()) {
      Row::forward(stream, work);
      for (int i = 1; i < segments; ++i) {
        eager_break([](const StepValues&) {});
        Row::forward(stream, work);
      }
    }
  };
  for (int i = 0; i < 4; ++i)
    step();
  HostTime(state, stream, batches).measure(step);
}

void run_launches(benchmark::State& state, const Batches& batches, Device device, int segments) {
  const Stream stream(device, StreamKind::kNonBlocking);
  const Tensor work = make_memory(device, 1)[0];
  std::vector<Graph> graphs(static_cast<std::size_t>(segments));
  std::vector<GraphExec> execs;
  for (Graph& graph : graphs) {
    Capture capture(stream, CaptureMode::kThreadLocal);
    Row::forward(stream, work);
    check(capture.end(&graph), "capture a segment");
    execs.emplace_back(stream.ref().graphs(), graph);
  }
  HostTime(state, stream, batches).measure([&] {
    for (const GraphExec& exec : execs)
      check(exec.api().launch(exec.handle(), stream.ref().handle()), "launch");
  });
}

// Sessions alternate, and each kernel uses the memory of its session.
enum class Sessions { kRecordingEach, kSharedExec, kPerSession };

void run_sessions(benchmark::State& state, const Batches& batches, Device device, Sessions how,
                  int sessions) {
  constexpr int kKernels = 64;
  Context context(device);
  StepsOptions options;
  options.bindings = {{.is_mutated = true, .is_per_session = how == Sessions::kPerSession}};
  options.max_recordings = 1024;
  if (how == Sessions::kSharedExec) options.max_switch_nodes = kKernels;
  Steps steps(context, "step", std::move(options));
  const Stream stream(device, StreamKind::kNonBlocking);
  const std::vector<Tensor> memory = make_memory(device, sessions);
  const std::vector<Binding> bindings = bindings_of(memory);
  std::size_t call = 0;
  const auto step = [&] {
    const std::size_t session = call++ % memory.size();
    const std::span<const Binding> bound(&bindings[session], 1);
    for (Step one = steps.begin({}, bound, stream); one.must_run(); one.end())
      for (int i = 0; i < kKernels; ++i)
        Row::forward(stream, memory[session]);
  };
  for (int i = 0; i < 64 * sessions; ++i)
    step();
  const FunctionStats before = steps.stats();
  HostTime(state, stream, batches).measure(step);
  const FunctionStats after = steps.stats();
  if (after.replays - before.replays != after.calls - before.calls)
    state.SkipWithError(fmt::format("not only replays: {}", to_string(after)).c_str());
  state.counters["recordings"] = static_cast<double>(after.kept_recordings);
  state.counters["graph_bytes"] = static_cast<double>(context.stats().graph_bytes);
}

void add_session_rows(const Options& options) {
  Batches batches = kBatches;
  batches.samples = options.samples / 4;
  batches.calls = 4;
  for (const int sessions : {1, 4, 16, 64, 256}) {
    for (const auto& [name, how] : {std::pair("recording_each", Sessions::kRecordingEach),
                                    std::pair("shared_exec", Sessions::kSharedExec),
                                    std::pair("per_session", Sessions::kPerSession)}) {
      batches.apply_to(benchmark::RegisterBenchmark(
          fmt::format("BM_Sessions/{}:{}", name, sessions).c_str(),
          [=, how = how](benchmark::State& state) {
            run_sessions(state, batches, options.device, how, sessions);
          }));
    }
  }
}

void add_host_data_rows(const Options& options) {
  const auto add = [&](const char* name, const Batches& batches, auto run, auto size) {
    batches.apply_to(benchmark::RegisterBenchmark(
        fmt::format("{}:{}", name, size).c_str(),
        [=](benchmark::State& state) { run(state, batches, options.device, size); }));
  };
  Batches batches = kBatches;
  batches.samples = options.samples / 4;
  for (const std::size_t bytes : {192, 768, 3'072, 12'288, 49'152, 196'608}) {
    add("BM_CopiesOfArrays/bytes", batches, run_copies_of_arrays, bytes);
    add("BM_StepBlock/bytes", batches, run_block, bytes);
  }
  batches.calls = 1;
  batches.until_drained = 2;
  for (const int segments : {1, 8, 62}) {
    add("BM_Launches/segments", batches, run_launches, segments);
    add("BM_EagerBreaks/segments", batches, run_breaks, segments);
  }
}

void add_rows(const Options& options) {
  add_host_data_rows(options);
  add_session_rows(options);
  for (const bool copied : {false, true}) {
    for (const int bindings : {1, 16, 300}) {
      Batches batches = kBatches;
      batches.samples = copied ? options.samples / 4 : options.samples;
      if (copied && bindings > 16) batches.calls = 2;
      if (copied && bindings > 1) batches.until_drained = 1;
      const Row row{options.device, bindings, copied};
      const auto add = [&](const char* name, auto run) {
        batches.apply_to(benchmark::RegisterBenchmark(
            fmt::format("{}/{}:{}", name, copied ? "copied" : "fixed", bindings).c_str(),
            [=](benchmark::State& state) { run(state, batches, row); }));
      };
      add("BM_MapOfGraphs", run_map);
      add("BM_Steps", run_steps);
    }
  }
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv,
      {"What does a step of an engine cost the host through Steps, against a map of graphs?",
       &cgtree::benchmarks::add_rows});
}
