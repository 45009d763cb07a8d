// Takes the memory of one segment and gives it back.
#include "allocator/segment.h"

#include <utility>

#include "allocator/sizes.h"
#include "base/check.h"

namespace cgtree {
namespace {

// The descriptor is made first: nothing may throw once the memory is taken.
std::shared_ptr<const Range> take(SegmentSource& source, std::size_t bytes, StreamId stream) {
  auto identity = std::make_shared<Range>();
  void* const memory = source.allocate(bytes, stream);
  CGTREE_CHECK(memory != nullptr);
  *identity = {reinterpret_cast<std::uintptr_t>(memory), bytes};
  CGTREE_CHECK(identity->address % kBlockAlignment == 0);
  return identity;
}

}  // namespace

Segment::Segment(SegmentSource& source, std::size_t bytes, StreamId stream)
    : source_(&source), stream_(stream), identity_(take(source, bytes, stream)) {
}

Segment::~Segment() {
  if (identity_) source_->free(reinterpret_cast<void*>(range().address), range().bytes, stream_);
}

Segment::Segment(Segment&& other) noexcept
    : first(other.first),
      source_(other.source_),
      stream_(other.stream_),
      identity_(std::move(other.identity_)),
      frozen_(std::move(other.frozen_)) {
}

}  // namespace cgtree
