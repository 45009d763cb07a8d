// Host cost of an allocation, in the pool and in its peers, and of a checkpoint.
//
// The pool's segments have made-up addresses, so its numbers include no driver call; those of peers
// are of a warmed-up state, in which they call the driver only by design. Statistics are on, as
// they always are.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "allocator/pool/pool.h"
#include "allocator/segments/segment_cache.h"
#include "base/mutex.h"
#include "benchmarks/support/allocator_rows.h"
#include "benchmarks/support/bins_memory.h"
#include "benchmarks/support/program.h"
#include "caching/caching_allocator.h"
#include "interop/device/graph.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream.h"
#include "tests/support/made_up_segment_source.h"
#include "tests/support/rmm_log.h"
#ifdef CGTREE_WITH_CUDA
#include "benchmarks/baselines/cuda_allocators.h"
#endif

namespace cgtree::benchmarks {
namespace {

constexpr std::int64_t kWarmUp = 32;  // rounds

class PoolMemory {
 public:
  void* allocate(std::size_t bytes) { return pool_.allocate(bytes); }
  void free(void* data) { pool_.free(data); }

 private:
  MadeUpSegmentSource source_;
  Pool pool_{source_};
};

// The memory of threads that share a stream: an eager pool, in which they keep blocks once they
// have waited for each other.
class EagerMemory {
 public:
  void* allocate(std::size_t bytes) { return allocator_.allocate(bytes, kStream); }
  void free(void* data) { allocator_.free(data); }

 private:
  static constexpr StreamId kStream = 1;

  MadeUpSegmentSource source_;
  SegmentCache cache_{source_};
  CachingAllocator allocator_{cache_};
};

// The same with the lock of a pool, and a count of blocks and bytes.
class LockedBinsMemory {
 public:
  void* allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    ++blocks_;
    bytes_ += bytes;
    return bins_.allocate(bytes);
  }
  void free(void* block) {
    const std::lock_guard lock(mutex_);
    --blocks_;
    bins_.free(block);
  }

 private:
  SpinMutex<LockRank::kPool> mutex_;
  BinsMemory bins_;
  std::size_t blocks_ = 0;
  std::size_t bytes_ = 0;
};

// A pool of 100 live blocks, as a graph's is, beside an eager pool with 10,000 live ones.
class CheckpointRow {
 public:
  enum class Timed { kCheckpoint, kRestore };
  explicit CheckpointRow(Timed timed) : timed_(timed) {}

