// Host cost of a whole cgtree call, compared with a bare graph launch.
//
// Every number is host time per call as the caller sees it: the checks of inputs, the decision, the
// launch, the handle of the output and its release. On the cuda device it does not include the
// GPU's time. The host device has no GPU, so its time includes the work itself. `above_us` is the
// excess of a call over the bare launch of a graph of as many kernels, measured alternately.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/support/kernels.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/times.h"
#include "cgtree/cgtree.h"
#include "cgtree/record/gather.h"
#include "extensions/guards/guard.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/exchange/cuda_array_interface.h"
#include "interop/random/random.h"
#include "interop/tensor/empty.h"
#ifdef CGTREE_WITH_CUDA
#include "benchmarks/support/cuda.h"
#endif

namespace cgtree::benchmarks {
namespace {

constexpr std::int64_t kInputElements = 1024;  // of float: 4 KiB
constexpr std::size_t kInputBytes = kInputElements * sizeof(float);

template <typename Row>
void add_row(const std::string& name, const Batches& batches, Row row) {
  batches.apply_to(benchmark::RegisterBenchmark(
      name.c_str(), [batches, row](benchmark::State& state) { row(state, batches); }));
}

// `work` is the number of kernels or copies of a call. The batches keep fewer than 1024 of them in
// the queue, and take the device a few seconds for all samples.
Batches batches_for(const Options& options, std::int64_t work) {
  constexpr std::int64_t kMaxWork = 100'000;
  return {.until_drained = work <= 8 ? 4 : 1,
          .samples = std::min(options.samples, std::max<std::int64_t>(kMaxWork / work, 50))};
}

// Each input has its own shape and storage, as inputs of different origin have.
std::vector<Tensor> make_inputs(Device device, int count) {
  const std::vector<float> zeros(kInputElements);
  std::vector<Tensor> inputs;
  for (int i = 0; i < count; ++i)
    inputs.push_back(from_host(Shape{kInputElements}, std::span<const float>(zeros), device));
  return inputs;
}

// A Chain is a captured chain of trivial kernels, ready to launch.
class KernelChain {
 public:
  KernelChain(Device device, int nodes)
      : stream_(device),
        x_(make_inputs(device, 1)[0]),
        graph_(capture(nodes)),
        exec_(stream_.ref().graphs(), graph_) {}

  StreamRef stream() const { return stream_; }
  const GraphExec& exec() const { return exec_; }
  void launch() const { launch_on(stream()); }
  void launch_on(StreamRef stream) const {
    check(exec_.api().launch(exec_.handle(), stream.handle()), "launch");
  }

 private:
  Graph capture(int nodes) const {
    Capture capture(stream(), CaptureMode::kThreadLocal);
    for (int i = 0; i < nodes; ++i)
      launch_trivial_kernel(stream(), x_.data<float>());
    Graph graph;
    check(capture.end(&graph), "capture a chain of kernels");
    return graph;
  }

  Stream stream_;
  Tensor x_;
  Graph graph_;
  GraphExec exec_;
};

void add_bare_launches(const Options& options) {
  for (const int nodes : {1, 128, 512, 2048}) {
    const Device device = options.device;
    const Batches batches = batches_for(options, nodes);
    add_row(fmt::format("BM_BareLaunch/nodes:{}", nodes), batches,
            [=](benchmark::State& state, const Batches& b) {
              const KernelChain chain(device, nodes);
              HostTime(state, chain.stream(), b).measure([&] { chain.launch(); });
            });
#ifdef CGTREE_WITH_CUDA
    if (device.type != DeviceType::kCuda) continue;
    add_row(fmt::format("BM_BareCudaGraphLaunch/nodes:{}", nodes), batches,
            [=](benchmark::State& state, const Batches& b) {
              const KernelChain chain(device, nodes);
              HostTime(state, chain.stream(), b).measure([&] {
                check(cuda_launch(chain.exec(), chain.stream()), "launch");
              });
            });
#endif
  }
}

// A row that claims to time replays must time nothing else.
void expect_only_replays(benchmark::State& state, const Context& context,
                         const ContextStats& before) {
  const ContextStats after = context.stats();
  if (after.replays - before.replays != after.calls - before.calls) {
    state.SkipWithError(fmt::format("not only replays: {}", to_string(after)).c_str());
  }
}

// Times calls that must all be replays, beside bare launches of graphs with `nodes` kernels: of one
// graph, or of `graphs` in turn for each call.
template <typename Call>
void measure_replays(benchmark::State& state, const Batches& batches, const Context& context,
                     StreamRef stream, int nodes, Call call, int graphs = 1) {
  std::vector<std::unique_ptr<KernelChain>> bare;
  for (int i = 0; i < graphs; ++i)
    bare.push_back(std::make_unique<KernelChain>(context.device(), nodes));
  const ContextStats before = context.stats();
  HostTime(state, stream, batches).measure_above(call, [&] {
    for (const auto& graph : bare)
      graph->launch_on(stream);
  });
  expect_only_replays(state, context, before);
}

struct CallRow {
  Device device;
  int inputs = 0;
  bool is_static = false;
  bool moved = false;  // the inputs alternate between two sets of addresses
  bool enabled = true;

