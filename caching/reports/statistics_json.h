// Statistics of pools as JSON.
#pragma once

#include <string>

#include "allocator/pool/statistics.h"

namespace cgtree {

// Returns a JSON object: {"allocated_bytes": {"current": ..., "peak": ..., ...}, ..., "num_ooms":
// ...}.
std::string to_json(const PoolStatistics& statistics);

}  // namespace cgtree
