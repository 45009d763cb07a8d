// Statistics of pools as JSON.
#pragma once

#include <string>

#include "allocator/pool/statistics.h"

namespace cgtree {

// Returns a JSON object: {"allocated_bytes": {"current": ..., "peak": ..., ...}, ..., "num_ooms":
// ...}.
std::string to_json(const PoolStatistics& statistics);

// Returns a JSON object under the names of torch.cuda.memory_stats():
// {"allocated_bytes.all.current": ..., ...}. `inactive_split` and `inactive_split_bytes` have only
// `current`, because PyTorch's other values would have to be counted at every allocation. Beside
// PyTorch's names there are those of checkpoints, and
//   fragmentation = 1 - largest_free_block / free bytes, 0 without any
//   utilization   = peak of live bytes / peak of reserved bytes, 0 without any
std::string to_flat_json(const PoolStatistics& statistics, const PoolGauges& gauges);

}  // namespace cgtree
