// Everything some pools hold, as a value, as JSON, and as the pickle that PyTorch's viewer opens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "allocator/reports/memory_trace.h"
#include "allocator/pool/pool.h"
#include "allocator/pool/pool_label.h"

namespace cgtree {

struct SnapshotBlock {
  std::uintptr_t address = 0;
  std::size_t size = 0;
  std::size_t requested_size = 0;  // 0: free
};

// Sizes in bytes. Invariants: the blocks tile the segment; active_size is the sum of the live ones.
struct SnapshotSegment {
  PoolLabel pool;
  std::uintptr_t address = 0;
  std::size_t total_size = 0;
  std::size_t active_size = 0;     // in live blocks
  std::size_t requested_size = 0;  // asked for in them
  StreamId stream = 0;
  bool is_small = false;  // of the size that small requests get
  bool is_expandable = false;
  std::vector<SnapshotBlock> blocks;
};

struct MemorySnapshot {
  std::vector<SnapshotSegment> segments;  // by pool, in order of address
  std::vector<TraceEvent> trace;          // the oldest first
};

struct PoolToSnapshot {
  const Pool* pool;
  PoolLabel label;
  bool is_expandable = false;  // whether its source grows segments
};

// Each pool as it is at one moment, but not all at the same. `trace` may be null. Throws
// InvalidArgument for a pool that is null or given twice, a label used twice, and a device < 0.
//
// Threads: any.
MemorySnapshot take_snapshot(std::span<const PoolToSnapshot> pools,
                             const MemoryTrace* trace = nullptr);

// The keys are those of torch.cuda.memory._snapshot(): segments, device_traces (one list for each
// device), allocator_settings, external_annotations. Pool ids, pairs there, are (id, 0); stacks
// ("frames") are empty.
std::string to_json(const MemorySnapshot& snapshot);

// The same as a pickle of protocol 2: open it at https://pytorch.org/memory_viz.
std::string to_pickle(const MemorySnapshot& snapshot);

}  // namespace cgtree
