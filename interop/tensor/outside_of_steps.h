// OutsideOfSteps: memory of the library's own objects that outlive the step in which they are made.
#pragma once

#include "base/frame.h"

namespace cgtree {

// While an OutsideOfSteps lives, memory that its thread allocates does not belong to an open step:
// it stays when the step fails, and no recording writes to it. A device must be named.
//
//   const OutsideOfSteps outside;
//   state_ = empty({64}, DType::kUInt8, device);  // lives as long as its handles
class OutsideOfSteps {
  const FrameScope<&Frame::allocator> scope_{nullptr};
};

}  // namespace cgtree
