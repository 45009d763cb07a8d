// What suggest_buckets() returns for random histograms, for the viewer to be compared with.
#pragma once

#include <string>

namespace cgtree::testing {

// Returns JSON: a list of objects with "histogram" (pairs of size and count), "max_buckets",
// "list".
std::string suggested_lists(unsigned seed);

}  // namespace cgtree::testing
