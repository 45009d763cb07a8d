// One-time costs of a process: the time until its first call is done, and the device memory of its
// executable graphs.
//
// Each sample is a separate process. BM_FirstCall/cgtree: from main() until the first call of a
// compiled function is done; /raw: until the same kernel, launched by hand, is done; the counters
// are medians of the times when each part was done. BM_GraphMemory: the decrease of the device's
// free memory when many graphs of so many nodes are instantiated, and when each has been launched
// once; for each node, and for each graph. The driver takes memory in pieces of 2 MiB or more, so
// that a row needs some 10,000 nodes. BM_SharedGraphs: the same for 128 recordings of one function
// that differ in so many of their 300 nodes, with an executable graph each, or all with one; and
// the host time of a replay of the same recording again, and of another one.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "benchmarks/support/kernels.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/times.h"
#include "cgtree/cgtree.h"
#include "extensions/audit/graph_estimate.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "tests/support/run_program.h"

namespace cgtree::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;
using Numbers = std::map<std::string, double>;

// Starts this program again for one sample.
Numbers run_child(const std::string& arguments) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const testing::ProgramRun outcome =
      testing::run_program(fmt::format("'{}' --child {}", self, arguments));
  const std::size_t begin = outcome.output.rfind("{\"");
  if (outcome.status != 0 || begin == std::string::npos) {
    throw InvalidArgument(fmt::format("'{}' failed: {}", arguments, outcome.output));
  }
  return nlohmann::json::parse(outcome.output.substr(begin)).get<Numbers>();
}

// Notes the times since main() at which parts were done, in microseconds.
class Parts {
 public:
  explicit Parts(Clock::time_point begin) : begin_(begin) {}
  void done(const char* part) {
    numbers_[part] = std::chrono::duration<double, std::micro>(Clock::now() - begin_).count();
  }
  const Numbers& numbers() const { return numbers_; }

 private:
  const Clock::time_point begin_;
  Numbers numbers_;
};

Numbers first_call(Clock::time_point begin, Device device) {
  Parts parts(begin);
  Context context(device);
  parts.done("context_us");
  const auto f = compile(context, "step", [](Tensor x) { return trivial_step({&x, 1}); });
  const Tensor x = empty({1}, DType::kFloat32, device);
  parts.done("input_us");
  const Tensor y = f(x);
  parts.done("enqueued_us");
  context.synchronize();
  parts.done("done_us");
  return parts.numbers();
}

Numbers first_launch(Clock::time_point begin, Device device) {
  Parts parts(begin);
  DeviceAPI& api = device_api(device);
  check(api.set_device(device.id), "make the primary context");
  parts.done("context_us");
  const Stream stream(device);
  void* x = nullptr;
  check(api.alloc_data_space(device.id, sizeof(float), &x), "allocate");
  parts.done("input_us");
  launch_trivial_kernel(stream, static_cast<float*>(x));
  parts.done("enqueued_us");
  stream.synchronize();
  parts.done("done_us");
  check(api.free_data_space(device.id, x), "free");
  return parts.numbers();
}

double free_bytes(Device device) {
  const AttributeValue value =
      device_api(device).attribute(device.id, DeviceAttribute::kFreeMemory);
  const auto* const bytes = std::get_if<std::int64_t>(&value);
  return bytes == nullptr ? 0 : static_cast<double>(*bytes);
}

// Adds a node of a kind, on memory of 4 KiB.
void add_node(const std::string& kind, StreamRef stream, const Tensor& memory) {
  float* const x = memory.data<float>();
  GraphAPI& graphs = stream.graphs();
  if (kind == "kernel" || kind == "branches") {
    launch_trivial_kernel(stream, x);
  } else if (kind.starts_with("kernel_")) {
    launch_wide_kernel(stream, x, std::stoi(kind.substr(7)));
  } else if (kind == "memcpy") {
    check(stream.api().copy(stream.handle(), x, x + 512, 1024), "copy");
  } else if (kind == "memset") {
    check(graphs.memset(stream.handle(), x, 0, 1024), "memset");
  } else if (kind == "host") {
    check(graphs.launch_host_function(
              stream.handle(), [](void*) {}, nullptr),
          "host function");
  } else {
    throw InvalidArgument(fmt::format("no kind of node: {}", kind));
  }
}

