// What a pool counts, as tests ask for it.
#pragma once

#include <string>

#include "allocator/pool/pool.h"
#include "caching/reports/statistics_json.h"

namespace cgtree {

inline PoolGauges gauges_of(const Pool& pool) {
  PoolGauges gauges;
  (void)pool.statistics(&gauges);
  return gauges;
}

inline std::string flat_json(const Pool& pool) {
  PoolGauges gauges;
  const PoolStatistics statistics = pool.statistics(&gauges);
  return to_flat_json(statistics, gauges);
}

}  // namespace cgtree
