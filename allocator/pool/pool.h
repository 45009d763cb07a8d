// Pool: segments with one lifetime, divided into blocks, whose layout can be saved and restored.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "allocator/pool/layout.h"
#include "allocator/pool/pool_caches.h"
#include "allocator/pool/pool_checkpoint.h"
#include "allocator/pool/segment_source.h"
#include "allocator/pool/statistics.h"
#include "base/mutex.h"

namespace cgtree {

// Growth is the way in which a pool gets segments.
enum class Growth {
  // Segments have PyTorch's sizes, and only trim() gives them back: every free address can be
  // reused, as recordings need.
  kFast,
  // One segment grows at its end, which is used last, in steps of 2 MiB, and shrinks from there; a
  // second is made only if the source cannot make the first larger. For sources that map memory at
  // reserved addresses. trim() keeps the memory of checkpoints.
  kInPlace,
  // The same, but memory is mapped only at blocks: best fit works on addresses, and pages of a
  // block without memory are mapped. Free pages are unmapped on request, and before the pool
  // reserves a twelfth, and 16 MiB, more than was ever live. For pools whose free addresses have no
  // users: there are no checkpoints.
  kInPages,
};

// A PoolOptions names a pool, and says how it grows.
struct PoolOptions {
  std::string name = "pool";  // for messages
  Growth growth = Growth::kFast;
  // For kInPlace and kInPages: if the segment cannot grow, there is no second one. Pools with the
  // same live blocks and requests then have the same distances between blocks.
  bool has_one_segment = false;
  // For kFast: a request of at most kSmallRequest does not divide a block that is larger than a
  // small segment, as long as a small segment is available without making room. A block that a
  // large request has freed then serves the next request of its size, whatever small requests come
  // between.
  bool small_apart = false;
  ThreadCaching thread_caching = ThreadCaching::kNever;
  MakePoolCaches make_caches = nullptr;  // null: no thread keeps blocks
  StreamId stream = 0;  // the stream on which the blocks are used; passed to the source
};

// A Pool allocates blocks from segments by best fit with splitting; blocks never move between
// pools. Unless threads cache blocks, it is deterministic: the same requests on the same layout
// return the same addresses.
//
// A call that throws leaves the live blocks as they were. The segments are also unchanged, except
// free ends of a pool that grows in place, and segments that the source asked this pool to give
// back.
//
// Thread safety: all functions may be called from any thread. One lock guards the pool. It is not
// held while the source allocates, resizes or frees segments: the source may ask other pools for
// their segments, or wait for a stream whose host functions free blocks. Threads that need new
// segments take turns.
class Pool final : public SegmentUser {
 public:
  // `source` must outlive the pool. Throws InvalidArgument if the options contradict each other.
  explicit Pool(SegmentSource& source, PoolOptions options = {});
  // Calls close().
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  const PoolOptions& options() const { return options_; }

  // Returns a block of `bytes`, rounded up to and aligned to 512 bytes. Throws InvalidArgument for
  // 0 bytes, OutOfMemory with a MemoryReport if the source refuses a segment, and other exceptions
  // of the source.
  void* allocate(std::size_t bytes);

  // Throws InvalidArgument unless `address` was returned by allocate() and not freed since; the
  // message says whether it is null, foreign, inside a block or already free. Nothing has changed
  // then.
  void free(void* address);

  // Throws as free() does, and changes nothing: for addresses that are used or freed later.
  void expect_live(void* address) const;

  PoolCheckpoint checkpoint() const;

  // Makes exactly the blocks of the checkpoint live. Segments newer than the checkpoint stay,
  // wholly free. Throws InvalidArgument if a segment has been given back since, if the checkpoint
  // belongs to another pool, and unless `dying` lists, in any order, exactly the blocks that are
  // live now and not in the checkpoint. Nothing has changed then.
  PoolDelta restore(const PoolCheckpoint& checkpoint, std::span<void* const> dying);
  // The same for a caller that does not use any block that may end.
  PoolDelta restore(const PoolCheckpoint& checkpoint, AllMayDie);

  // Makes exactly the ranges `live` live (each rounded up to 512 bytes). Throws InvalidArgument if
  // one is empty, unaligned or not inside one segment, or two overlap; nothing has changed then.
  PoolDelta restore_live(std::span<const Range> live);

  // Sorted by address; rounded sizes.
  std::vector<Range> live() const;
  std::vector<Range> segments() const;

  // Returns true if the address lies in one of the segments, live or not.
  bool owns(const void* address) const;

