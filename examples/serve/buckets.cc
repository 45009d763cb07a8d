// Powers of two up to the largest batch.
#include "examples/serve/buckets.h"

#include <algorithm>

#include "base/check.h"

namespace cgtree::serve {

std::vector<int> make_buckets(int max_batch) {
  CGTREE_CHECK(max_batch >= 1);
  std::vector<int> buckets;
  for (int size = 1; size < max_batch; size *= 2)
    buckets.push_back(size);
  buckets.push_back(max_batch);
  return buckets;
}

std::size_t find_bucket(const std::vector<int>& buckets, int rows) {
  CGTREE_CHECK(rows >= 1 && rows <= buckets.back());
  return static_cast<std::size_t>(std::lower_bound(buckets.begin(), buckets.end(), rows) -
                                  buckets.begin());
}

}  // namespace cgtree::serve
