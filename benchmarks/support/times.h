// Measures calls that enqueue work: the host's time, the device's time, and heap allocations.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "interop/device/stream.h"

namespace cgtree::benchmarks {

// Returns how often this thread has allocated heap memory with operator new. Linking this replaces
// the program's operator new. Allocations of a driver with malloc are not counted.
std::uint64_t allocation_count() noexcept;

// Sets the counters min_us and median_us of samples in seconds, if there are any.
void add_counters(benchmark::State& state, std::vector<double> samples);

// One sample is the mean of a batch, because reading the clock costs tens of ns and a call about 1
// us. The stream is drained, off the clock, before the device's queue is full and a launch would
// wait for the device.
struct Batches {
  int calls = 16;            // per sample
  int until_drained = 4;     // samples
  std::int64_t samples = 0;  // in all

  void apply_to(benchmark::internal::Benchmark* row) const {
    row->Iterations(samples)->UseManualTime()->Unit(benchmark::kMicrosecond);
  }
};

// HostTime samples the host cost of enqueuing a call, without the device's time.
class HostTime {
 public:
  HostTime(benchmark::State& state, StreamRef stream, const Batches& batches)
      : state_(state), stream_(stream), batches_(batches) {
    samples_.reserve(static_cast<std::size_t>(state.max_iterations));
  }

  // Runs call() in batches. The time of the row is the mean per call.
  template <typename Call>
  void measure(Call call) {
    run(call);  // warms caches, branch predictors, the driver's lazy work
    stream_.synchronize();
    int enqueued = 0;
    for (auto _ : state_) {
      const std::uint64_t allocated = allocation_count();
      add(run(call));
      allocations_ += allocation_count() - allocated;
      if (++enqueued % batches_.until_drained == 0) stream_.synchronize();
    }
    stream_.synchronize();
    report();
  }

  // As measure(), with a batch of bare() after each batch of call(), so that both see the host's
  // present clock rate: the counter above_us is the median excess of a call. Both work on the same
  // stream.
  template <typename Call, typename Bare>
  void measure_above(Call call, Bare bare) {
    (void)run(bare);
    (void)run(call);
    stream_.synchronize();
    int enqueued = 0;
    for (auto _ : state_) {
      const std::uint64_t allocated = allocation_count();
      const double seconds = run(call);
      allocations_ += allocation_count() - allocated;
      add(seconds);
      above_.push_back(seconds - run(bare));
      if (++enqueued % batches_.until_drained == 0) stream_.synchronize();
    }
    stream_.synchronize();
    report();
  }

 private:
  // Returns seconds per call.
  template <typename Call>
  double run(Call& call) const {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < batches_.calls; ++i)
      call();
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(end - begin).count() / batches_.calls;
  }
  void add(double seconds);
  // Sets the counters min_us, median_us and p99_us of the samples, and allocations per call.
  void report();

  benchmark::State& state_;
  const StreamRef stream_;
  const Batches batches_;
  std::vector<double> samples_;  // seconds per call
  std::vector<double> above_;    // the same, less a bare launch
  std::uint64_t allocations_ = 0;
};

// DeviceTime samples the time from the first of `calls` enqueued calls until the last has ended,
// per call. This is the device's time if it exceeds the host's time to enqueue, and otherwise the
// host's.
class DeviceTime {
 public:
  DeviceTime(benchmark::State& state, StreamRef stream, int calls)
      : state_(state), stream_(stream), calls_(calls) {}

  template <typename Call>
  void measure(Call call) {
    run(call);  // warms caches, clocks, the driver's lazy work
    for (auto _ : state_) {
      samples_.push_back(run(call));
      state_.SetIterationTime(samples_.back());
    }
    add_counters(state_, std::move(samples_));
  }

 private:
  // Returns seconds per call.
  template <typename Call>
  double run(Call& call) {
    stream_.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls_; ++i)
      call();
    stream_.synchronize();
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(end - begin).count() / calls_;
  }

  benchmark::State& state_;
  const StreamRef stream_;
  const int calls_;
  std::vector<double> samples_;
};

}  // namespace cgtree::benchmarks
