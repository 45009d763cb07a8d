// Cost of verification, which compares a replay with an eager run.
//
// BM_Compare, BM_Exchange and BM_Copy: the device's time for two tensors of so many MiB, and the
// rate of all bytes that are read and written. BM_Replay rows are the host time of replays of which
// each n-th is verified; 0 is none.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "benchmarks/support/kernels.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/times.h"
#include "cgtree/cgtree.h"
#include "extensions/verify/compare.h"
#include "extensions/verify/verify.h"
#include "interop/tensor/copy.h"

namespace cgtree::benchmarks {
namespace {

constexpr int kCalls = 4;  // of kernels, per sample

// `touched`: how often each byte of a tensor is read or written by a call.
template <typename Call>
void device_rate(benchmark::State& state, Device device, std::int64_t mib, int touched, Call call) {
  const Stream stream(device);
  const Tensor first = empty({mib << 18}, DType::kFloat32, device);
  const Tensor second = empty({mib << 18}, DType::kFloat32, device);
  const Tensor found = empty({8}, DType::kInt64, device);
  copy(second, first, stream);  // the tensors are equal, as they should be
  DeviceTime time(state, stream, kCalls);
  time.measure([&] { call(stream, first, second, found.address()); });
  state.counters["bytes_per_second"] = benchmark::Counter(
      static_cast<double>(first.bytes()) * touched, benchmark::Counter::kIsIterationInvariantRate);
}

void replays(benchmark::State& state, Device device, int verify_every) {
  Context context(device,
                  {.extensions = {verify({.every = static_cast<std::size_t>(verify_every)})}});
  const auto f = compile(context, "step",
                         [](Tensor x) {
                           return trivial_step({&x, 1});
                         },
                         {.inputs = {{.is_static = true}}});
  const Tensor x = empty({1}, DType::kFloat32, device);
  for (int i = 0; i < 3; ++i)
    static_cast<void>(f(x));
  HostTime(state, context.stream(), {.calls = 100}).measure([&] { static_cast<void>(f(x)); });
}

void add_rows(const Options& options) {
  const Device device = options.device;
  for (const std::int64_t mib : {16, 1024, 8192}) {
    if (mib > 16 && device.type != DeviceType::kCuda) continue;  // it would take minutes there
    const auto add = [&](const char* name, int touched, auto call) {
      const std::string row = fmt::format("BM_{}/mib:{}", name, mib);
      benchmark::RegisterBenchmark(
          row.c_str(),
          [=](benchmark::State& state) { device_rate(state, device, mib, touched, call); })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    };
    add("Compare", 2, [](StreamRef stream, const Tensor& a, const Tensor& b, std::uintptr_t found) {
      compare_elements(stream, a, b, 0, found);
    });
    add("Exchange", 4, [](StreamRef stream, const Tensor& a, const Tensor& b, std::uintptr_t) {
      exchange_elements(stream, a, b);
    });
    add("Copy", 2, [](StreamRef stream, const Tensor& a, const Tensor& b, std::uintptr_t) {
      copy(a, b, stream);
    });
  }
  for (const int verify_every : {0, 1000, 100, 10}) {
    const std::string row = fmt::format("BM_Replay/verify_every:{}", verify_every);
    Batches batches{.calls = 100};
    batches.samples = options.samples;
    batches.apply_to(benchmark::RegisterBenchmark(
        row.c_str(), [=](benchmark::State& state) { replays(state, device, verify_every); }));
  }
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv, {"What does verification cost?", &cgtree::benchmarks::add_rows});
}