Graph capture(const std::string& kind, StreamRef stream, int nodes, const Tensor& memory) {
  Graph graph;
  const std::size_t branches = kind == "branches" ? 4 : 0;
  std::deque<Stream> sides;
  for (std::size_t i = 0; i < branches; ++i)
    sides.emplace_back(stream.device());
  Capture open(stream, CaptureMode::kThreadLocal);
  for (const Stream& side : sides)
    side.ref().wait_for(stream);
  for (int i = 0; i < nodes; ++i) {
    const auto side = static_cast<std::size_t>(i) % std::max<std::size_t>(branches, 1);
    add_node(kind, branches == 0 ? stream : sides[side].ref(), memory);
  }
  for (const Stream& side : sides)
    stream.wait_for(side);
  check(open.end(&graph), "capture");
  return graph;
}

Numbers graph_memory(Device device, const std::string& kind, int nodes, int count) {
  const Stream stream(device);
  const Tensor memory = empty({1024}, DType::kFloat32, device);
  const Graph graph = capture(kind, stream, nodes, memory);
  GraphAPI& graphs = stream.ref().graphs();
  const auto launch = [&](const GraphExec& exec) {
    check(graphs.launch(exec.handle(), stream.ref().handle()), "launch");
  };
  std::vector<GraphExec> execs;
  execs.emplace_back(graphs, graph);  // excludes memory that the first graph takes for all
  launch(execs.back());
  stream.synchronize();
  const double before = free_bytes(device);
  for (int i = 0; i < count; ++i)
    execs.emplace_back(graphs, graph);
  const double instantiated = free_bytes(device);
  for (const GraphExec& exec : execs)
    launch(exec);
  stream.synchronize();
  const double launched = free_bytes(device);
  const double each = count;
  std::vector<NodeContents> contents;
  std::vector<GraphEdge> edges;
  check(graphs.read_nodes(graph.handle(), &contents), "read the nodes");
  check(graphs.graph_edges(graph.handle(), &edges), "read the edges");
  return {{"estimated_per_graph", static_cast<double>(estimate_graph_bytes(contents, edges))},
          {"instantiated_per_graph", (before - instantiated) / each},
          {"bytes_per_graph", (before - launched) / each},
          {"bytes_per_node", (before - launched) / each / nodes}};
}

