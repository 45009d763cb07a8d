// Gives unused segments back to the cache.
#include "allocator/device/pool_segments.h"

namespace cgtree {

void PoolSegments::set_stream(StreamId stream) {
  stream_ = stream;
  cache_.progress().begin(stream);
}

void PoolSegments::attach(SegmentUser& user) {
  user_ = &user;
  cache_.attach_for(account_, *this);
}

std::size_t PoolSegments::give_back_unused() noexcept {
  if (keeps_) return 0;
  if (before_) before_();
  return user_->give_back_unused();
}

}  // namespace cgtree
