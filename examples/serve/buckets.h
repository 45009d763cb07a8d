// Buckets: the batch sizes that steps are padded to, so that few shapes are ever seen.
#pragma once

#include <cstddef>
#include <vector>

namespace cgtree::serve {

// 1, 2, 4, ... and `max_batch` itself, ascending. Requires max_batch >= 1.
std::vector<int> make_buckets(int max_batch);

// Index of the smallest bucket that holds `rows`. Requires 1 <= rows <= buckets.back().
std::size_t find_bucket(const std::vector<int>& buckets, int rows);

}  // namespace cgtree::serve
