// Turns samples into counters.
#include "benchmarks/support/host_time.h"

#include <algorithm>

namespace cgtree::benchmarks {

void HostTime::add(double seconds) {
  samples_.push_back(seconds);
  state_.SetIterationTime(seconds);
}

void HostTime::report() {
  if (samples_.empty()) return;
  std::sort(samples_.begin(), samples_.end());
  const auto at = [&](std::size_t percent) {
    return samples_[std::min(samples_.size() * percent / 100, samples_.size() - 1)] * 1e6;
  };
  const auto calls = static_cast<double>(samples_.size()) * batches_.calls;
  state_.counters["min_us"] = at(0);
  state_.counters["median_us"] = at(50);
  state_.counters["p99_us"] = at(99);
  state_.counters["allocations"] = static_cast<double>(allocations_) / calls;
}

}  // namespace cgtree::benchmarks
