// Makes random histograms, and asks suggest_buckets() for the lists.
#include "tests/tools/tree_viewer/suggested_lists.h"

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "extensions/sizes/suggest_buckets.h"

namespace cgtree::testing {

std::string suggested_lists(unsigned seed) {
  std::mt19937 random(seed);
  nlohmann::json cases = nlohmann::json::array();
  for (int i = 0; i < 300; ++i) {
    const unsigned largest = 1 + random() % (i % 3 == 0 ? 12 : 3000);
    std::map<std::int64_t, std::uint64_t> counts;
    for (unsigned size = 1 + random() % 40; size > 0; --size)
      counts[1 + random() % largest] = random() % (i % 2 == 0 ? 4 : 5000);
    const std::size_t most = 1 + random() % 12;
    nlohmann::json pairs = nlohmann::json::array();
    for (const auto& [size, count] : counts)
      pairs.push_back({size, count});
    cases.push_back(
        {{"histogram", pairs}, {"max_buckets", most}, {"list", suggest_buckets(counts, most)}});
  }
  return cases.dump();
}

}  // namespace cgtree::testing
