// Verify: replays that are compared with an eager run of the same call (docs/verify.md).
#pragma once

#include <cstddef>

#include "cgtree/values/options.h"

namespace cgtree {

// The options of verify().
struct VerifyOptions {
  // Every n-th replay of each recording is verified: the step function also runs eagerly, on the
  // same inputs, and VerifyError is thrown if the results differ. 0: no replay, unless the
  // environment has CGTREE_VERIFY=n when the context is made. 0 costs nothing.
  std::size_t every = 0;
  // The number of the first replays of each recording that are verified besides, at growing
  // distances: the 1st, 2nd, 4th, 8th and so on. Later replays cost no more for it.
  std::size_t first = 0;
};

// Makes the extension that each context of //:cgtree has. The context throws InvalidArgument if
// CGTREE_VERIFY is not a number.
ExtensionFactory verify(VerifyOptions options = {});

}  // namespace cgtree
