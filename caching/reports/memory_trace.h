// MemoryTrace: the last allocations and frees of some pools, for snapshots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/pool/pool_observer.h"
#include "allocator/pool/segment_source.h"
#include "base/mutex.h"

namespace cgtree {

// A PoolLabel tells one pool from another in traces and snapshots.
struct PoolLabel {
  std::uint64_t id = 0;  // chosen by the caller
  int device = 0;        // ordinal, >= 0

  friend bool operator==(const PoolLabel&, const PoolLabel&) = default;
};

// A TraceEvent is one allocation, free or refusal.
struct TraceEvent {
  enum class Action { kAlloc, kFreeCompleted, kOom };

  Action action = Action::kAlloc;
  std::uintptr_t address = 0;  // 0 for kOom
  std::size_t size = 0;        // the bytes asked for
  std::int64_t time_us = 0;    // since 1970, by the system's clock
  StreamId stream = 0;
  PoolLabel pool;

  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

// A MemoryTrace is a ring: the newest event replaces the oldest. After construction only events()
// allocates.
//
// Thread safety: all functions may be called from any thread.
class MemoryTrace {
 public:
  // Throws InvalidArgument for a capacity of 0 events.
  explicit MemoryTrace(std::size_t capacity);

  void add(const TraceEvent& event) noexcept;

  std::vector<TraceEvent> events() const;  // the oldest first

  // Returns the number of events that newer ones have replaced.
  std::size_t overwritten() const;

 private:
  mutable Mutex<LockRank::kTrace> mutex_;  // guards all below
  std::vector<TraceEvent> events_;         // as many as the capacity
  std::size_t added_ = 0;  // events ever added; the next goes to added_ modulo the capacity
};

// A MemoryTraceObserver writes what one pool does into a trace, which several pools may share.
class MemoryTraceObserver final : public PoolObserver {
 public:
  // `trace` must outlive the observer.
  MemoryTraceObserver(MemoryTrace& trace, PoolLabel pool, StreamId stream)
      : trace_(trace), pool_(pool), stream_(stream) {}

  void allocated(const void* address, std::size_t bytes) noexcept override;
  void freed(const void* address, std::size_t bytes) noexcept override;
  void refused(std::size_t bytes) noexcept override;

 private:
  void add(TraceEvent::Action action, const void* address, std::size_t bytes) noexcept;

  MemoryTrace& trace_;
  const PoolLabel pool_;
  const StreamId stream_;
};

}  // namespace cgtree
