// A pool: segments with one lifetime, cut into blocks, whose layout can be taken and restored.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/layout.h"
#include "allocator/pool_checkpoint.h"
#include "allocator/pool_delta.h"
#include "allocator/pool_observer.h"
#include "allocator/pool_options.h"
#include "allocator/range.h"
#include "allocator/segment_source.h"
#include "allocator/statistics.h"

namespace cgtree {

// Best fit with splitting; blocks never move between pools. Deterministic: the same requests on the
// same layout return the same addresses.
//
// Every call that throws leaves the layout as it was, but for wholly free segments of a pool of
// compact growth.
//
// Threads: every function may be called from any thread; one lock guards the pool, and is held
// while the source is asked for a segment.
class Pool {
 public:
  // `source` must outlive the pool.
  explicit Pool(SegmentSource& source, PoolOptions options = {});
  // Gives all segments back. Blocks still live are logged as an error.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  const PoolOptions& options() const { return options_; }

  // `bytes`, rounded up to and aligned to 512. Throws InvalidArgument for 0 bytes, OutOfMemory
  // when the source or `max_bytes` refuses a segment, and what else the source throws.
  void* allocate(std::size_t bytes);

  // Aborts unless `address` is what allocate() returned and not freed since: going on would hand
  // the same memory out twice.
  void free(void* address) noexcept;

  PoolCheckpoint checkpoint() const;

  // Every block allocated then is allocated again, all else is free. Segments newer than the
  // checkpoint stay, wholly free. Throws InvalidArgument when a segment has been given back since,
  // or the checkpoint is of another pool.
  PoolDelta restore(const PoolCheckpoint& checkpoint);

  // The layout in which exactly `live` is allocated (each rounded up to 512 bytes). Throws
  // InvalidArgument when one is empty, unaligned or not inside one segment, or two overlap.
  PoolDelta restore_live(std::span<const Range> live);

  // Sorted by address; rounded sizes.
  std::vector<Range> live() const;
  std::vector<Range> segments() const;

  // The blocks of each segment, live and free; both sorted by address.
  std::vector<BlockList> blocks() const;

  // Whether it lies in one of the segments, live or not.
  bool owns(const void* address) const;

  // Gives wholly free segments back and returns their bytes. Checkpoints that have them cannot be
  // restored any more.
  std::size_t trim();

  PoolStatistics statistics() const;
  void reset_peak_statistics();
  void reset_total_statistics();

  // Tells `observer` of every allocation and free from now on, those of restores too; null: nobody.
  // It must outlive the pool or the next set_observer().
  void set_observer(PoolObserver* observer) noexcept;

  // Walks the invariants and aborts at the first that does not hold.
  void validate() const;

 private:
  bool is_compact() const { return options_.growth == Growth::kCompact; }
  Range grow(std::size_t requested);
  Range allocate_in_new_segment(std::size_t bytes, std::size_t requested);
  std::optional<Range> try_new_segment(std::size_t requested, std::string& reason);
  std::size_t give_back_unpinned(std::size_t enough) noexcept;
  void count_given_back(const Layout::SegmentMap& segments) noexcept;
  PoolDelta apply(Transition transition);
  void tell(const Transition& transition) noexcept;

  SegmentSource& source_;
  const PoolOptions options_;
  mutable std::mutex mutex_;  // guards all below
  mutable Layout layout_;     // checkpoint() remembers the lists it has made
  PoolObserver* observer_ = nullptr;
  mutable PoolStatistics statistics_;  // largest_free_block is filled in when asked for
};

}  // namespace cgtree
