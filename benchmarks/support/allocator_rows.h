// The rows of an allocator: pairs of one size, of random sizes, and of recorded traces.
#pragma once

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/support/allocation_workload.h"
#include "benchmarks/support/times.h"

namespace cgtree::benchmarks {

// Samples are the times of one thread of one row.
class Samples {
 public:
  explicit Samples(benchmark::State& state) : state_(state) {
    samples_.reserve(static_cast<std::size_t>(state.max_iterations));
  }

  // Adds a sample: `seconds` for so many operations.
  void add(double seconds, std::size_t operations) {
    samples_.push_back(seconds / static_cast<double>(operations));
    state_.SetIterationTime(samples_.back());
  }

  // Sets counters in ns per operation. With several threads they are the mean over the threads.
  void report() {
    if (samples_.empty()) return;
    const auto set = [&](const char* name, double part) {
      state_.counters[name] =
          benchmark::Counter(quantile(samples_, part) * 1e9, benchmark::Counter::kAvgThreads);
    };
    set("min_ns", 0);
    set("median_ns", 0.5);
    set("p99_ns", 0.99);
  }

 private:
  benchmark::State& state_;
  std::vector<double> samples_;
};

template <typename Row>
benchmark::internal::Benchmark* add_row(const std::string& name, std::int64_t samples, Row row) {
  return benchmark::RegisterBenchmark(name.c_str(), [row](benchmark::State& state) { row(state); })
      ->Iterations(std::max<std::int64_t>(samples, 1))
      ->UseManualTime()
      ->Unit(benchmark::kNanosecond);
}

// A Shared makes a `Memory` when the first thread of a row begins, and destroys it after the last,
// so that rows do not share device memory. In Google Benchmark no thread ends before all have
// begun.
template <typename Memory>
class Shared {
 public:
  Memory& enter() {
    const std::lock_guard lock(mutex_);
    if (threads_++ == 0) memory_ = std::make_unique<Memory>();
    return *memory_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--threads_ == 0) memory_.reset();
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<Memory> memory_;
  int threads_ = 0;
};

template <typename Memory>
struct PairRow {
  Sizes sizes;
  std::int64_t warm_up;  // rounds, of all threads together
  std::shared_ptr<Shared<Memory>> shared = std::make_shared<Shared<Memory>>();

  void operator()(benchmark::State& state) const {
    Memory& memory = shared->enter();
    {
      Workload<Memory> workload(memory, sizes, 1 + static_cast<unsigned>(state.thread_index()),
                                warm_up / state.threads());
      Samples samples(state);
      std::uint64_t allocations = 0;
      for (auto _ : state) {
        const std::uint64_t allocated = allocation_count();
        const auto begin = std::chrono::steady_clock::now();
        workload.run();
        const double seconds = seconds_since(begin);
        allocations += allocation_count() - allocated;
        samples.add(seconds, kPairs);
      }
      samples.report();
      state.counters["allocations"] = benchmark::Counter(
          static_cast<double>(allocations) / kPairs / static_cast<double>(state.iterations()),
          benchmark::Counter::kAvgThreads);
    }
    shared->leave();
  }
};

struct NamedTrace {
  std::string name;
  std::vector<TracedStep> steps;  // ends without live blocks
  std::size_t slots;
};

template <typename Memory>
struct TraceRow {
  std::shared_ptr<const NamedTrace> trace;

  void operator()(benchmark::State& state) const {
    Memory memory;
    std::vector<void*> blocks(trace->slots);
    for (int i = 0; i < 3; ++i)
      run_trace(memory, trace->steps, blocks);
    Samples samples(state);
    for (auto _ : state) {
      const auto begin = std::chrono::steady_clock::now();
      run_trace(memory, trace->steps, blocks);
      samples.add(seconds_since(begin), trace->steps.size() / 2);
    }
    samples.report();
  }
};

struct PairRows {
  std::int64_t samples;
  std::int64_t warm_up;  // rounds, of all threads of a row together
  bool has_real_memory;  // then many threads with many blocks would not fit
  std::vector<NamedTrace> traces;
};

template <typename Memory>
void add_pairs(const std::string& who, const PairRows& rows) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const auto add = [&](const std::string& name, const Sizes& sizes) {
    for (const int threads : {1, 2, 4, 8, 16}) {
      if (threads > 1 && rows.has_real_memory && sizes.live > 500) continue;
      add_row(fmt::format("BM_Pair/{}/{}", who, name), rows.samples / threads,
              PairRow<Memory>{sizes, rows.warm_up})
          ->Threads(threads);
    }
  };
  add("one_size:4096/live:500", {500, 4096, 4096});
  for (const std::size_t live : {64, 1024, 8192})
    add(fmt::format("random_sizes/live:{}", live), {live, 512, 64 * kMiB});
  for (const NamedTrace& trace : rows.traces) {
    add_row(fmt::format("BM_Trace/{}/{}", who, trace.name), rows.samples / 8,
            TraceRow<Memory>{std::make_shared<const NamedTrace>(trace)});
  }
}

}  // namespace cgtree::benchmarks
