// A user of segments that releases its unused segments on demand.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "allocator/pool/block.h"
#include "allocator/pool/segment_source.h"

namespace cgtree {

// Is attached to its source for its lifetime.
class FakeUser final : public SegmentUser {
 public:
  explicit FakeUser(SegmentSource& source, StreamId stream = 1, std::string name = "fake")
      : source_(source), stream_(stream), name_(std::move(name)) {
    source_.attach(*this);
  }
  ~FakeUser() {
    source_.detach(*this);
    give_back_unused();
  }

  // Allocates a segment that give_back_unused() may free.
  void hold_unused(std::size_t bytes) {
    unused_.push_back({reinterpret_cast<std::uintptr_t>(source_.allocate(bytes, stream_)), bytes});
  }

  std::size_t give_back_unused() noexcept override {
    if (before_giving) before_giving();
    std::size_t bytes = 0;
    for (const Range& segment : unused_) {
      source_.free(reinterpret_cast<void*>(segment.address), segment.bytes, stream_);
      bytes += segment.bytes;
    }
    unused_.clear();
    return bytes;
  }

  PoolUse use() const override {
    PoolUse use{.name = name_};
    for (const Range& segment : unused_)
      use.reserved += segment.bytes;
    return use;
  }

  std::function<void()> before_giving;

 private:
  SegmentSource& source_;
  const StreamId stream_;
  const std::string name_;
  std::vector<Range> unused_;
};

}  // namespace cgtree
