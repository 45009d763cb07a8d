// What a source of segments may ask of those it has given some to.
#pragma once

#include <cstddef>

#include "base/error.h"

namespace cgtree {

// Threads: any; called with no lock of the source held.
class SegmentUser {
 public:
  // Gives back the segments that hold no live block and that no checkpoint has; returns their
  // bytes.
  virtual std::size_t give_back_unused() noexcept = 0;

  virtual PoolUse use() const = 0;

 protected:
  ~SegmentUser() = default;
};

}  // namespace cgtree
