// Cost of branches and loops on the device, compared with a host that reads the decision.
//
// BM_Rounds: the device time of a round of so many kernels. "loop": 64 rounds in one replay.
// "queued": a replay for each, enqueued ahead. "read": the host reads 4 bytes after each.
// BM_Choice: the device time of a choice between two bodies of so many kernels. "branch": in one
// replay. "read": the host reads 4 bytes and calls one of two functions. "both": both bodies, in
// one replay. "one": one body, without a choice.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "benchmarks/support/kernels.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/times.h"
#include "cgtree/cgtree.h"
#include "extensions/flow/control_flow.h"

namespace cgtree::benchmarks {
namespace {

constexpr int kRounds = 64;  // of a loop, and calls per sample

CompileOptions in_place() {
  return {.inputs = {{.is_static = true, .is_mutated = true}, {.is_static = true}}};
}

// The context, its inputs, and functions that each change `x` in place.
struct Bench {
  using Function = CompiledFunction<Tensor(Tensor, Tensor)>;

  explicit Bench(Device device)
      : context(device), x(empty({1}, DType::kFloat32, device)), flag(one(device)) {}

  static Tensor one(Device device) {
    const std::int32_t value = 1;
    return from_host(Shape(), std::span(&value, 1), device);
  }
  static void work(const Tensor& x, int kernels) {
    for (int i = 0; i < kernels; ++i)
      launch_trivial_kernel(current_stream(), x.data<float>());
  }
  // Compiles, warms up and records.
  template <typename Step>
  Function make(const char* name, Step step) {
    Function function = compile(context, name, step, in_place());
    for (int i = 0; i < 3; ++i)
      (void)function(x, flag);
    return function;
  }
  Function plain(int kernels) {
    return make("plain", [kernels](Tensor y, Tensor go_on) {
      work(y, kernels);
      return go_on;
    });
  }
  std::int32_t read() const {
    std::int32_t value = 0;
    flag.copy_to_host(&value, sizeof(value), context.stream());
    return value;
  }

  Context context;
  Tensor x;
  Tensor flag;
};

void rounds(benchmark::State& state, Device device, std::string_view how, int kernels) {
  Bench bench(device);
  const Bench::Function round = bench.plain(kernels);
  const Bench::Function loop_of_all = bench.make("loop", [kernels](Tensor y, Tensor go_on) {
    return loop(kRounds, [&] {
      Bench::work(y, kernels);
      return go_on;
    });
  });
  int calls = 0;
  DeviceTime(state, bench.context.stream(), kRounds).measure([&] {
    if (how != "loop") {
      (void)round(bench.x, bench.flag);
      if (how == "read") benchmark::DoNotOptimize(bench.read());
    } else if (calls++ % kRounds == 0) {
      (void)loop_of_all(bench.x, bench.flag);
    }
  });
}

void choice(benchmark::State& state, Device device, std::string_view how, int kernels) {
  Bench bench(device);
  const Bench::Function way = bench.plain(kernels);
  const Bench::Function other = bench.plain(kernels);
  const Bench::Function both = bench.plain(2 * kernels);
  const Bench::Function chosen = bench.make("branch", [kernels](Tensor y, Tensor taken) {
    branch(
        taken, [&] { Bench::work(y, kernels); }, [&] { Bench::work(y, kernels); });
    return taken;
  });
  DeviceTime(state, bench.context.stream(), kRounds).measure([&] {
    if (how == "read") {
      (void)(bench.read() != 0 ? way : other)(bench.x, bench.flag);
    } else {
      (void)(how == "branch" ? chosen : how == "both" ? both : way)(bench.x, bench.flag);
    }
  });
}

void add_rows(const Options& options) {
  const auto add = [&](const char* name, const char* how, int kernels, auto* row) {
    const std::string text = fmt::format("BM_{}/{}/kernels:{}", name, how, kernels);
    Batches batches{.calls = kRounds};
    batches.samples = options.samples;
    batches.apply_to(benchmark::RegisterBenchmark(
        text.c_str(), [=, device = options.device](benchmark::State& state) {
          row(state, device, how, kernels);
        }));
  };
  for (const int kernels : {1, 10, 100}) {
    for (const char* const how : {"loop", "queued", "read"})
      add("Rounds", how, kernels, &rounds);
    for (const char* const how : {"branch", "read", "both", "one"})
      add("Choice", how, kernels, &choice);
  }
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv,
      {"What do branches and loops on the device cost?", &cgtree::benchmarks::add_rows});
}
