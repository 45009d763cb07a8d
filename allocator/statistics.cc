// Counts, resets and writes pool statistics.
#include "allocator/statistics.h"

#include <nlohmann/json.hpp>

namespace cgtree {

void PoolStatistics::reset_peaks() {
#define CGTREE_RESET(name) name.peak = name.current;
  CGTREE_POOL_COUNTERS(CGTREE_RESET)
#undef CGTREE_RESET
}

void PoolStatistics::reset_totals() {
#define CGTREE_RESET(name)       \
  name.allocated = name.current; \
  name.freed = 0;
  CGTREE_POOL_COUNTERS(CGTREE_RESET)
#undef CGTREE_RESET
#define CGTREE_RESET(name) name = 0;
  CGTREE_POOL_EVENTS(CGTREE_RESET)
#undef CGTREE_RESET
}

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
