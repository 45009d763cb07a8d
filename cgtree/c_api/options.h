// at_limit_of_c(): what both kinds of options have.
#pragma once

#include <fmt/format.h>

#include "base/error.h"
#include "cgtree/c_api.h"
#include "cgtree/options.h"

namespace cgtree::capi {

inline AtLimit at_limit_of_c(cgt_at_limit at_limit) {
  switch (at_limit) {
    case CGT_RUN_EAGERLY:
      return AtLimit::kRunEagerly;
    case CGT_EVICT:
      return AtLimit::kEvict;
    case CGT_REFUSE:
      return AtLimit::kThrow;
    default:
      throw InvalidArgument(
          fmt::format("at_limit is {}: expected 0 (CGT_RUN_EAGERLY) to 2 (CGT_REFUSE)", at_limit));
  }
}

}  // namespace cgtree::capi
