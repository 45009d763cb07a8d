// Device cost of copied, strided, padded and copied-back inputs, compared with a graph without
// them.
//
// BM_Device rows are the time per replay of many in a row, until the last has ended: the device
// time if it exceeds the host's 1 us. BM_Host rows are the host's time per call. BM_Alone and
// BM_Row compare a copied input with one that is rebound.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/support/kernels.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/times.h"
#include "cgtree/cgtree.h"
#include "interop/tensor/copy.h"
#ifdef CGTREE_WITH_CUDA
#include "benchmarks/baselines/cuda_copies.h"
#endif

namespace cgtree::benchmarks {
namespace {

constexpr std::int64_t kSmall = 1024;  // floats of an input: 4 KiB

struct Row {
  Device device;
  int inputs = 0;
  std::int64_t elements = kSmall;
  InputOptions options = {};
  std::vector<Buckets> buckets = {};
  std::int64_t columns_of =
      0;                  // if set, the row length; the input is the first 256 floats of each row
  std::int64_t rows = 0;  // actual size of a padded input

  Shape shape() const {
    if (rows > 0) return Shape{rows, elements};
    return Shape{elements};
  }
  std::vector<Tensor> make() const {
    std::vector<Tensor> made;
    for (int i = 0; i < inputs; ++i) {
      if (columns_of > 0) {
        const std::int64_t rows_of = elements / 256;
        made.push_back(zeros(Shape{rows_of, columns_of}).slice(1, 0, 256));
      } else {
        made.push_back(zeros(shape()));
      }
    }
    return made;
  }
  CompiledFunction<Tensor(std::span<const Tensor>)> compile_in(Context& context) const {
    CompileOptions compiled;
    compiled.inputs.assign(static_cast<std::size_t>(inputs), options);
    compiled.buckets = buckets;
    return compile(
        context, "step", [](std::span<const Tensor> x) { return trivial_step(x); }, compiled);
  }

