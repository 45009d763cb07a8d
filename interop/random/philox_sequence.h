// PhiloxSequence: the position that all handles of a generator share.
//
// Seed and offset are taken and set together, so ranges never overlap whatever threads do. That
// takes a lock of two atomic operations, of which a bare counter would need one.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "base/spinning_mutex.h"
#include "interop/random/philox.h"

namespace cgtree {

class PhiloxSequence {
 public:
  explicit PhiloxSequence(const PhiloxPosition& position) noexcept : position_(position) {}

  PhiloxPosition position() const noexcept {
    const std::lock_guard lock(mutex_);
    return position_;
  }
  // Moves on by `blocks`; answers where they begin.
  PhiloxPosition take(std::uint64_t blocks) noexcept {
    const std::lock_guard lock(mutex_);
    const PhiloxPosition first = position_;
    position_.offset += blocks;
    return first;
  }
  // Answers where it was.
  PhiloxPosition set(const PhiloxPosition& position) noexcept {
    const std::lock_guard lock(mutex_);
    const PhiloxPosition before = position_;
    position_ = position;
    return before;
  }
  // Goes back from `now` to `before`, unless someone has moved it since.
  void give_back(const PhiloxPosition& now, const PhiloxPosition& before) noexcept {
    const std::lock_guard lock(mutex_);
    if (position_ == now) position_ = before;
  }

 private:
  mutable SpinningMutex mutex_;
  PhiloxPosition position_;  // guarded by mutex_
};

using PhiloxSequenceRef = std::shared_ptr<PhiloxSequence>;

}  // namespace cgtree
