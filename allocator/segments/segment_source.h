// Where a pool's segments come from: a device, a cache of segments, a test.
#pragma once

#include <cstddef>

#include "allocator/segments/stream_id.h"

namespace cgtree {

class SegmentUser;

// A pool may be used from any thread, and so must its source.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;

  // `bytes` of memory at a multiple of kBlockAlignment (sizes.h), whose next use is on `stream`.
  // Throws OutOfMemory when there is no room, another Error when the device fails; never returns
  // null.
  virtual void* allocate(std::size_t bytes, StreamId stream) = 0;

  // `segment` is what allocate() returned, `bytes` its present size, `stream` where it was used
  // last: work there may still be on its way. The stream exists, or is kIdle.
  virtual void free(void* segment, std::size_t bytes, StreamId stream) noexcept = 0;

  // Makes a segment of `bytes` one of `grown` bytes at the same address. False where segments do
  // not grow, or there is no room behind this one; throws as allocate() does. Nothing has changed
  // then.
  virtual bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId stream);

  // Gives the end of a segment back so that about `least` bytes stay; returns how many do. Where
  // segments do not shrink, all.
  virtual std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                             StreamId stream) noexcept;

  // From attach() to detach(), `user` may be asked to give back what it does not need.
  virtual void attach(SegmentUser& user);
  virtual void detach(SegmentUser& user) noexcept;
};

}  // namespace cgtree
