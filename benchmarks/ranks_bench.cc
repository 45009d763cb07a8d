// Cost of a step with many small all-reduces: enqueued eagerly, as a graph in which NCCL orders
// mixed uses, and as a graph in which it need not; and replayed by a context, alone and in a group.
//
// Two devices of one process, and four if there are as many, with a thread for each; the times are
// rank 0's. A step is 32 times four small kernels and an all-reduce of 8 KiB. Before 2.29.2, NCCL
// reads from the environment whether graphs are mixed, once: run the program a second time with
// NCCL_GRAPH_MIXING_SUPPORT=1, and take the rows with mixing from there.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/support/kernels.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/times.h"
#include "cgtree/cgtree.h"
#include "extensions/ranks/collectives.h"
#include "extensions/ranks/communicator.h"
#include "extensions/ranks/group.h"
#include "extensions/ranks/nccl_collectives.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"

namespace cgtree::benchmarks {
namespace {

constexpr int kReduces = 32;
constexpr int kKernels = 4;             // before each all-reduce
constexpr std::int64_t kFloats = 2048;  // of an all-reduce
// The same in all rows: NCCL has kernels for sums, in which other reductions take 2 us longer.
constexpr Reduction kReduction = Reduction::kSum;
constexpr Batches kBatches = {.calls = 1, .until_drained = 4};  // the queue has room for 1024

// The objects of a rank's thread.
struct Rank {
  Rank(std::unique_ptr<Collectives> own, std::unique_ptr<Group> own_group)
      : collectives(std::move(own)),
        group(std::move(own_group)),
        stream(collectives->device()),
        data(empty({kFloats}, DType::kFloat32, collectives->device())) {
    const std::vector<float> zeros(kFloats);
    data.copy_from_host(zeros.data(), data.bytes(), stream);
  }

  // Calls reduce() 32 times.
  template <typename Reduce>
  void enqueue(StreamRef on, const Reduce& reduce) const {
    for (int i = 0; i < kReduces; ++i) {
      for (int kernel = 0; kernel < kKernels; ++kernel)
        launch_trivial_kernel(on, data.data<float>());
      reduce();
    }
  }
  void enqueue() const {
    enqueue(stream, [&] { collectives->all_reduce(stream, data, data, kReduction); });
  }

  std::shared_ptr<Collectives> collectives;
  std::shared_ptr<Group> group;
  Stream stream;
  Tensor data;
};

std::vector<std::unique_ptr<Collectives>> make_collectives(Device device, int ranks, bool mixing) {
  if (device.type != DeviceType::kCuda) return make_host_collectives(ranks);
  std::vector<Device> devices;
  for (int id = 0; id < ranks; ++id)
    devices.push_back(Device::cuda(id));
  return make_nccl_collectives(devices, {.graph_mixing = mixing});
}

// A step of one rank, made on its thread.
using StepOf = std::function<void()>;
using MakeStep = StepOf (*)(const Rank& rank);

StepOf eager(const Rank& rank) {
  return [&rank] { rank.enqueue(); };
}

StepOf graph(const Rank& rank) {
  rank.enqueue();
  rank.collectives->synchronize(rank.stream);
  struct Captured {
    Graph graph;
    GraphExec exec;
  };
  const auto made = std::make_shared<Captured>();
  Capture capture(rank.stream, CaptureMode::kThreadLocal);
  rank.enqueue();
  check(capture.end(&made->graph), "capture a step");
  made->exec = GraphExec(rank.stream.ref().graphs(), made->graph);
  return [made, stream = rank.stream.ref()] {
    check(made->exec.api().launch(made->exec.handle(), stream.handle()), "launch");
  };
}

StepOf replay(const Rank& rank, std::shared_ptr<Group> group) {
  struct Made {
    Made(const Rank& rank, std::shared_ptr<Group> group)
        : context(rank.collectives->device(), {.group = std::move(group)}),
          communicator(context, rank.collectives),
          steps(context, "step") {}
    Context context;
    Communicator communicator;
    Steps steps;
  };
  const auto made = std::make_shared<Made>(rank, std::move(group));
  const StepOf step = [made, &rank] {
    for (Step one = made->steps.begin({}, {}, rank.stream); one.must_run(); one.end())
      rank.enqueue(rank.stream, [&] { made->communicator.all_reduce(rank.data, kReduction); });
  };
  for (int i = 0; i < 4; ++i)
    step();
  return step;
}

StepOf context(const Rank& rank) {
  return replay(rank, nullptr);
}

StepOf context_in_group(const Rank& rank) {
  return replay(rank, rank.group);
}

// Runs the other ranks beside measure(), for as many steps as that makes.
void run(Device device, int ranks, bool mixing, MakeStep make_step,
         const std::function<void(StreamRef, const StepOf&)>& measure) {
  std::vector<std::unique_ptr<Collectives>> ends = make_collectives(device, ranks, mixing);
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(ranks);
  std::vector<std::unique_ptr<const Rank>> all;
  for (int i = 0; i < ranks; ++i) {
    all.push_back(std::make_unique<const Rank>(std::move(ends[static_cast<std::size_t>(i)]),
                                               std::move(groups[static_cast<std::size_t>(i)])));
  }
  std::atomic<std::int64_t> steps{0};
  std::atomic<bool> ends_now{false};
  const auto follow = [&](const Rank& rank) {
    const StepOf step = make_step(rank);
    for (std::int64_t done = 0;;) {
      if (done < steps.load(std::memory_order_acquire)) {
        step();
        ++done;
      } else if (ends_now) {
        return rank.stream.synchronize();
      } else {
        std::this_thread::yield();
      }
    }
  };
  std::vector<std::jthread> followers;
  for (int i = 1; i < ranks; ++i)
    followers.emplace_back(follow, std::cref(*all[static_cast<std::size_t>(i)]));
  const StepOf step = make_step(*all[0]);
  measure(all[0]->stream, [&] {
    steps.fetch_add(1, std::memory_order_release);
    step();
  });
  ends_now = true;
}

void add_rows(const Options& options) {
  Batches batches = kBatches;
  batches.samples = options.samples / 16;
  const auto add = [&](const char* name, int ranks, bool mixing, MakeStep make_step) {
    const std::string row = fmt::format("{}/ranks:{}/mixing:{:d}", name, ranks, mixing);
    batches.apply_to(
        benchmark::RegisterBenchmark(("BM_HostTime/" + row).c_str(), [=](benchmark::State& state) {
          run(options.device, ranks, mixing, make_step, [&](StreamRef stream, const StepOf& step) {
            HostTime(state, stream, batches).measure(step);
          });
        }));
    batches.apply_to(
        benchmark::RegisterBenchmark(("BM_StepTime/" + row).c_str(), [=](benchmark::State& state) {
          run(options.device, ranks, mixing, make_step, [&](StreamRef stream, const StepOf& step) {
            DeviceTime(state, stream, /*calls=*/4).measure(step);
          });
        }));
  };
  for (const int ranks : {2, 4}) {
    if (!device_api(options.device).has_device(ranks - 1)) break;
    for (const bool mixing : {false, true}) {
      add("eager", ranks, mixing, eager);
      add("graph", ranks, mixing, graph);
    }
    add("context", ranks, false, context);
    add("context_in_group", ranks, false, context_in_group);
  }
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv,
      {"What does a step with many small all-reduces cost, eagerly and as a graph?",
       &cgtree::benchmarks::add_rows});
}
