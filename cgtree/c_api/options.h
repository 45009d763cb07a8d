// choice_of_c(): a number of C's as one of an enumeration.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "cgtree/c_api.h"
#include "cgtree/options.h"

namespace cgtree::capi {

// Both enumerations count from 0; `last` is the last of ours, `name` what C calls it. Throws
// InvalidArgument.
template <typename Enum>
Enum choice_of_c(std::int32_t choice, Enum last, std::string_view name, std::string_view what) {
  if (choice >= 0 && choice <= static_cast<std::int32_t>(last)) return static_cast<Enum>(choice);
  throw InvalidArgument(fmt::format("{} is {}: expected 0 to {} ({})", what, choice,
                                    static_cast<std::int32_t>(last), name));
}

static_assert(CGT_REFUSE == static_cast<int>(AtLimit::kThrow) &&
              CGT_EVICT == static_cast<int>(AtLimit::kEvict));

inline AtLimit at_limit_of_c(cgt_at_limit at_limit) {
  return choice_of_c(at_limit, AtLimit::kThrow, "CGT_REFUSE", "at_limit");
}

}  // namespace cgtree::capi