  // Gives wholly free segments back and returns their bytes. Checkpoints that contain them cannot
  // be restored any more. A pool that grows in place also gives free ends back, but no memory of a
  // checkpoint.
  std::size_t trim();
  // The same, except for segments that contain one of `kept`, for example addresses in recordings.
  // Does not allocate host memory.
  std::size_t trim(std::span<const Range> kept) noexcept;

  // Gives back wholly free segments, and free ends of segments of a pool that grows in place,
  // unless a checkpoint contains them; returns their bytes.
  std::size_t give_back_unused() noexcept override;

  PoolUse use() const override;

  // Gives all segments back. Blocks that are still live are logged as an error. From then on the
  // pool is empty, and allocate(), free() and the restores throw InvalidArgument.
  void close() noexcept;

  PoolStatistics statistics() const;
  // The same number as in the statistics.
  std::size_t largest_free_block() const;

  // For the pool's caches: frees cached blocks, and subtracts them from the bytes that `flow`
  // counts as freed. Requires: the lock of their cache is held.
  void take_back(std::span<const CachedBlock> blocks, Flow& flow) noexcept;

  // Checks the invariants, and aborts at the first that is broken.
  void validate() const;

 private:
  // A Refusal says why there is no block, as far as known.
  struct Refusal;

  struct OpenGrowth;

  // A Turn holds the lock, and notes if it had to wait.
  class Turn {
   public:
    explicit Turn(Pool& pool) : pool_(pool) {
      if (!pool.mutex_.try_lock()) [[unlikely]] {
        pool.wait_for_turn();
      }
    }
    ~Turn() { pool_.mutex_.unlock(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Pool& pool_;
  };

  bool has_pages() const { return options_.growth == Growth::kInPages; }
  bool grows_in_place() const { return options_.growth == Growth::kInPlace || has_pages(); }
  void wait_for_turn() noexcept;
  template <bool kAnywhere = false>
  void* take(std::size_t requested, bool marks = false);
  bool has_caches() const { return has_caches_.load(std::memory_order_relaxed); }
  bool try_free_marked(void* address);
  [[noreturn]] void refuse_free(void* address) const;
  BlockMark mark_of(const Block& block) const;
  void empty_caches() const noexcept;
  void* allocate_slowly(std::size_t requested);
  void* grow(std::size_t requested, Refusal& refusal);
  void* serve_apart(std::size_t requested, Refusal& refusal);
  bool may_add_segment(const Refusal& refusal) const;
  void* try_growth(std::size_t requested, Refusal& refusal);
  std::size_t shrink() noexcept;
  void* try_mapping(std::size_t requested, Refusal& refusal);
  std::size_t growth_bytes(std::size_t bytes) const noexcept;
  void unmap_beyond_slack(std::size_t more) noexcept;
  std::size_t unmap(std::size_t enough) noexcept;
  void expect_restorable() const;
  bool begin_growth(OpenGrowth& open, std::size_t bytes);
  void* try_new_segment(std::size_t requested, Refusal& refusal);
  void* allocate_in_new_segment(std::size_t bytes, bool makes_room, std::size_t requested,
                                const Refusal& refusal);
  [[noreturn]] void refuse_address(const char* call, void* address) const;
  void expect_open() const;
  [[noreturn]] void refuse(std::size_t requested, const Refusal& refusal);
  PoolUse present_use(const PoolCaches::Held& held) const;
  PoolStatistics present_statistics(const PoolCaches::Held& held) const;
  void count_given_back(const Layout::SegmentMap& segments) noexcept;
  PoolDelta apply(Transition transition);
  void validate_marks(const PoolCaches::Held& held) const;

  SegmentSource& source_;
  const PoolOptions options_;
  const std::unique_ptr<PoolCaches> caches_;  // null if threads never cache
  std::atomic<bool> has_caches_{false};       // stays true
  Mutex<LockRank::kGrowth> growth_mutex_;     // held in calls of the source; taken before mutex_
  // Guards all below. Threads that wait for it read its cache line, which begins with it: members
  // above stay with their readers, and the line moves with the data that each section writes.
  alignas(64) mutable SpinMutex<LockRank::kPool> mutex_;
  mutable Layout layout_;    // checkpoint() caches the lists that it makes
  mutable Tallies tallies_;  // and counts them
  bool is_closed_ = false;   // then the layout is empty
  unsigned turns_waited_for_ = 0;
  // The layout knows the size of the first request of a marked block; this holds the difference to
  // the last request, for blocks that the pool has freed since.
  Flow flow_;
  std::condition_variable_any resized_;
};

}  // namespace cgtree
