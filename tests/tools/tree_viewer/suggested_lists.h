// Results of suggest_buckets() for random histograms, with which the viewer's are compared.
#pragma once

#include <string>

namespace cgtree::testing {

// Returns JSON: a list of objects with "histogram" (pairs of size and count), "max_buckets",
// "list".
std::string suggested_lists(unsigned seed);

}  // namespace cgtree::testing
