// Turns samples into counters, and replaces operator new by a version that counts.
#include "benchmarks/support/times.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local std::uint64_t count = 0;

void* counted(void* memory) {
  ++count;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return counted(std::malloc(bytes == 0 ? 1 : bytes));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace cgtree::benchmarks {

std::uint64_t allocation_count() noexcept {
  return count;
}

void add_counters(benchmark::State& state, std::vector<double> samples) {
  if (samples.empty()) return;
  std::sort(samples.begin(), samples.end());
  state.counters["min_us"] = samples.front() * 1e6;
  state.counters["median_us"] = samples[samples.size() / 2] * 1e6;
}

void HostTime::add(double seconds) {
  samples_.push_back(seconds);
  state_.SetIterationTime(seconds);
}

void HostTime::report() {
  if (samples_.empty()) return;
  std::sort(samples_.begin(), samples_.end());
  std::sort(above_.begin(), above_.end());
  const auto at = [&](std::size_t percent) {
    return samples_[std::min(samples_.size() * percent / 100, samples_.size() - 1)] * 1e6;
  };
  const auto calls = static_cast<double>(samples_.size()) * batches_.calls;
  state_.counters["min_us"] = at(0);
  state_.counters["median_us"] = at(50);
  state_.counters["p99_us"] = at(99);
  if (!above_.empty()) state_.counters["above_us"] = above_[above_.size() / 2] * 1e6;
  state_.counters["allocations"] = static_cast<double>(allocations_) / calls;
}

}  // namespace cgtree::benchmarks
