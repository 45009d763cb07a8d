// Nearest rank, by partial sorting.
#include "examples/serve/percentile.h"

#include <algorithm>
#include <cmath>

namespace cgtree::serve {

double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  const double rank = std::ceil(percent / 100.0 * static_cast<double>(values.size()));
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace cgtree::serve
