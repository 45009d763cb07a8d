// DeviceTime: samples what a call costs where many are enqueued one behind the other.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "interop/device/stream.h"

namespace cgtree::benchmarks {

// One sample is the time from the first of `calls` enqueued until the last has ended, per call: the
// device's, where it takes longer than the host takes to enqueue, and else the host's.
class DeviceTime {
 public:
  DeviceTime(benchmark::State& state, StreamRef stream, int calls)
      : state_(state), stream_(stream), calls_(calls) {}

  template <typename Call>
  void measure(Call call) {
    run(call);  // caches, clocks, the driver's lazy work
    for (auto _ : state_) {
      samples_.push_back(run(call));
      state_.SetIterationTime(samples_.back());
    }
    if (samples_.empty()) return;
    std::sort(samples_.begin(), samples_.end());
    state_.counters["min_us"] = samples_.front() * 1e6;
    state_.counters["median_us"] = samples_[samples_.size() / 2] * 1e6;
  }

 private:
  // Seconds per call.
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
