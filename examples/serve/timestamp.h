// Timestamps of a trace, e.g. `2023-11-16 18:15:46.6805900`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cgtree::serve {

struct ParsedTimestamp {
  std::int64_t nanoseconds = 0;  // since 1970-01-01
  std::string error;             // empty if it parsed
  std::size_t error_offset = 0;  // bytes before the first character that does not fit
};

// Date, blank or `T`, time, up to nine decimals of a second, and `Z`, an offset or nothing at the
// end. Years 1970 to 2200.
ParsedTimestamp parse_timestamp(std::string_view text);

}  // namespace cgtree::serve
