// The exchanges of a group, built on minimum().
#include "cgtree/values/group.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/format.h"

namespace cgtree {

bool agree(Group& group, bool mine) {
  std::uint64_t word = mine ? 1 : 0;
  group.minimum({&word, 1});
  return word == 1;
}

// The largest size has the smallest complement; that of a negative size is smaller still.
std::int64_t agree_size(Group& group, std::int64_t size) {
  std::uint64_t word = ~static_cast<std::uint64_t>(size);
  group.minimum({&word, 1});
  const auto largest = static_cast<std::int64_t>(~word);
  if (largest >= 0) return largest;
  throw InvalidArgument(
      str_format("agree_size(): rank {} gives {}, and a rank gives {}: expected 0 or more",
                 group.rank(), size, largest));
}

std::vector<std::uint64_t> gather(Group& group, std::span<const std::uint64_t> mine) {
  const auto rank = static_cast<std::size_t>(group.rank());
  std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size()) * mine.size(),
                                 std::numeric_limits<std::uint64_t>::max());
  std::copy(mine.begin(), mine.end(),
            all.begin() + static_cast<std::ptrdiff_t>(rank * mine.size()));
  group.minimum(all);
  return all;
}

}  // namespace cgtree
