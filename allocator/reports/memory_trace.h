// The last allocations and frees of some pools, for snapshots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "allocator/pool/pool_label.h"
#include "allocator/pool/pool_observer.h"
#include "allocator/segments/stream_id.h"

namespace cgtree {

struct TraceEvent {
  enum class Action { kAlloc, kFreeCompleted, kOom };

  Action action = Action::kAlloc;
  std::uintptr_t address = 0;  // 0 of kOom
  std::size_t size = 0;        // bytes asked for
  std::int64_t time_us = 0;    // since 1970, of the system's clock
  StreamId stream = 0;
  PoolLabel pool;

  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

// A ring: the newest event takes the place of the oldest. Nothing is allocated after construction
// but by events().
//
// Threads: any.
class MemoryTrace {
 public:
  // Throws InvalidArgument for a capacity of 0 events.
  explicit MemoryTrace(std::size_t capacity);

  void add(const TraceEvent& event) noexcept;

  std::vector<TraceEvent> events() const;  // the oldest first

  // Events that gave way to newer ones.
  std::size_t overwritten() const;

 private:
  mutable std::mutex mutex_;        // guards all below
  std::vector<TraceEvent> events_;  // all of the capacity
  std::size_t added_ = 0;           // ever; the next goes to added_ modulo the capacity
};

// Writes what one pool does into a trace, which several may share.
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
