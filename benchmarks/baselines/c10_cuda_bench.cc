// Host cost of an allocation in PyTorch's allocator, and of a checkpoint of a pool.
//
// Built against an installed PyTorch by c10_bench.py. Prints one JSON object per row, with the
// names of allocator_bench's rows, times in ns.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "benchmarks/support/allocation_workload.h"

namespace cgtree::benchmarks {
namespace {

namespace Allocator = c10::cuda::CUDACachingAllocator;
using c10::cuda::MempoolId_t;

constexpr int kWarmUp = 32;

struct C10Memory {
  void* allocate(std::size_t bytes) { return Allocator::raw_alloc(bytes); }
  void free(void* data) { Allocator::raw_delete(data); }
};

void report(const std::string& name, std::vector<double> seconds) {
  std::printf("{\"name\": \"%s\", \"min_ns\": %.6g, \"median_ns\": %.6g, \"p99_ns\": %.6g}\n",
              name.c_str(), quantile(seconds, 0) * 1e9, quantile(seconds, 0.5) * 1e9,
              quantile(seconds, 0.99) * 1e9);
  std::fflush(stdout);
}

// The mean over the threads of their medians, as in allocator_bench.
void run_pairs(const std::string& name, const Sizes& sizes, int threads, int samples) {
  std::vector<std::vector<double>> seconds(static_cast<std::size_t>(threads));
  std::barrier all(threads);
  const auto run = [&](int thread) {
    c10::cuda::set_device(0);
    C10Memory memory;
    Workload<C10Memory> workload(memory, sizes, 1 + static_cast<unsigned>(thread),
                                 kWarmUp / threads);
    std::vector<double>& mine = seconds[static_cast<std::size_t>(thread)];
    all.arrive_and_wait();
    for (int i = 0; i < std::max(samples / threads, 1); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      workload.run();
      mine.push_back(seconds_since(begin) / kPairs);
    }
    all.arrive_and_wait();
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread)
    others.emplace_back(run, thread);
  run(0);
  for (std::thread& other : others)
    other.join();
  double parts[3] = {};
  for (std::vector<double>& mine : seconds) {
    const double at[] = {0, 0.5, 0.99};
    for (int i = 0; i < 3; ++i)
      parts[i] += quantile(mine, at[i]) / threads;
  }
  std::printf(
      "{\"name\": \"BM_Pair/c10/%s/threads:%d\", \"min_ns\": %.6g, \"median_ns\": %.6g, "
      "\"p99_ns\": %.6g}\n",
      name.c_str(), threads, parts[0] * 1e9, parts[1] * 1e9, parts[2] * 1e9);
  std::fflush(stdout);
  Allocator::emptyCache();
}

void run_all_pairs(int samples) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  for (const int threads : {1, 2, 4, 8, 16}) {
    run_pairs("one_size:4096/live:500", {500, 4096, 4096}, threads, samples);
    run_pairs("random_sizes/live:64", {64, 512, 64 * kMiB}, threads, samples);
  }
  for (const std::size_t live : {1024, 8192}) {
    run_pairs("random_sizes/live:" + std::to_string(live), {live, 512, 64 * kMiB}, 1, samples);
  }
}

// Thread,Time,Action,Pointer,Size,Stream, uncompressed; the file is one that trace_replay accepts.
void run_trace_file(const std::string& path, int samples) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::vector<TracedStep> steps;
  std::unordered_map<std::string, std::uint32_t> live;
  std::uint32_t slots = 0;
  while (std::getline(file, line)) {
    std::istringstream row(line);
    std::string thread, time, action, pointer, size;
    std::getline(row, thread, ',');
    std::getline(row, time, ',');
    std::getline(row, action, ',');
    std::getline(row, pointer, ',');
    std::getline(row, size, ',');
    if (action == "allocate") {
      live[pointer] = slots;
      steps.push_back({slots++, std::stoull(size)});
    } else if (action == "free") {
      steps.push_back({live.at(pointer), 0});
    }
  }
  add_missing_frees(steps, slots);
  C10Memory memory;
  std::vector<void*> blocks(slots);
  for (int i = 0; i < 3; ++i)
    run_trace(memory, steps, blocks);
  std::vector<double> seconds;
  for (int i = 0; i < std::max(samples / 8, 1); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run_trace(memory, steps, blocks);
    seconds.push_back(seconds_since(begin) / (static_cast<double>(steps.size()) / 2));
  }
  const std::string name = path.substr(path.rfind('/') + 1);
  report("BM_Trace/c10/" + name.substr(0, name.find('.')), seconds);
  Allocator::emptyCache();
}

