// Allocates, resizes and frees the memory of one segment.
#include "allocator/pool/segment.h"

#include <algorithm>
#include <utility>

#include "allocator/pool/sizes.h"
#include "base/check.h"

namespace cgtree {
namespace {

// Makes the descriptor first, because nothing may throw once the memory is allocated.
std::shared_ptr<const Range> take(SegmentSource& source, std::size_t bytes, StreamId stream) {
  auto identity = std::make_shared<Range>();
  void* const memory = source.allocate(bytes, stream);
  CGTREE_CHECK(memory != nullptr);
  *identity = {reinterpret_cast<std::uintptr_t>(memory), bytes};
  CGTREE_CHECK(identity->address % kBlockAlignment == 0);
  return identity;
}

void* pointer_to(const Range& range) {
  return reinterpret_cast<void*>(range.address);
}

}  // namespace

Segment::Segment(SegmentSource& source, std::size_t bytes, StreamId stream)
    : source_(&source),
      stream_(stream),
      identity_(take(source, bytes, stream)),
      range_(*identity_) {
}

Segment::~Segment() {
  if (identity_) source_->free(pointer_to(range_), range_.bytes, stream_);
}

Segment::Segment(Segment&& other) noexcept
    : first(other.first),
      is_small(other.is_small),
      is_growing(other.is_growing),
      number(other.number),
      source_(other.source_),
      stream_(other.stream_),
      identity_(std::move(other.identity_)),
      range_(other.range_),
      frozen_(std::move(other.frozen_)),
      extents_(std::move(other.extents_)) {
}

std::shared_ptr<const SegmentExtent> Segment::extent() {
  for (const auto& extent : extents_) {
    if (extent->range == range_) return extent;
  }
  std::erase_if(extents_, [](const auto& extent) { return extent.use_count() == 1; });
  extents_.push_back(std::make_shared<const SegmentExtent>(SegmentExtent{identity_, range_}));
  return extents_.back();
}

std::size_t Segment::pinned_bytes() const noexcept {
  std::size_t most = 0;
  for (const auto& extent : extents_) {
    if (extent.use_count() > 1) most = std::max(most, extent->range.bytes);
  }
  return most;
}

bool Segment::grow(std::size_t grown) {
  return source_->grow(pointer_to(range_), range_.bytes, grown, stream_);
}

void Segment::shrink(std::size_t least) noexcept {
  const std::size_t stays = source_->shrink(pointer_to(range_), range_.bytes, least, stream_);
  CGTREE_CHECK(least <= stays && stays <= range_.bytes && stays % kBlockAlignment == 0);
  range_.bytes = stays;
}

}  // namespace cgtree
