// One open capture: who may use which free memory, as the captured graph orders it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "allocator/caching/capture_order.h"
#include "allocator/caching/capture_pools.h"
#include "allocator/segments/deferred_frees.h"

namespace cgtree {

// A pool is held by one stream of the capture at a time. Invariant: all that is free in it was
// freed at nodes that precede the holder's terminals. So the holder may use it all; another stream
// may take the pool over once the holder's terminals precede its own (it has joined the holder).
//
// A block that only the holder used is free at once. Else its marker is where all its streams stand
// at the free, and it is free once that precedes the holder's terminals; until then, or until the
// session ends, it is deferred. Deferred blocks belong to the session: nobody else frees them.
//
// Threads: any. The lock is not held while a pool grows.
class CaptureSession {
 public:
  // Frees are held until the session ends. `pools` and `order` must outlive it.
  CaptureSession(CapturePools& pools, DeferredFrees hold, CaptureOrder& order);
  // Ends it.
  ~CaptureSession();
  CaptureSession(const CaptureSession&) = delete;
  CaptureSession& operator=(const CaptureSession&) = delete;

  // Memory for the next node on `stream`. Throws as Pool::allocate() does, and InvalidArgument when
  // the stream is no part of the capture or the session has ended; nothing has changed then.
  void* allocate(std::size_t bytes, StreamId stream);

  // `stream` uses the block; of the capture or not. False when the block is not of this session.
  bool use(void* address, StreamId stream);

  // Frees a block of pool `number`: one of the session, or one from before it, which stays until
  // the end. False when the session has ended. Throws InvalidArgument when it is free already.
  bool free(void* address, std::size_t number);

  // Frees all that is deferred and lets go of pools and frees. A second call does nothing.
  void end() noexcept;

  std::size_t deferred_blocks() const;

 private:
  static constexpr std::size_t kNone = SIZE_MAX;

  struct Block {
    std::size_t pool = 0;
    std::vector<StreamId> uses;  // sorted; of the capture, the allocating one among them
    bool stays = false;          // until the end
    bool is_deferred = false;
  };
  struct Deferred {
    std::uintptr_t address;
    std::vector<NodeId> marker;
  };
  // By the streams that used them. The markers of one queue only move forward: when the first does
  // not precede a stream, none does.
  using Queues = std::map<std::vector<StreamId>, std::deque<Deferred>>;
  struct Hold {
    std::optional<StreamId> holder;
    std::size_t allocating = 0;  // calls that are in the pool just now; no takeover meanwhile
    Queues deferred;
  };

  std::size_t choose(std::size_t bytes, StreamId stream);
  void require_captured(StreamId stream);
  bool try_hold(std::size_t number, StreamId stream);
  bool can_serve(std::size_t number, std::size_t bytes);
  void free_joined(std::size_t number);
  void free_now(std::size_t number, std::uintptr_t address);
  void defer(std::uintptr_t address, Block& block, Hold& hold);
  Hold& hold_of(std::size_t number);

  CapturePools& pools_;
  CaptureOrder& order_;
  DeferredFrees frees_;
  mutable std::mutex mutex_;  // guards all below
  bool has_ended_ = false;
  std::deque<Hold> holds_;  // by number of the pool
  std::map<std::uintptr_t, Block> blocks_;
};

}  // namespace cgtree