// A private pool of 100 live blocks beside 10,000 live ones of the eager pool.
void run_checkpoints(int samples) {
  const MempoolId_t pool{0, 4711};
  cudaStream_t stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) std::abort();
  struct PoolMemory {
    cudaStream_t stream;
    void* allocate(std::size_t bytes) { return Allocator::raw_alloc_with_stream(bytes, stream); }
    void free(void* data) { Allocator::raw_delete(data); }
  } graph{stream};
  C10Memory eager;
  const Sizes sizes{100, 512, std::size_t{1} << 20};
  Workload<C10Memory> others(eager, {10'000, sizes.least, sizes.most}, 1, 1);
  Allocator::beginAllocateToPool(0, pool, [stream](cudaStream_t asked) { return asked == stream; });
  std::vector<double> checkpoints, restores;
  {
    auto* const workload = new Workload<PoolMemory>(graph, sizes, 2, 1);
    const auto before = Allocator::getCheckpointState(0, pool);
    for (int i = 0; i < samples; ++i) {
      for (std::size_t k = 0; k < 11; ++k)
        graph.allocate(512u << k);
      auto begin = std::chrono::steady_clock::now();
      const auto after = Allocator::getCheckpointState(0, pool);
      checkpoints.push_back(seconds_since(begin));
      begin = std::chrono::steady_clock::now();
      const auto delta = Allocator::setCheckpointPoolState(0, before);
      restores.push_back(seconds_since(begin));
    }
    // The restores replaced the blocks of the workload, which must not free them.
    static_cast<void>(workload);
  }
  Allocator::endAllocateToPool(0, pool);
  report("BM_Checkpoint/c10/blocks:100/eager:10000", checkpoints);
  report("BM_Restore/c10/blocks:100/eager:10000", restores);
}

// Times single pairs while another thread captures 64 nodes with their own allocations.
void run_single_pairs(bool captures, int samples) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    if (!captures) return;
    c10::cuda::set_device(0);
    unsigned long long captures_made = 0;
    cudaStream_t stream = nullptr;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) std::abort();
    while (!stop) {
      const MempoolId_t pool{0, 5000 + captures_made++};  // a released id must not be used again
      Allocator::beginAllocateToPool(0, pool,
                                     [stream](cudaStream_t asked) { return asked == stream; });
      (void)cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
      for (int i = 0; i < 64; ++i) {
        void* const block = Allocator::raw_alloc_with_stream(4096, stream);
        (void)cudaLaunchHostFunc(
            stream, [](void*) {}, nullptr);
        Allocator::raw_delete(block);
      }
      cudaGraph_t graph = nullptr;
      (void)cudaStreamEndCapture(stream, &graph);
      (void)cudaGraphDestroy(graph);
      Allocator::endAllocateToPool(0, pool);
      Allocator::releasePool(0, pool);
    }
  });
  C10Memory memory;
  std::vector<void*> blocks(500);
  for (void*& block : blocks)
    block = memory.allocate(4096);
  std::vector<double> seconds;
  for (int i = 0; i < samples * 1000; ++i) {
    void*& block = blocks[static_cast<std::size_t>(i) % blocks.size()];
    const auto begin = std::chrono::steady_clock::now();
    memory.free(block);
    block = memory.allocate(4096);
    seconds.push_back(seconds_since(begin));
  }
  stop = true;
  other.join();
  for (void* const block : blocks)
    memory.free(block);
  report(std::string("BM_SinglePair/c10/other_thread_captures:") + (captures ? "1" : "0"), seconds);
}

}  // namespace
}  // namespace cgtree::benchmarks

// Arguments: samples per row, then uncompressed traces.
int main(int argc, char** argv) {
  using namespace cgtree::benchmarks;
  const int samples = argc > 1 ? std::atoi(argv[1]) : 800;
  c10::cuda::CUDACachingAllocator::init(1);
  c10::cuda::set_device(0);
  run_all_pairs(samples);
  for (int i = 2; i < argc; ++i)
    run_trace_file(argv[i], samples);
  run_checkpoints(samples);
  for (const bool captures : {false, true})
    run_single_pairs(captures, samples);
}
