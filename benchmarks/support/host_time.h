// HostTime: samples what enqueueing a call costs the host, without the device's time.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "benchmarks/support/allocation_count.h"
#include "interop/device/stream.h"

namespace cgtree::benchmarks {

// One sample is the mean of a batch: reading the clock costs tens of ns, a call about 1 us. The
// stream is drained, off the clock, before so much is enqueued that the device's queue is full and
// a launch would wait for the device.
struct Batches {
  int calls = 16;            // per sample
  int until_drained = 4;     // samples
  std::int64_t samples = 0;  // in all

  void apply_to(benchmark::internal::Benchmark* row) const {
    row->Iterations(samples)->UseManualTime()->Unit(benchmark::kMicrosecond);
  }
};

class HostTime {
 public:
  HostTime(benchmark::State& state, StreamRef stream, const Batches& batches)
      : state_(state), stream_(stream), batches_(batches) {
    samples_.reserve(static_cast<std::size_t>(state.max_iterations));
  }

  // Runs call() in batches. The row's time is the mean per call.
  template <typename Call>
  void measure(Call call) {
    for (int i = 0; i < batches_.calls; ++i)  // caches, branch predictors, the driver's lazy work
      call();
    stream_.synchronize();
    int enqueued = 0;
    for (auto _ : state_) {
      const std::uint64_t allocated = allocation_count();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < batches_.calls; ++i)
        call();
      const auto end = std::chrono::steady_clock::now();
      allocations_ += allocation_count() - allocated;
      add(std::chrono::duration<double>(end - begin).count() / batches_.calls);
      if (++enqueued % batches_.until_drained == 0) stream_.synchronize();
    }
    stream_.synchronize();
    report();
  }

 private:
  void add(double seconds);
  // Counters: median_us, p99_us and min_us per call, over the samples; allocations per call.
  void report();

  benchmark::State& state_;
  const StreamRef stream_;
  const Batches batches_;
  std::vector<double> samples_;  // seconds per call
  std::uint64_t allocations_ = 0;
};

}  // namespace cgtree::benchmarks