  void operator()(benchmark::State& state, const Batches& batches) const {
    Context context(device);
    const CompiledFunction step =
        compile(context, "step", [](std::span<const Tensor> x) { return trivial_step(x); },
                {.inputs = std::vector<InputOptions>(static_cast<std::size_t>(inputs),
                                                     InputOptions{.is_static = is_static}),
                 .enabled = enabled});
    const std::vector<Tensor> sets[] = {make_inputs(device, inputs), make_inputs(device, inputs)};
    for (int call = 0; call < 2; ++call)  // a warm-up and a recording
      (void)step(sets[0]);
    unsigned set = 0;
    const auto call = [&] {
      (void)step(sets[set]);
      set ^= static_cast<unsigned>(moved);
    };
    if (!enabled) return HostTime(state, context.stream(), batches).measure(call);
    const bool has_root = inputs > 0 && !is_static;
    measure_replays(state, batches, context, context.stream(), has_root ? 2 : 1, call);
  }
};

void add_calls(const Options& options) {
  const Batches batches = batches_for(options, 1);
  for (const int copied : {0, 1, 4, 16, 64, 256}) {
    for (const bool moved : {false, true}) {
      if (copied == 0 && moved) continue;  // nothing to move
      add_row(fmt::format("BM_Call/copied:{}/moved:{:d}", copied, moved), batches,
              CallRow{.device = options.device, .inputs = copied, .moved = moved});
    }
  }
  for (const int inputs : {16, 300}) {
    add_row(fmt::format("BM_Call/static:{}", inputs), batches,
            CallRow{.device = options.device, .inputs = inputs, .is_static = true});
  }
  for (const int inputs : {1, 16}) {
    add_row(fmt::format("BM_EagerCall/inputs:{}", inputs), batches,
            CallRow{.device = options.device, .inputs = inputs, .enabled = false});
  }
}

std::vector<InputOptions> options_of(int count, const InputOptions& each) {
  return std::vector<InputOptions>(static_cast<std::size_t>(count), each);
}

// As BM_Call/copied:0, called from a stream of the caller.
void run_on_callers_stream(benchmark::State& state, const Batches& batches, Device device) {
  Context context(device);
  const CompiledFunction step =
      compile(context, "step", [](std::span<const Tensor> x) { return trivial_step(x); });
  const Stream stream(device);
  const StreamScope scope(stream.ref());
  const std::vector<Tensor> none;
  for (int call = 0; call < 2; ++call)  // a warm-up and a recording
    (void)step(none);
  measure_replays(state, batches, context, stream, 1, [&] { (void)step(none); });
}

// Inputs that the function writes in place, beside copied inputs: no two of them may share memory,
// which each replay checks again.
void run_with_mutated_statics(benchmark::State& state, const Batches& batches, Device device,
                              int mutated, int copied) {
  Context context(device);
  std::vector<InputOptions> inputs = options_of(mutated, {.is_static = true, .is_mutated = true});
  inputs.resize(inputs.size() + static_cast<std::size_t>(copied));
  const CompiledFunction step =
      compile(context, "step", [](std::span<const Tensor> x) { return trivial_step(x); },
              {.inputs = std::move(inputs)});
  const std::vector<Tensor> given = make_inputs(device, mutated + copied);
  for (int call = 0; call < 2; ++call)
    (void)step(given);
  measure_replays(state, batches, context, context.stream(), copied > 0 ? 2 : 1,
                  [&] { (void)step(given); });
}

// Two recordings of one function are replayed in the order A A B B, so that the last follower is
// never the next one.
void run_mispredicted(benchmark::State& state, const Batches& batches, Device device, int inputs) {
  Context context(device);
  std::vector<InputOptions> options = options_of(inputs, {.is_static = true});
  options[0].is_mutated = true;
  const CompiledFunction step =
      compile(context, "step", [](std::span<const Tensor> x) { return trivial_step(x); },
              {.inputs = std::move(options)});
  const std::vector<Tensor> sets[] = {make_inputs(device, inputs), make_inputs(device, inputs)};
  for (const int set : {0, 0, 1})  // a warm-up and two recordings
    (void)step(sets[set]);
  unsigned call = 0;
  measure_replays(state, batches, context, context.stream(), 1,
                  [&] { (void)step(sets[call++ >> 1 & 1]); });
}

// A recording with guards, each of which reads a variable.
void run_with_guards(benchmark::State& state, const Batches& batches, Device device, int guards) {
  Context context(device);
  const auto values = std::make_shared<std::vector<int>>(guards, 1);
  const CompiledFunction step = compile(context, "step", [values](std::span<const Tensor> x) {
    for (std::size_t i = 0; i < values->size(); ++i)
      (void)decide("value", [values, i] { return (*values)[i]; });
    return trivial_step(x);
  });
  const std::vector<Tensor> none;
  for (int call = 0; call < 2; ++call)
    (void)step(none);
  measure_replays(state, batches, context, context.stream(), 1, [&] { (void)step(none); });
}

// Static inputs lent by another library, with its stream.
void run_with_imported(benchmark::State& state, const Batches& batches, Device device, int inputs) {
  Context context(device);
  const CompiledFunction step =
      compile(context, "step", [](std::span<const Tensor> x) { return trivial_step(x); },
              {.inputs = options_of(inputs, {.is_static = true})});
  const Stream producer(device);
  const std::vector<Tensor> owned = make_inputs(device, inputs);
  std::vector<Tensor> imported;
  for (const Tensor& tensor : owned) {
    CudaArrayInterface array = to_cuda_array_interface(tensor, {.is_idle = true});
    array.stream = static_cast<std::uintptr_t>(producer.ref().handle());
    imported.push_back(from_cuda_array_interface(array, std::make_shared<Tensor>(tensor), {}));
  }
  for (int call = 0; call < 2; ++call)
    (void)step(imported);
  measure_replays(state, batches, context, context.stream(), 1, [&] { (void)step(imported); });
}

// Inputs that the function writes in place, and that are copied back.
void run_copied_back(benchmark::State& state, const Batches& batches, Device device, int inputs) {
  Context context(device);
  const CompiledFunction step =
      compile(context, "step", [](std::span<const Tensor> x) { return trivial_step(x); },
              {.inputs = options_of(inputs, {.is_mutated = true})});
  const std::vector<Tensor> given = make_inputs(device, inputs);
  for (int call = 0; call < 2; ++call)
    (void)step(given);
  measure_replays(state, batches, context, context.stream(), 3, [&] { (void)step(given); });
}

// A function with many outputs, each of one kernel, that are dropped at once.
void run_with_outputs(benchmark::State& state, const Batches& batches, Device device, int outputs) {
  Context context(device);
  const CompiledFunction step =
      compile(context, "step", [=](std::span<const Tensor> x) { return many_readers(x, outputs); },
              {.inputs = {{.is_static = true}}});
  const std::vector<Tensor> given = make_inputs(device, 1);
  for (int call = 0; call < 2; ++call)
    (void)step(given);
  measure_replays(state, batches, context, context.stream(), outputs, [&] { (void)step(given); });
}

// The caller keeps the results of the last `kKept` calls, so that replays copy them.
void run_with_kept(benchmark::State& state, const Batches& batches, Device device, int outputs) {
  constexpr std::size_t kKept = 128;
  Context context(device);
  const CompiledFunction step =
      compile(context, "step", [=](std::span<const Tensor> x) { return many_readers(x, outputs); },
              {.inputs = {{.is_static = true}}});
  const std::vector<Tensor> given = make_inputs(device, 1);
  std::vector<std::vector<Tensor>> kept(kKept);
  std::size_t call = 0;
  const auto keep = [&] { kept[call++ % kKept] = step(given); };
  while (call < 4 * kKept)
    keep();
  measure_replays(state, batches, context, context.stream(), outputs + 1, keep);
}

// A lower bound for checking many inputs at once: a comparison of their tensors.
void run_bare_compare(benchmark::State& state, const Batches& batches, Device device, int inputs) {
  const Stream stream(device);
  const std::vector<Tensor> given = make_inputs(device, inputs), same = given;
  HostTime(state, stream, batches).measure([&] {
    const bool is_same =
        std::memcmp(static_cast<const void*>(given.data()), static_cast<const void*>(same.data()),
                    given.size() * sizeof(Tensor)) == 0;
    benchmark::DoNotOptimize(is_same);
  });
}

// A lower bound for outputs: each has a reference count, which its release changes.
void run_bare_releases(benchmark::State& state, const Batches& batches, Device device,
                       int outputs) {
  struct alignas(64) Count {
    std::atomic<std::uint64_t> references{1};
  };
  const Stream stream(device);
  std::vector<Count> counts(static_cast<std::size_t>(outputs));
  HostTime(state, stream, batches).measure([&] {
    for (Count& count : counts) {
      count.references.store(1, std::memory_order_relaxed);
      benchmark::DoNotOptimize(count.references.fetch_sub(1, std::memory_order_acq_rel));
    }
  });
}

// A lower bound for imported inputs: a launch ordered after the stream of a library, and the
// library's after it.
void run_bare_order(benchmark::State& state, const Batches& batches, Device device) {
  const KernelChain graph(device, 1);
  const Stream producer(device);
  Event event;
  const auto order = [&](StreamRef from, StreamRef to) {
    event.record(from);
    event.make_wait(to);
  };
  HostTime(state, graph.stream(), batches)
      .measure_above(
          [&] {
            order(producer, graph.stream());
            graph.launch();
            order(graph.stream(), producer);
          },
          [&] { graph.launch(); });
}

// A lower bound for moved inputs: a patch of `count` words of a root node, and the launch of the
// graph.
void run_bare_patch(benchmark::State& state, const Batches& batches, Device device,
                    std::size_t count) {
  const Stream stream(device);
  const Tensor places = make_inputs(device, 1)[0];
  GatherTable table;
  (void)table.add_values(places.address(), count * sizeof(std::uint64_t));
  const std::vector<std::byte> bytes = table.bytes();
  const Tensor uploaded =
      empty(Shape{static_cast<std::int64_t>(bytes.size())}, DType::kUInt8, device);
  check(stream.ref().api().copy(stream.ref().handle(), uploaded.data(), bytes.data(), bytes.size()),
        "upload a table");
  stream.ref().synchronize();
  const GatherKernel kernel = gather_kernel(count);
  std::vector<std::uint64_t> words(kernel.capacity, 0);
  const void* const address = uploaded.data();
  const std::uint32_t chunks = table.chunks();
  const KernelArgument arguments[] = {{words.data(), words.size() * sizeof(std::uint64_t)},
                                      {&address, sizeof(address)},
                                      {&chunks, sizeof(chunks)}};
  const LaunchDims dims{.grid = {chunks}, .block = {kGatherThreads}};
  Capture capture(stream, CaptureMode::kThreadLocal);
  launch_trivial_kernel(stream, places.data<float>() + kInputElements / 2);
  Graph graph;
  check(capture.end(&graph), "capture a kernel");
  const NodeHandle node = graph.add_root(kernel.function, dims, arguments);
  const GraphExec exec(stream.ref().graphs(), graph);
  const auto launch = [&] {
    check(exec.api().launch(exec.handle(), stream.ref().handle()), "launch");
  };
  HostTime(state, stream, batches)
      .measure_above(
          [&] {
            for (std::size_t i = 0; i < count; ++i)
              ++words[i];
            check(exec.api().set_kernel_node(exec.handle(), node, kernel.function, dims, arguments),
                  "patch");
            launch();
          },
          launch);
}

void add_other_calls(const Options& options) {
  const Device device = options.device;
  const Batches batches = batches_for(options, 1);
  add_row("BM_Call/callers_stream", batches, [=](benchmark::State& state, const Batches& b) {
    run_on_callers_stream(state, b, device);
  });
  add_row("BM_Call/mutated_static:64/copied:16", batches,
          [=](benchmark::State& state, const Batches& b) {
            run_with_mutated_statics(state, b, device, 64, 16);
          });
  add_row(
      "BM_Call/mispredicted/static:300", batches,
      [=](benchmark::State& state, const Batches& b) { run_mispredicted(state, b, device, 300); });
  add_row("BM_Call/copied_back:16", batches, [=](benchmark::State& state, const Batches& b) {
    run_copied_back(state, b, device, 16);
  });
  add_row(
      "BM_Call/outputs:64", batches_for(options, 64),
      [=](benchmark::State& state, const Batches& b) { run_with_outputs(state, b, device, 64); });
  for (const int outputs : {1, 16}) {
    add_row(fmt::format("BM_Call/kept:{}", outputs), batches_for(options, outputs),
            [=](benchmark::State& state, const Batches& b) {
              run_with_kept(state, b, device, outputs);
            });
  }
  add_row("BM_BareCompare/inputs:300", batches, [=](benchmark::State& state, const Batches& b) {
    run_bare_compare(state, b, device, 300);
  });
  add_row("BM_BareReleases/outputs:64", batches, [=](benchmark::State& state, const Batches& b) {
    run_bare_releases(state, b, device, 64);
  });
  for (const int guards : {0, 1, 4}) {
    add_row(fmt::format("BM_Call/guards:{}", guards), batches,
            [=](benchmark::State& state, const Batches& b) {
              run_with_guards(state, b, device, guards);
            });
  }
  add_row("BM_BareLaunch/ordered", batches,
          [=](benchmark::State& state, const Batches& b) { run_bare_order(state, b, device); });
  for (const std::size_t words : {1, 4, 16, 64, 256}) {
    add_row(fmt::format("BM_BareLaunch/patched:{}", words), batches,
            [=](benchmark::State& state, const Batches& b) {
              run_bare_patch(state, b, device, words);
            });
  }
  for (const int inputs : {1, 16, 300}) {
    add_row(fmt::format("BM_Call/imported:{}", inputs), batches,
            [=](benchmark::State& state, const Batches& b) {
              run_with_imported(state, b, device, inputs);
            });
  }
}

// One kernel and one output, as in BM_Call/copied:0. The kernel draws random numbers, so that every
// replay is patched.
void run_draw(benchmark::State& state, const Batches& batches, Device device) {
  Context context(device);
  const Generator generator(1);
  const auto step = compile(context, "step", [=] { return uniform({1}, generator); });
  for (int call = 0; call < 2; ++call)  // a warm-up and a recording
    (void)step();
  measure_replays(state, batches, context, context.stream(), 2, [&] { (void)step(); });
}

void add_draw(const Options& options) {
  add_row("BM_Call/generators:1", batches_for(options, 1),
          [device = options.device](benchmark::State& state, const Batches& b) {
            run_draw(state, b, device);
          });
}

// A chain of functions, each of which takes the output of the one before. A call of this row is one
// step of the caller's loop.
void run_chain(benchmark::State& state, const Batches& batches, Device device, int functions) {
  Context context(device);
  std::vector<CompiledFunction<Tensor(Tensor)>> chain;
  for (int i = 0; i < functions; ++i) {
    chain.push_back(compile(context, fmt::format("step{}", i),
                            [](Tensor x) {
                              return trivial_step({&x, 1});
                            },
                            {.inputs = {{.is_static = i == 0}}}));
  }
  const Tensor first = make_inputs(device, 1)[0];
  const auto step = [&] {
    context.mark_step();
    Tensor x = first;
    for (const auto& function : chain)
      x = function(x);
  };
  for (int i = 0; i < 4; ++i)  // warm-ups, recordings, and the first replays
    step();
  measure_replays(state, batches, context, context.stream(), 1, step, functions);
}

void add_chain(const Options& options) {
  constexpr int kFunctions = 16;
  Batches batches = batches_for(options, 1);
  batches.calls = 1;  // a step is 16 calls
  add_row(fmt::format("BM_Chain/functions:{}", kFunctions), batches,
          [device = options.device](benchmark::State& state, const Batches& b) {
            run_chain(state, b, device, kFunctions);
          });
}

// The same without cgtree: copies each input to the graph's address, and launches.
void run_by_hand(benchmark::State& state, const Batches& batches, Device device, int copied) {
  const KernelChain graph(device, 1);
  const std::vector<Tensor> inputs = make_inputs(device, copied);
  const std::vector<Tensor> places = make_inputs(device, copied);
  DeviceAPI& api = graph.stream().api();
  HostTime(state, graph.stream(), batches).measure([&] {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check(api.copy(graph.stream().handle(), places[i].data(), inputs[i].data(), kInputBytes),
            "copy an input");
    }
    graph.launch();
  });
}

void add_by_hand(const Options& options) {
  for (const int copied : {1, 16}) {
    add_row(fmt::format("BM_ByHand/copied:{}", copied), batches_for(options, copied + 1),
            [device = options.device, copied](benchmark::State& state, const Batches& b) {
              run_by_hand(state, b, device, copied);
            });
  }
}

void add_rows(const Options& options) {
  add_bare_launches(options);
  add_calls(options);
  add_other_calls(options);
  add_draw(options);
  add_chain(options);
  add_by_hand(options);
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv,
      {"What does a whole cgtree call cost the host, against a bare graph launch?",
       &cgtree::benchmarks::add_rows});
}
