// Where a pool's segments come from: a device, a cache of segments, a test.
#pragma once

#include <cstddef>

namespace cgtree {

// A pool may be used from any thread, and so must its source.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;

  // `bytes` of memory at a multiple of kBlockAlignment (sizes.h). Throws OutOfMemory when there is
  // no room, another Error when the device fails; never returns null.
  virtual void* allocate(std::size_t bytes) = 0;

  // `segment` is what allocate() returned, `bytes` what it was asked for.
  virtual void free(void* segment, std::size_t bytes) noexcept = 0;
};

}  // namespace cgtree
