// Reserves, then asks upstream.
#include "allocator/segments/limited_source.h"

#include <fmt/format.h>

#include "allocator/segments/segment_user.h"
#include "base/error.h"

namespace cgtree {

void LimitedSource::reserve(std::size_t bytes) {
  const Budget* refused = budget_.try_reserve(bytes);
  if (refused == nullptr) return;
  users_.call_until([&](SegmentUser* user) {
    if (user->give_back_unused() > 0) refused = budget_.try_reserve(bytes);
    return refused == nullptr;
  });
  if (refused != nullptr && pressure_ && pressure_(bytes) > 0) refused = budget_.try_reserve(bytes);
  if (refused == nullptr) return;
  MemoryReport report{.requested = bytes};
  users_.call_until([&](SegmentUser* user) {
    report.pools.push_back(user->use());
    return false;
  });
  throw OutOfMemory(
      fmt::format("{} bytes more would exceed the budget '{}' of {} bytes, of which {} are in use",
                  bytes, refused->name(), refused->max_bytes(), refused->current()),
      std::move(report));
}

void* LimitedSource::allocate(std::size_t bytes, StreamId stream) {
  reserve(bytes);
  try {
    return upstream_.allocate(bytes, stream);
  } catch (...) {
    budget_.release(bytes);
    throw;
  }
}

bool LimitedSource::grow(void* segment, std::size_t bytes, std::size_t grown, StreamId stream) {
  reserve(grown - bytes);
  try {
    if (upstream_.grow(segment, bytes, grown, stream)) return true;
  } catch (...) {
    budget_.release(grown - bytes);
    throw;
  }
  budget_.release(grown - bytes);
  return false;
}

void LimitedSource::free(void* segment, std::size_t bytes, StreamId stream) noexcept {
  upstream_.free(segment, bytes, stream);
  budget_.release(bytes);
}

std::size_t LimitedSource::shrink(void* segment, std::size_t bytes, std::size_t least,
                                  StreamId stream) noexcept {
  const std::size_t left = upstream_.shrink(segment, bytes, least, stream);
  budget_.release(bytes - left);
  return left;
}

void LimitedSource::attach(SegmentUser& user) {
  upstream_.attach(user);
  try {
    users_.attach(user);
  } catch (...) {
    upstream_.detach(user);
    throw;
  }
}

void LimitedSource::detach(SegmentUser& user) noexcept {
  upstream_.detach(user);
  users_.detach(user);
}

}  // namespace cgtree
