// Where allocations go, said by scope: for a thread, for a stream, for a capture.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "allocator/caching/pool_handle.h"
#include "allocator/segments/stream_id.h"

namespace cgtree {

class CachingAllocator;

struct Route {
  std::uint64_t number = 0;  // later ones are larger; 0: none
  StreamId stream = 0;       // of a stream's route
  PoolHandle pool;
  bool is_capture = false;
};

// This thread's allocations go to the pool while it lives; it ends on the thread where it began,
// the last one first.
class ThreadRoute {
 public:
  ThreadRoute(CachingAllocator& allocator, PoolHandle pool);
  ~ThreadRoute();
  ThreadRoute(const ThreadRoute&) = delete;
  ThreadRoute& operator=(const ThreadRoute&) = delete;

 private:
  friend class CachingAllocator;
  CachingAllocator& allocator_;
  const Route route_;
  ThreadRoute* const outer_;
};

// A stream's allocations, on any thread, go to the pool while it lives.
class StreamRoute {
 public:
  StreamRoute(CachingAllocator& allocator, StreamId stream, PoolHandle pool);
  ~StreamRoute();
  StreamRoute(const StreamRoute&) = delete;
  StreamRoute& operator=(const StreamRoute&) = delete;

 private:
  CachingAllocator& allocator_;
  std::uint64_t number_;
};

// An open capture: allocations on its streams go to its pool, and are ordered by its graph. The end
// undoes what the beginning did. Move-only.
class CaptureScope {
 public:
  CaptureScope(CaptureScope&& other) noexcept;
  CaptureScope& operator=(CaptureScope&&) = delete;
  ~CaptureScope() { end(); }

  // The graph is complete, or given up. A second call does nothing.
  void end() noexcept;

 private:
  friend class CachingAllocator;
  CaptureScope(CachingAllocator& allocator, PoolHandle pool, std::span<const StreamId> streams,
               CaptureOrder& order);

  CachingAllocator* allocator_;
  PoolHandle pool_;
  std::vector<std::uint64_t> routes_;
};

}  // namespace cgtree
