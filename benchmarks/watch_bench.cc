// Cost of watching replays: of timing them, and of marks.
//
// BM_Call rows are the host time of replays: none is watched, each n-th is timed, or each leaves
// marks, or is timed by scopes, too. BM_Device rows are the device time of a replay of 128 kernels
// in so many scopes, without marks, and with a mark after each scope; scopes_us is the sum of the
// times of all scopes, which is that of the plain replay and of the marks.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "benchmarks/support/kernels.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/times.h"
#include "cgtree/cgtree.h"
#include "extensions/scopes/scope.h"
#include "extensions/watch/monitor.h"
#include "extensions/watch/watch.h"

namespace cgtree::benchmarks {
namespace {

constexpr int kKernels = 128;
constexpr int kCalls = 4;  // per sample of the device's time

enum class Watched { kNot, kMarked, kByScopes };

void watch(Context& context, Watched watched) {
  if (watched == Watched::kNot) return;
  watch_progress(context, std::make_shared<ProgressWatch>(
                              ProgressOptions{.every_nth_replay = 1,
                                              .time_limit = std::chrono::milliseconds(0),
                                              .times_scopes = watched == Watched::kByScopes}));
}

// Returns the sum over all scopes of the mean time in a replay, in microseconds.
double scopes_us(const Context& context) {
  const ContextMetrics metrics = metrics_of(context);
  double sum = 0;
  for (const auto& [scope, times] : metrics.functions.at(0).scope_times) {
    sum += static_cast<double>(times.device.count()) / 1000 / static_cast<double>(times.count);
  }
  return sum;
}

void host_time(benchmark::State& state, Device device, std::size_t timed, Watched watched) {
  Context context(device, {.extensions = {cgtree::watch({.time_every_nth_replay = timed})}});
  watch(context, watched);
  const auto f = compile(context, "step",
                         [](Tensor x) {
                           return trivial_step({&x, 1});
                         },
                         {.inputs = {{.is_static = true}}});
  const Tensor x = empty({1}, DType::kFloat32, device);
  for (int i = 0; i < 4; ++i)
    static_cast<void>(f(x));
  HostTime(state, context.stream(), {.calls = 32}).measure([&] { static_cast<void>(f(x)); });
}

void device_time(benchmark::State& state, Device device, int scopes, Watched watched) {
  Context context(device);
  watch(context, watched);
  const Tensor x = empty({1}, DType::kFloat32, device);
  const auto f = compile(context, "step",
                         [=](Tensor y) {
                           for (int i = 0; i < kKernels; ++i) {
                             const Scope scope(std::to_string(i * scopes / kKernels));
                             launch_trivial_kernel(current_stream(), y.data<float>());
                           }
                           return y;
                         },
                         {.inputs = {{.is_static = true, .is_mutated = true}}});
  for (int i = 0; i < 4; ++i)
    static_cast<void>(f(x));
  DeviceTime time(state, context.stream(), kCalls);
  time.measure([&] { static_cast<void>(f(x)); });
  if (watched == Watched::kByScopes) state.counters["scopes_us"] = scopes_us(context);
}

void add_rows(const Options& options) {
  const Device device = options.device;
  const auto add_host = [&](const std::string& what, std::size_t timed, Watched watched) {
    Batches batches{.calls = 32};
    batches.samples = options.samples;
    batches.apply_to(benchmark::RegisterBenchmark(
        ("BM_Call/" + what).c_str(),
        [=](benchmark::State& state) { host_time(state, device, timed, watched); }));
  };
  add_host("not_watched", 0, Watched::kNot);
  add_host("timed:1000", 1000, Watched::kNot);
  add_host("timed:1", 1, Watched::kNot);
  add_host("marked", 0, Watched::kMarked);
  add_host("by_scopes", 0, Watched::kByScopes);
  for (const int scopes : {4, 32, 128}) {
    for (const auto& [name, watched] :
         {std::pair("plain", Watched::kNot), std::pair("marked", Watched::kByScopes)}) {
      const std::string row = fmt::format("BM_Device/scopes:{}/{}", scopes, name);
      benchmark::RegisterBenchmark(row.c_str(),
                                   [=, watched = watched](benchmark::State& state) {
                                     device_time(state, device, scopes, watched);
                                   })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv,
      {"What does it cost to time replays, and to have them leave marks?",
       &cgtree::benchmarks::add_rows});
}
