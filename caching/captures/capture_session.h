// CaptureSession: which stream of an open capture may use which free memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "caching/caching_allocator.h"
#include "caching/captures/capture_order.h"

namespace cgtree {

// In a CaptureSession a pool is held by one stream of the capture at a time. Invariant: all that is
// free in a pool was freed at nodes that precede the holder's terminals. So the holder may use it
// all, and another stream may take the pool over once the holder's terminals precede its own (it
// has joined the holder).
//
// A block that only the holder used is free at once. Any other block is deferred: its marker is
// where all its streams stood at the free, and it becomes free once the marker precedes the
// holder's terminals, or when the session ends. Deferred blocks belong to the session; no other
// code frees them.
//
// Example: streams A and B are part of a capture; A holds the pool and has allocated a block.
//
//   use(block, B)       B's kernel reads the block
//   free(block)         deferred: the marker is {A's terminal, B's terminal}
//   allocate on A       a new block: B's terminal does not precede A's
//   A waits for B       an event of the capture; A's next node depends on B's terminal
//   allocate on A       the deferred block is free now, and may be returned
//
// Thread safety: all functions may be called from any thread. The lock is not held while a pool
// grows.
class CaptureSession final : public OpenCapture {
 public:
  // `frees` is held until the session ends. `pools` and `order` must outlive it.
  CaptureSession(CapturePools& pools, DeferredFrees frees, CaptureOrder& order);
  // Calls end().
  ~CaptureSession() override;

  // OpenCapture.
  void* allocate(std::size_t bytes, StreamId stream) override;
  bool use(void* address, StreamId stream) override;
  bool free(void* address, std::size_t number) override;
  bool has(StreamId stream) override;
  void end() noexcept override;
  std::size_t deferred_blocks() const override;

 private:
  static constexpr std::size_t kNone = SIZE_MAX;

  struct Block {
    std::size_t pool = 0;
    std::vector<StreamId> uses;  // streams of the capture, sorted; the allocating one too
    bool stays = false;          // not free before the end
    bool is_deferred = false;
  };
  struct Deferred {
    std::uintptr_t address;
    std::vector<NodeId> marker;
  };
  // The deferred blocks by the streams that used them. The markers of one queue only move forward:
  // if the first does not precede a stream, none does.
  using Queues = std::map<std::vector<StreamId>, std::deque<Deferred>>;
  struct Hold {
    std::optional<StreamId> holder;
    std::size_t allocating = 0;  // calls inside the pool; no takeover meanwhile
    Queues deferred;
  };

  std::size_t choose(std::size_t bytes, StreamId stream);
  void require_captured(StreamId stream);
  static void expect_not_freed(std::uintptr_t address, const Block& block);
  bool try_hold(std::size_t number, StreamId stream);
  bool can_serve(std::size_t number, std::size_t bytes);
  void free_joined(std::size_t number);
  void free_now(std::size_t number, std::uintptr_t address);
  void defer(std::uintptr_t address, Block& block, Hold& hold);
  Hold& hold_of(std::size_t number);

  CapturePools& pools_;
  CaptureOrder& order_;
  DeferredFrees frees_;
  mutable Mutex<LockRank::kCapture> mutex_;  // guards all below
  bool has_ended_ = false;
  std::deque<Hold> holds_;  // by number of the pool
  std::map<std::uintptr_t, Block> blocks_;
};

// Begins a capture on these streams, whose allocations go to the pool; so do those of streams that
// join the capture later. `order` must outlive the capture. Throws InvalidArgument if the pool has
// a capture open.
[[nodiscard]] CaptureScope begin_capture(CachingAllocator& allocator, const PoolHandle& pool,
                                         std::span<const StreamId> streams, CaptureOrder& order);

}  // namespace cgtree