Numbers shared_graphs(Device device, int differing, std::size_t max_switch_nodes) {
  constexpr int kNodes = 300, kRecordings = 128, kRounds = 50;
  Context context(device);
  const Tensor memory = empty({1024}, DType::kFloat32, device);
  const auto f =
      compile(context, "step",
              [=](Tensor x) {
                float* const own = x.data<float>() + current_key().number("size");
                for (int i = 0; i < kNodes; ++i)
                  launch_trivial_kernel(current_stream(), i < differing ? own : x.data<float>());
                return x;
              },
              {.inputs = {{.is_static = true}}, .max_switch_nodes = max_switch_nodes});
  const auto record = [&](std::int64_t size) {
    for (int call = 0; call < 2; ++call)
      static_cast<void>(f.keyed({{"size", size}})(memory));
    context.synchronize();
  };
  record(0);
  const double before = free_bytes(device);
  for (std::int64_t size = 1; size < kRecordings; ++size)
    record(size);
  const double after = free_bytes(device);
  const auto replay_us = [&](std::int64_t step) {
    std::vector<double> times;
    std::int64_t size = 0;
    for (int round = 0; round < kRounds; ++round) {
      size = (size + step) % kRecordings;
      const auto keyed = f.keyed({{"size", size}});
      const auto begin = Clock::now();
      static_cast<void>(keyed(memory));
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
      context.synchronize();
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  };
  static_cast<void>(replay_us(1));
  return {{"bytes_per_recording", (before - after) / (kRecordings - 1)},
          {"estimated_bytes", static_cast<double>(context.stats().graph_bytes)},
          {"same_us", replay_us(0)},
          {"other_us", replay_us(1)}};
}

int run_as_child(Clock::time_point begin, const std::vector<std::string>& arguments) {
  try {
    const Device device = parse_device(arguments.at(1));
    Numbers numbers;
    if (arguments[0] == "cgtree") {
      numbers = first_call(begin, device);
    } else if (arguments[0] == "raw") {
      numbers = first_launch(begin, device);
    } else if (arguments[0] == "shared") {
      numbers = shared_graphs(device, std::stoi(arguments.at(2)), std::stoul(arguments.at(3)));
    } else {
      numbers = graph_memory(device, arguments[0], std::stoi(arguments.at(2)),
                             std::stoi(arguments.at(3)));
    }
    fmt::print("{}\n", nlohmann::json(numbers).dump());
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

void time_processes(benchmark::State& state, Device device, const std::string& what) {
  const std::string arguments = fmt::format("{} {}", what, to_string(device));
  std::map<std::string, std::vector<double>> samples;
  static_cast<void>(run_child(arguments));  // brings the files into the system's cache
  for (auto _ : state) {
    for (const auto& [part, us] : run_child(arguments))
      samples[part].push_back(us);
    state.SetIterationTime(samples["done_us"].back() * 1e-6);
  }
  for (auto& [part, times] : samples) {
    std::ranges::sort(times);
    state.counters[part] = times[times.size() / 2];
  }
}

void measure_sharing(benchmark::State& state, Device device, int differing, int max_nodes) {
  for (auto _ : state) {
    const auto begin = Clock::now();
    for (const auto& [counter, number] :
         run_child(fmt::format("shared {} {} {}", to_string(device), differing, max_nodes))) {
      state.counters[counter] = number;
    }
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - begin).count());
  }
}

void measure_memory(benchmark::State& state, Device device, const std::string& kind, int nodes) {
  constexpr int kNodes = 50'000;
  constexpr int kMostGraphs = 10'000;
  const int graphs = std::min(kNodes / nodes, kMostGraphs);
  for (auto _ : state) {
    const auto begin = Clock::now();
    for (const auto& [counter, bytes] :
         run_child(fmt::format("{} {} {} {}", kind, to_string(device), nodes, graphs))) {
      state.counters[counter] = bytes;
    }
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - begin).count());
  }
}

// A process that fails is an error of its row.
template <typename Run>
void add_row(const std::string& name, std::int64_t samples, Run run) {
  const Batches batches{.calls = 1, .until_drained = 1, .samples = samples};
  batches.apply_to(benchmark::RegisterBenchmark(name.c_str(), [run](benchmark::State& state) {
    try {
      run(state);
    } catch (const std::exception& error) {
      state.SkipWithError(error.what());
    }
  }));
}

void add_rows(const Options& options) {
  const Device device = options.device;
  for (const std::string what : {"raw", "cgtree"}) {
    add_row("BM_FirstCall/" + what, std::max<std::int64_t>(options.samples / 40, 1),
            [=](benchmark::State& state) { time_processes(state, device, what); });
  }
  const std::vector<int> all = {1, 2, 4, 10, 30, 100, 300, 1000};
  const std::vector<int> some = {1, 10, 100, 1000};
  for (const std::string kind : {"kernel", "branches", "kernel_256", "kernel_1024", "kernel_4000",
                                 "memcpy", "memset", "host"}) {
    for (const int nodes : kind == "kernel" ? all : some) {
      add_row(fmt::format("BM_GraphMemory/{}/nodes:{}", kind, nodes), 1,
              [=](benchmark::State& state) { measure_memory(state, device, kind, nodes); });
    }
  }
  for (const int differing : {1, 10, 100, 300}) {
    for (const int max_nodes : {0, 300}) {
      add_row(fmt::format("BM_SharedGraphs/{}/differing:{}", max_nodes == 0 ? "own" : "shared",
                          differing),
              1, [=](benchmark::State& state) {
                measure_sharing(state, device, differing, max_nodes);
              });
    }
  }
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  const auto begin = std::chrono::steady_clock::now();
  if (argc > 2 && argv[1] == std::string("--child")) {
    return cgtree::benchmarks::run_as_child(begin, {argv + 2, argv + argc});
  }
  return cgtree::benchmarks::run_program(
      argc, argv, {"What does a process pay once?", &cgtree::benchmarks::add_rows});
}
