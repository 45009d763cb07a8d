// What a pool is called and how much it may reserve.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "allocator/segments/stream_id.h"

namespace cgtree {

// How a pool gets segments; docs/decisions/0004-compact-growth.md has the measurements.
enum class Growth {
  // PyTorch's segment sizes, and nothing is given back but by trim(): every free address can come
  // back, as recordings need it.
  kFast,
  // Smaller segments; and before the pool reserves more than ever, or is refused, it gives back
  // wholly free segments that no checkpoint has, the largest first. Not for a pool whose free
  // addresses somebody still counts on, nor while the source cannot free.
  kCompact,
  // One segment that grows at its end by what is missing, in steps of 2 MiB, and is given back from
  // its end; another one only where the source cannot make it larger. For sources that map memory
  // behind addresses they have reserved. trim() leaves what a checkpoint has.
  kInPlace,
};

struct PoolOptions {
  std::string name = "pool";         // for messages
  std::size_t max_bytes = SIZE_MAX;  // reserved bytes (segments, used or not) at most
  Growth growth = Growth::kFast;
  // False: a block is a whole segment, as large as the request that it was for first. Not with
  // kInPlace.
  bool splits = true;
  // give_back_unused() gives nothing back: somebody counts on free addresses without a checkpoint,
  // as recordings do.
  bool keeps_segments = false;
  StreamId stream = 0;  // where its blocks are used, told to the source
};

}  // namespace cgtree
