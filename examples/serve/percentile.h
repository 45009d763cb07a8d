// Percentiles of a list of measurements.
#pragma once

#include <vector>

namespace cgtree::serve {

// The smallest value that at least `percent` in a hundred values do not exceed (nearest rank);
// 0 for an empty list. Requires 0 < percent <= 100.
double percentile(std::vector<double> values, double percent);

}  // namespace cgtree::serve