  void operator()(benchmark::State& state) const {
    MadeUpSegmentSource source;
    Pool eager(source), graph(source);
    const Sizes sizes{.live = 100, .least = 512, .most = std::size_t{1} << 20};
    const Workload<Pool> others(eager, {10'000, sizes.least, sizes.most}, 1, 1);
    Workload<Pool> workload(graph, sizes, 2, 1);
    const PoolCheckpoint before = graph.checkpoint();
    Samples samples(state);
    for (auto _ : state) {
      std::vector<void*> some;  // every segment changes
      for (std::size_t i = 0; i < graph.segments().size(); ++i)
        some.push_back(graph.allocate(512 << (i % 11)));
      auto begin = std::chrono::steady_clock::now();
      const PoolCheckpoint after = graph.checkpoint();
      double seconds = seconds_since(begin);
      begin = std::chrono::steady_clock::now();
      const PoolDelta delta = graph.restore(before, some);
      if (timed_ == Timed::kRestore) seconds = seconds_since(begin);
      benchmark::DoNotOptimize(delta.died.size());
      samples.add(seconds, 1);
    }
    samples.report();
    state.counters["segments"] = static_cast<double>(graph.segments().size());
  }

 private:
  Timed timed_;
};

// Captures 64 small nodes repeatedly, each with an allocation in the capture's own pool.
class CapturingThread {
 public:
  explicit CapturingThread(Device device)
      : stream_(device, StreamKind::kNonBlocking),
        thread_([this](std::stop_token stop) { run(stop); }) {}

 private:
  void run(const std::stop_token& stop) {
    MadeUpSegmentSource source;
    Pool pool(source);
    const StreamRef stream = stream_.ref();
    void* const data = buffer_.data();
    while (!stop.stop_requested()) {
      Capture capture(stream, CaptureMode::kThreadLocal);
      for (int i = 0; i < 64; ++i) {
        void* const block = pool.allocate(4096);
        check(stream.graphs().launch_host_function(
                  stream.handle(), [](void*) {}, data),
              "capture");
        pool.free(block);
      }
      Graph graph;
      check(capture.end(&graph), "capture");
    }
  }

  std::vector<int> buffer_ = std::vector<int>(1);
  Stream stream_;
  std::jthread thread_;
};

// Single pairs, each timed, because the tail matters. The time includes one reading of the clock.
struct PairsBesideACapture {
  Device device;
  bool captures;

  void operator()(benchmark::State& state) const {
    std::optional<CapturingThread> other;
    if (captures) other.emplace(device);
    PoolMemory memory;
    std::vector<void*> blocks(500);
    for (void*& block : blocks)
      block = memory.allocate(4096);
    Samples samples(state);
    std::size_t i = 0;
    for (auto _ : state) {
      void*& block = blocks[i++ % blocks.size()];
      const auto begin = std::chrono::steady_clock::now();
      memory.free(block);
      block = memory.allocate(4096);
      samples.add(seconds_since(begin), 1);
    }
    samples.report();
    for (void* const block : blocks)
      memory.free(block);
  }
};

std::vector<NamedTrace> read_traces(const std::vector<std::string>& paths) {
  std::vector<NamedTrace> traces;
  for (const std::string& path : paths) {
    const Trace read = read_rmm_log(path);
    NamedTrace& trace = traces.emplace_back();
    const std::string file = std::filesystem::path(path).filename().string();
    trace.name = file.substr(0, file.find('.'));
    trace.slots = read.slots;
    for (const TraceStep& step : read.steps)
      trace.steps.push_back({step.slot, step.bytes});
    add_missing_frees(trace.steps, trace.slots);
  }
  return traces;
}

void add_rows(const Options& options) {
  PairRows rows{.samples = options.samples,
                .warm_up = std::min(options.samples, kWarmUp),
                .has_real_memory = false,
                .traces = read_traces(options.traces)};
  add_pairs<PoolMemory>("pool", rows);
  add_pairs<EagerMemory>("eager", rows);
  for (const std::size_t live : {64, 1024, 8192}) {
    const Sizes sizes{live, 512, std::size_t{64} << 20};
    const auto add = [&](const char* who, auto row) {
      add_row(fmt::format("BM_Pair/{}/random_sizes/live:{}", who, live), rows.samples, row)
          ->Threads(1);
    };
    add("bins", PairRow<BinsMemory>{sizes, rows.warm_up});
    add("locked_bins", PairRow<LockedBinsMemory>{sizes, rows.warm_up});
  }
#ifdef CGTREE_WITH_CUDA
  if (options.device.type == DeviceType::kCuda) {
    rows.has_real_memory = true;
    add_pairs<CubMemory>("cub", rows);
    add_pairs<AsyncMemory>("cudaMallocAsync", rows);
  }
#endif
  using Timed = CheckpointRow::Timed;
  add_row("BM_Checkpoint/pool/blocks:100/eager:10000", options.samples,
          CheckpointRow(Timed::kCheckpoint));
  add_row("BM_Restore/pool/blocks:100/eager:10000", options.samples,
          CheckpointRow(Timed::kRestore));
  for (const bool captures : {false, true}) {
    add_row(fmt::format("BM_SinglePair/pool/other_thread_captures:{}", captures ? 1 : 0),
            options.samples * 1000, PairsBesideACapture{options.device, captures});
  }
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(argc, argv,
                                         {"What does an allocation cost the host, in the pool and "
                                          "in its peers, and what a checkpoint?",
                                          &cgtree::benchmarks::add_rows, /*takes_traces=*/true});
}
