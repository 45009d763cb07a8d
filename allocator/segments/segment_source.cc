// What a source does that cannot grow segments and asks nobody.
#include "allocator/segments/segment_source.h"

namespace cgtree {

bool SegmentSource::grow(void*, std::size_t, std::size_t, StreamId) {
  return false;
}

std::size_t SegmentSource::shrink(void*, std::size_t bytes, std::size_t, StreamId) noexcept {
  return bytes;
}

void SegmentSource::attach(SegmentUser&) {
}

void SegmentSource::detach(SegmentUser&) noexcept {
}

}  // namespace cgtree
