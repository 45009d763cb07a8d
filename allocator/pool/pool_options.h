// PoolOptions: the name of a pool, how much it may reserve and how it grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "allocator/segments/stream_events.h"

namespace cgtree {

// Growth says how a pool gets segments; docs/decisions/0004-compact-growth.md has measurements.
enum class Growth {
  // Segments have PyTorch's sizes, and only trim() gives them back: every free address can be used
  // again, as recordings need it.
  kFast,
  // Segments are smaller. Before the pool reserves more than ever, or is refused, it gives back
  // wholly free segments that no checkpoint has, the largest first. Not for a pool whose free
  // addresses are still used, nor while the source cannot free.
  kCompact,
  // One segment grows at its end by what is missing, in steps of 2 MiB, and is given back from its
  // end; another one is made only if the source cannot make it larger. For sources that map memory
  // behind addresses they have reserved. trim() leaves what a checkpoint has.
  kInPlace,
};

struct PoolOptions {
  std::string name = "pool";         // for messages
  std::size_t max_bytes = SIZE_MAX;  // the limit of reserved bytes (segments, used or not)
  Growth growth = Growth::kFast;
  // If false, a block is a whole segment, as large as the request that the segment was made for.
  // Cannot be combined with kInPlace.
  bool splits = true;
  StreamId stream = 0;  // the stream on which the blocks are used; passed to the source
};

}  // namespace cgtree
