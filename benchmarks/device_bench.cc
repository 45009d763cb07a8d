// Cost of the boundary to the device: a virtual call, a query, a launch, a graph's launch.
//
// Numbers are host time per call. BM_VirtualCall goes through DeviceAPI and does not reach the
// device; BM_QueryStream, BM_CaptureInfo and BM_IsCapturing enqueue nothing; BM_RecordEvent and
// BM_WaitEvent are the halves of BM_WaitForStream. BM_EmptyLaunch launches a host body that does
// nothing, BM_TrivialLaunch a kernel of one element. BM_GraphLaunch launches a graph of these
// kernels, and on a GPU BM_RawCudaGraphLaunch does so without the library. BM_Device rows are the
// time per launch of many in a row: the device time of a kernel, and of an edge.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "benchmarks/support/kernels.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/times.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/device/kernel.h"
#include "interop/tensor/empty.h"
#ifdef CGTREE_WITH_CUDA
#include "benchmarks/support/cuda.h"
#endif

namespace cgtree::benchmarks {
namespace {

template <typename Row>
void add_row(const std::string& name, const Options& options, Row row, int calls = 16) {
  const Batches batches{.calls = calls, .samples = options.samples};
  batches.apply_to(benchmark::RegisterBenchmark(
      name.c_str(), [batches, row](benchmark::State& state) { row(state, batches); }));
}

void do_nothing(const LaunchDims&, int) {
}

void add_functions(const Options& options) {
  constexpr int kMany = 1024;  // this call takes about 1 ns
  const Device device = options.device;
  add_row(
      "BM_VirtualCall", options,
      [=](benchmark::State& state, const Batches& batches) {
        const Stream stream(device);
        DeviceAPI* api = &stream.ref().api();
        HostTime(state, stream, batches).measure([&] {
          benchmark::DoNotOptimize(api);  // the compiler must not know the class
          benchmark::DoNotOptimize(api->graphs());
        });
      },
      kMany);
  add_row("BM_QueryStream", options, [=](benchmark::State& state, const Batches& batches) {
    const Stream stream(device);
    DeviceAPI& api = stream.ref().api();
    HostTime(state, stream, batches).measure([&] {
      check(api.query_stream(stream.ref().handle()), "query a stream");
    });
  });
}

// The calls that order two streams.
void add_orders(const Options& options) {
  const auto add = [&](const char* name, auto call) {
    add_row(name, options, [=, device = options.device](auto& state, const Batches& batches) {
      const Stream stream(device), other(device);
      Event event;
      event.record(other);
      HostTime(state, stream, batches).measure([&] { call(stream.ref(), other.ref(), event); });
    });
  };
  add("BM_CaptureInfo", [](StreamRef stream, StreamRef, Event&) {
    CaptureInfo info;
    check(stream.graphs().capture_info(stream.handle(), &info), "ask for a capture");
  });
  add("BM_IsCapturing",
      [](StreamRef stream, StreamRef, Event&) { benchmark::DoNotOptimize(stream.is_capturing()); });
  add("BM_RecordEvent", [](StreamRef, StreamRef other, Event& event) { event.record(other); });
  add("BM_WaitEvent", [](StreamRef stream, StreamRef, Event& event) { event.make_wait(stream); });
  add("BM_WaitForStream",
      [](StreamRef stream, StreamRef other, Event&) { stream.wait_for(other); });
}

void add_launches(const Options& options) {
  const Device device = options.device;
  if (device.type == DeviceType::kHost) {
    add_row("BM_EmptyLaunch", options, [=](benchmark::State& state, const Batches& batches) {
      const Stream stream(device);
      const auto kernel = make_kernel<do_nothing>("do_nothing");
      HostTime(state, stream, batches).measure([&] { launch(stream, kernel, {}, 0); });
    });
  }
  add_row("BM_TrivialLaunch", options, [=](benchmark::State& state, const Batches& batches) {
    const Stream stream(device);
    const Tensor x = empty({1}, DType::kFloat32, device);
    HostTime(state, stream, batches).measure([&] {
      launch_trivial_kernel(stream, x.data<float>());
    });
  });
}

// A Chain is a captured chain of trivial kernels, ready to launch.
struct Chain {
  Chain(Device device, int nodes)
      : stream(device),
        x(empty({1}, DType::kFloat32, device)),
        graph(captured(nodes)),
        exec(stream.ref().graphs(), graph) {}

  Graph captured(int nodes) const {
    Capture capture(stream, CaptureMode::kThreadLocal);
    for (int i = 0; i < nodes; ++i)
      launch_trivial_kernel(stream, x.data<float>());
    Graph captured;
    check(capture.end(&captured), "capture a chain of kernels");
    return captured;
  }

  void launch() const { check(exec.api().launch(exec.handle(), stream.ref().handle()), "launch"); }

  Stream stream;
  Tensor x;
  Graph graph;
  GraphExec exec;
};

void add_graphs(const Options& options) {
  const Device device = options.device;
  for (const int nodes : {1, 128}) {
    add_row(fmt::format("BM_GraphLaunch/nodes:{}", nodes), options,
            [=](benchmark::State& state, const Batches& batches) {
              const Chain chain(device, nodes);
              HostTime(state, chain.stream, batches).measure([&] { chain.launch(); });
            });
#ifdef CGTREE_WITH_CUDA
    if (device.type != DeviceType::kCuda) continue;
    add_row(fmt::format("BM_RawCudaGraphLaunch/nodes:{}", nodes), options,
            [=](benchmark::State& state, const Batches& batches) {
              const Chain chain(device, nodes);
              HostTime(state, chain.stream, batches).measure([&] {
                check(cuda_launch(chain.exec, chain.stream), "launch");
              });
            });
#endif
  }
}

void add_device_times(const Options& options) {
  for (const int nodes : {1, 2, 3}) {
    benchmark::RegisterBenchmark(
        fmt::format("BM_Device/nodes:{}", nodes).c_str(),
        [=, device = options.device](benchmark::State& state) {
          const Chain chain(device, nodes);
          DeviceTime(state, chain.stream, 256).measure([&] { chain.launch(); });
        })
        ->Iterations(std::min<std::int64_t>(options.samples, 50))
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

void add_rows(const Options& options) {
  add_functions(options);
  add_orders(options);
  add_launches(options);
  add_graphs(options);
  add_device_times(options);
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv, {"What does the boundary to the device cost?", &cgtree::benchmarks::add_rows});
}