 private:
  Tensor zeros(const Shape& shape) const {
    const std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    return from_host(shape, std::span<const float>(values), device);
  }
};

// Alternates between two sets of inputs, so that each call is patched.
void run(benchmark::State& state, const Row& row, int calls, bool on_host, std::int64_t samples) {
  Context context(row.device);
  const auto step = row.compile_in(context);
  const std::vector<Tensor> sets[] = {row.make(), row.make()};
  for (int call = 0; call < 2; ++call)  // a warm-up and a recording
    (void)step(sets[0]);
  const ContextStats before = context.stats();
  unsigned set = 0;
  const auto call = [&] {
    (void)step(sets[set]);
    set ^= 1;
  };
  if (on_host) {
    HostTime(state, context.stream(), {.samples = samples}).measure(call);
  } else {
    DeviceTime(state, context.stream(), calls).measure(call);
  }
  const ContextStats after = context.stats();
  if (after.replays - before.replays != after.calls - before.calls) {
    state.SkipWithError("not only replays");
  }
}

void add(const Options& options, const std::string& name, const Row& row, int calls = 512) {
  const auto samples = std::min<std::int64_t>(options.samples, 50);
  benchmark::RegisterBenchmark(
      ("BM_Device/" + name).c_str(),
      [=](benchmark::State& state) { run(state, row, calls, /*on_host=*/false, 0); })
      ->Iterations(samples)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
  const Batches batches{.samples = options.samples};
  batches.apply_to(benchmark::RegisterBenchmark(("BM_Host/" + name).c_str(),
                                                [=, n = options.samples](benchmark::State& state) {
                                                  run(state, row, 0, /*on_host=*/true, n);
                                                }));
}

void add_rows(const Options& options) {
  const Device device = options.device;
  const bool is_gpu = device.type == DeviceType::kCuda;
  for (const int inputs : {0, 1, 4, 16, 64, 256})
    add(options, fmt::format("copied:{}", inputs), {.device = device, .inputs = inputs});
  add(options, "copied_back:16", {.device = device, .inputs = 16, .options = {.is_mutated = true}});
  add(options, "strided:16", {.device = device, .inputs = 16, .columns_of = 512});
  add(options, "padded:16",
      {.device = device,
       .inputs = 16,
       .elements = kSmall / 8,
       .options = {.dynamic = {{0, "batch"}}},
       .buckets = {{"batch", {8}}},
       .rows = 5});
  for (const int mib : {1, 16, 256}) {
    if (mib > 1 && !is_gpu) continue;  // it would take minutes there
    add(options, fmt::format("copied_mib:{}", mib),
        {.device = device, .inputs = 1, .elements = std::int64_t{mib} << 18}, mib > 1 ? 32 : 256);
  }
}

// The ways in which one input reaches a graph whose kernels all read it. A static input is the
// floor.
enum class Way { kStays, kCopied, kRebound, kChosen };
constexpr const char* kWays[] = {"stays", "copied", "rebound", "chosen"};

// Time of a call end to end, from the call until its work is done (BM_Alone), and of one of many in
// a row (BM_Row). The counter `rebound` has the choice.
void run_rebind(benchmark::State& state, Device device, std::int64_t bytes, int consumers, Way way,
                bool is_alone) {
  Context context(device);
  constexpr Rebind kRebinds[] = {Rebind::kNever, Rebind::kNever, Rebind::kAlways, Rebind::kAuto};
  const InputOptions input{.is_static = way == Way::kStays,
                           .rebind = kRebinds[static_cast<int>(way)]};
  const auto step = compile(context, "step",
                            [=](std::span<const Tensor> x) { return many_readers(x, consumers); },
                            {.inputs = {input}});
  const Row row{.device = device, .inputs = 1, .elements = bytes / 4};
  const std::vector<Tensor> sets[] = {row.make(), row.make()};
  unsigned set = 0;
  const auto call = [&] {
    (void)step(sets[set]);
    if (way != Way::kStays) set ^= 1;
  };
  for (int i = 0; i < 3; ++i)
    call();
  const std::vector<std::string> notes = step.explain(sets[set]).notes;
  const ContextStats before = context.stats();
  const auto timed = [&] {
    call();
    if (is_alone) context.synchronize();
  };
  DeviceTime(state, context.stream(), bytes > (16 << 20) ? 32 : 256).measure(timed);
  state.counters["rebound"] = std::ranges::any_of(
      notes, [](const std::string& note) { return note.find(" is rebound in ") != note.npos; });
  const ContextStats after = context.stats();
  if (after.replays - before.replays != after.calls - before.calls) {
    state.SkipWithError("not only replays");
  }
}

void add_rebind_rows(const Options& options) {
  const bool is_gpu = options.device.type == DeviceType::kCuda;
  for (const std::int64_t kib : {4, 64, 1024, 4096, 16384, 65536, 262144}) {
    if (kib > 1024 && !is_gpu) continue;  // it would take minutes there
    for (const int consumers : {1, 4, 16}) {
      for (const Way way : {Way::kStays, Way::kCopied, Way::kRebound, Way::kChosen}) {
        for (const bool is_alone : {true, false}) {
          benchmark::RegisterBenchmark(
              fmt::format("BM_{}/{}/kib:{}/consumers:{}", is_alone ? "Alone" : "Row",
                          kWays[static_cast<int>(way)], kib, consumers)
                  .c_str(),
              [=, device = options.device](benchmark::State& state) {
                run_rebind(state, device, kib * 1024, consumers, way, is_alone);
              })
              ->Iterations(std::min<std::int64_t>(options.samples, 20))
              ->UseManualTime()
              ->Unit(benchmark::kMicrosecond);
        }
      }
    }
  }
}

#ifdef CGTREE_WITH_CUDA

// Copies the inputs by hand, then launches a graph.
template <typename Copy>
void run_by_hand(benchmark::State& state, const Batches& batches, const Row& row, Copy copy) {
  Context context(row.device);
  const auto step = Row{.device = row.device}.compile_in(context);
  const std::vector<Tensor> inputs = row.make(), places = row.make();
  std::vector<const void*> sources;
  std::vector<void*> destinations;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    sources.push_back(inputs[i].data());
    destinations.push_back(places[i].data());
  }
  for (int call = 0; call < 2; ++call)
    (void)step(std::span<const Tensor>());
  auto enqueue = copy(sources, destinations, inputs.empty() ? 0 : inputs[0].bytes());
  HostTime(state, context.stream(), batches).measure([&] {
    enqueue(context.stream());
    (void)step(std::span<const Tensor>());
  });
}

void add_baselines(const Options& options) {
  const Batches batches{.samples = options.samples};
  const Row row{.device = options.device, .inputs = 16};
  batches.apply_to(
      benchmark::RegisterBenchmark("BM_ByHand/kernel/copied:16", [=](benchmark::State& state) {
        run_by_hand(state, batches, row, [](auto sources, auto destinations, std::size_t bytes) {
          return [=](StreamRef stream) { copy_by_kernel(stream, sources, destinations, bytes); };
        });
      }));
  batches.apply_to(
      benchmark::RegisterBenchmark("BM_ByHand/cub/copied:16", [=](benchmark::State& state) {
        run_by_hand(state, batches, row, [](auto sources, auto destinations, std::size_t bytes) {
          auto cub = std::make_shared<CubBatchedCopy>(sources, destinations, bytes);
          return [cub](StreamRef stream) { cub->enqueue(stream); };
        });
      }));
  for (const int mib : {1, 16, 256}) {
    benchmark::RegisterBenchmark(fmt::format("BM_Device/memcpy_mib:{}", mib).c_str(),
                                 [=](benchmark::State& state) {
                                   // Two addresses in turn, as of a moving input.
                                   const Row large{.device = options.device,
                                                   .inputs = 3,
                                                   .elements = std::int64_t{mib} << 18};
                                   const std::vector<Tensor> places = large.make();
                                   const Stream stream(options.device);
                                   std::size_t call = 0;
                                   DeviceTime(state, stream, mib > 1 ? 32 : 256).measure([&] {
                                     copy(places[0], places[1 + call++ % 2], stream);
                                   });
                                 })
        ->Iterations(std::min<std::int64_t>(options.samples, 50))
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

#endif

void add_all(const Options& options) {
  add_rows(options);
  add_rebind_rows(options);
#ifdef CGTREE_WITH_CUDA
  if (options.device.type == DeviceType::kCuda) add_baselines(options);
#endif
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv,
      {"What do copied, strided, padded and copied-back inputs cost, against a graph without them?",
       &cgtree::benchmarks::add_all});
}
