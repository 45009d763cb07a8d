// Sends the number of words, and then the words.
#include "extensions/ranks/block_group.h"

#include <algorithm>
#include <exception>
#include <new>
#include <vector>

#include "base/error.h"
#include "base/format.h"

namespace cgtree {

// The number of words goes first, with its complement: the two minima fit together only if all
// ranks give the same number.
void BlockGroup::minimum(std::span<std::uint64_t> words) {
  if (has_failed_) throw GroupError(failure_);
  try {
    std::vector<std::uint64_t> least;
    std::size_t first = 2;
    Block block = {words.size(), ~std::uint64_t{words.size()}};
    do {
      const std::size_t count = std::min(words.size() - least.size(), kBlockWords - first);
      const auto begin = block.begin() + static_cast<std::ptrdiff_t>(first);
      const auto next = words.begin() + static_cast<std::ptrdiff_t>(least.size());
      std::fill(std::copy_n(next, count, begin), block.end(), 0);
      exchange_(block);
      if (first == 2 && block[0] != ~block[1]) {
        throw GroupError(str_format(
            "rank {} of {} gives {} words, the ranks give {} to {}: they do not do the same",
            rank(), size(), words.size(), block[0], ~block[1]));
      }
      least.insert(least.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
      first = 0;
    } while (least.size() < words.size());
    std::copy(least.begin(), least.end(), words.begin());
  } catch (const Error& error) {
    fail(error.message());
    throw;
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  } catch (...) {
    fail("an exception of unknown type");
    throw;
  }
}

// The other ranks may be ahead, and would take another vote for the next one.
void BlockGroup::fail(std::string_view why) noexcept {
  has_failed_ = true;
  try {
    failure_ = why;
  } catch (const std::bad_alloc&) {  // it fails without saying why
  }
}

}  // namespace cgtree
