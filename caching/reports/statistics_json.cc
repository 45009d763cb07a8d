// Writes statistics of pools as JSON.
#include "caching/reports/statistics_json.h"

#include <nlohmann/json.hpp>

namespace cgtree {

std::string to_json(const PoolStatistics& statistics) {
  nlohmann::ordered_json json;
#define CGTREE_WRITE(name)                                 \
  json[#name] = {{"current", statistics.name.current},     \
                 {"peak", statistics.name.peak},           \
                 {"allocated", statistics.name.allocated}, \
                 {"freed", statistics.name.freed}};
  CGTREE_POOL_COUNTERS(CGTREE_WRITE)
#undef CGTREE_WRITE
#define CGTREE_WRITE(name) json[#name] = statistics.name;
  CGTREE_POOL_EVENTS(CGTREE_WRITE)
#undef CGTREE_WRITE
  json["largest_free_block"] = statistics.largest_free_block;
  return json.dump();
}

}  // namespace cgtree
