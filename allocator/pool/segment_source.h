// SegmentSource: the source of a pool's segments. SegmentUser: a holder of segments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"

namespace cgtree {

// A StreamId is the allocator's name of a stream: on a device, the stream's identity
// (interop/device/stream_identity.h), which also determines its device. It is not a handle: no
// later stream gets the id of an ended one.
using StreamId = std::uintptr_t;

// kIdle replaces a stream if all work that uses the memory has ended.
inline constexpr StreamId kIdle = ~StreamId{0};

// A SegmentUser holds segments of a source, and gives unused ones back on request.
//
// Thread safety: all functions may be called from any thread; the source calls them without its
// locks.
class SegmentUser {
 public:
  // Gives back the segments that hold no live block and that no checkpoint has; returns their
  // bytes.
  virtual std::size_t give_back_unused() noexcept = 0;

  // Returns the memory that the user holds, for error messages.
  virtual PoolUse use() const = 0;

 protected:
  ~SegmentUser() = default;
};

// A SegmentSource allocates segments: a device, a cache of segments, or a test.
//
// Thread safety: all functions may be called from any thread.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;

  // Returns `bytes` of memory, aligned to kBlockAlignment (pool/block.h), whose next use is on
  // `stream`. Never returns null. Throws OutOfMemory if there is no room, and another Error if the
  // device fails.
  virtual void* allocate(std::size_t bytes, StreamId stream) = 0;

  // The same without making room: throws OutOfMemory if allocate() would ask for memory of others.
  virtual void* allocate_from_free(std::size_t bytes, StreamId stream) {
    return allocate(bytes, stream);
  }

  // Frees a segment from allocate(). `bytes` is its present size; `stream` is its last stream,
  // whose work may still be running. Requires: the stream exists, or is kIdle.
  virtual void free(void* segment, std::size_t bytes, StreamId stream) noexcept = 0;

  // Makes a segment of `bytes` one of `grown` bytes at the same address. Returns false if segments
  // do not grow or there is no room behind this one. Throws as allocate() does. Nothing has changed
  // if it returns false or throws.
  virtual bool grow(void* /*segment*/, std::size_t /*bytes*/, std::size_t /*grown*/,
                    StreamId /*stream*/) {
    return false;
  }

  // Gives the end of a segment back, so that about `least` bytes stay; returns how many stay. A
  // source whose segments do not shrink returns `bytes`.
  virtual std::size_t shrink(void* /*segment*/, std::size_t bytes, std::size_t /*least*/,
                             StreamId /*stream*/) noexcept {
    return bytes;
  }

  // The next two map memory at a part of a segment of `bytes` that has none, and give such memory
  // back. Both take whole pages of a pool (pool/page_map.h) that contain nothing else live. map()
  // throws as allocate() does, and nothing has changed then. unmap() returns false if nothing has
  // changed; a source without pages does so.
  virtual void map(void* /*segment*/, std::size_t /*bytes*/, std::size_t /*offset*/,
                   std::size_t /*count*/, StreamId /*stream*/) {
    throw InvalidArgument("the source of these segments does not map pages");
  }
  virtual bool unmap(void* /*segment*/, std::size_t /*bytes*/, std::size_t /*offset*/,
                     std::size_t /*count*/, StreamId /*stream*/) noexcept {
    return false;
  }

  // The next two begin and end a period in which the source may call `user` when memory is short.
  virtual void attach(SegmentUser& /*user*/) {}
  virtual void detach(SegmentUser& /*user*/) noexcept {}
};

}  // namespace cgtree
