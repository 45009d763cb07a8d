// CaptureSession: which stream of an open capture may use which free memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "allocator/caching/capture_order.h"
#include "allocator/pool/pool.h"
#include "allocator/segments/driver_gate.h"
#include "base/mutex.h"

namespace cgtree {

// CapturePools are the pools that the streams of a capture allocate from: one pool per line of
// streams, all with one lifetime. Pools are numbered, and none goes away while a capture is open.
// Implementations: PrivatePool, and a fake in the tests of CaptureSession.
//
// Thread safety: all functions may be called from any thread. All but add() are called with the
// session's lock held.
class CapturePools {
 public:
  virtual ~CapturePools() = default;

  virtual std::size_t count() const = 0;
  virtual Pool& pool(std::size_t number) = 0;

  // Gives a stream of the capture a pool that no other of its streams holds. Returns false if work
  // outside the capture may still use what is free in it. It is handed back with the stream that
  // held it last.
  virtual bool try_take(std::size_t number, StreamId stream) = 0;
  virtual void hand_back(std::size_t number, StreamId stream) noexcept = 0;

  // Makes one more pool, held by `stream` from the start.
  virtual std::size_t add(StreamId stream) = 0;

  // Throws InvalidArgument unless `address` is the start of a live block of the pool.
  virtual void expect_live(std::size_t number, void* address) = 0;

  // Notes that work outside the capture uses a block.
  virtual void use_outside(std::size_t number, void* address, StreamId stream) = 0;

  // Frees a block after the capture, by the rules outside of it.
  virtual void free_outside(std::size_t number, void* address) noexcept = 0;
};

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
class CaptureSession {
 public:
  // `frees` is held until the session ends. `pools` and `order` must outlive it.
  CaptureSession(CapturePools& pools, DeferredFrees frees, CaptureOrder& order);
  // Calls end().
  ~CaptureSession();
  CaptureSession(const CaptureSession&) = delete;
  CaptureSession& operator=(const CaptureSession&) = delete;

  // Returns memory for the next node on `stream`. Throws as Pool::allocate() does, and
  // InvalidArgument if the stream is not part of the capture or the session has ended; nothing has
  // changed then.
  void* allocate(std::size_t bytes, StreamId stream);

  // Notes that `stream`, of the capture or not, uses the block. Returns false if the block does not
  // belong to this session. Throws InvalidArgument if the block is free already.
  bool use(void* address, StreamId stream);

  // Frees a block of pool `number`: one of the session, or one from before it, which stays until
  // the end. Returns false if the session has ended. Throws InvalidArgument, and changes nothing,
  // unless `address` is the start of a live block.
  bool free(void* address, std::size_t number);

  // Returns true if the stream is part of the capture, and the session has not ended.
  bool has(StreamId stream);

  // Frees all deferred blocks and hands the pools back. A second call does nothing.
  void end() noexcept;

  std::size_t deferred_blocks() const;

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

}  // namespace cgtree
