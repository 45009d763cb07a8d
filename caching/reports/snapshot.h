// MemorySnapshot: what some pools hold, as a value, as JSON, and as the pickle that PyTorch's
// viewer opens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "allocator/pool/pool.h"
#include "caching/reports/memory_trace.h"

namespace cgtree {

struct SnapshotBlock {
  std::uintptr_t address = 0;
  std::size_t size = 0;
  std::size_t requested_size = 0;  // 0 if the block is free
};

// Sizes are in bytes. Invariants: the blocks tile the segment; active_size is the sum of the live
// ones.
struct SnapshotSegment {
  PoolLabel pool;
  std::uintptr_t address = 0;
  std::size_t total_size = 0;
  std::size_t active_size = 0;     // in live blocks
  std::size_t requested_size = 0;  // asked for in them
  StreamId stream = 0;
  bool is_small = false;  // has the size that small requests get
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

// Returns each pool as it is at one moment, but not all pools at the same moment. `trace` may be
// null. Throws InvalidArgument for a pool that is null or given twice, a label used twice, and a
// device < 0.
//
// Thread safety: may be called from any thread.
MemorySnapshot take_snapshot(std::span<const PoolToSnapshot> pools,
                             const MemoryTrace* trace = nullptr);

// Returns JSON with the keys of torch.cuda.memory._snapshot(): segments, device_traces (one list
// for each device), allocator_settings, external_annotations. Pool ids, which are pairs there, are
// (id, 0), and stacks ("frames") are empty.
std::string to_json(const MemorySnapshot& snapshot);

// Returns the same as a pickle of protocol 2, which https://pytorch.org/memory_viz opens.
std::string to_pickle(const MemorySnapshot& snapshot);

}  // namespace cgtree
