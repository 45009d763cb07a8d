// Keeps the last events in a ring.
#include "caching/reports/memory_trace.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace cgtree {
namespace {

std::int64_t now_us() noexcept {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since_1970).count();
}

}  // namespace

MemoryTrace::MemoryTrace(std::size_t capacity) : events_(capacity) {
  if (capacity == 0) throw InvalidArgument("a trace of 0 events; give it room for at least 1");
}

void MemoryTrace::add(const TraceEvent& event) noexcept {
  const std::lock_guard lock(mutex_);
  events_[added_ % events_.size()] = event;
  ++added_;
}

std::vector<TraceEvent> MemoryTrace::events() const {
  const std::lock_guard lock(mutex_);
  const std::size_t count = std::min(added_, events_.size());
  std::vector<TraceEvent> ordered;
  ordered.reserve(count);
  for (std::size_t i = added_ - count; i < added_; ++i)
    ordered.push_back(events_[i % events_.size()]);
  return ordered;
}

std::size_t MemoryTrace::overwritten() const {
  const std::lock_guard lock(mutex_);
  return added_ - std::min(added_, events_.size());
}

void MemoryTraceObserver::allocated(const void* address, std::size_t bytes) noexcept {
  add(TraceEvent::Action::kAlloc, address, bytes);
}

void MemoryTraceObserver::freed(const void* address, std::size_t bytes) noexcept {
  add(TraceEvent::Action::kFreeCompleted, address, bytes);
}

void MemoryTraceObserver::refused(std::size_t bytes) noexcept {
  add(TraceEvent::Action::kOom, nullptr, bytes);
}

void MemoryTraceObserver::add(TraceEvent::Action action, const void* address,
                              std::size_t bytes) noexcept {
  trace_.add({action, reinterpret_cast<std::uintptr_t>(address), bytes, now_us(), stream_, pool_});
}

}  // namespace cgtree
