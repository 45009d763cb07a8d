// Makes one replay that reads the statistics after each step, then timed replays without.
#include "tools/trace_replay/replay.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "allocator/pool/pool.h"

namespace cgtree::tools {
namespace {

class CountingSource final : public SegmentSource {
 public:
  explicit CountingSource(SegmentSource& upstream) : upstream_(upstream) {}
  void* allocate(std::size_t bytes, StreamId stream) override {
    ++requests;
    return upstream_.allocate(bytes, stream);
  }
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override {
    upstream_.free(segment, bytes, stream);
  }
  bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId stream) override {
    ++requests;
    return upstream_.grow(segment, bytes, grown, stream);
  }
  std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                     StreamId stream) noexcept override {
    return upstream_.shrink(segment, bytes, least, stream);
  }
  void map(void* segment, std::size_t bytes, std::size_t offset, std::size_t count,
           StreamId stream) override {
    upstream_.map(segment, bytes, offset, count, stream);
  }
  bool unmap(void* segment, std::size_t bytes, std::size_t offset, std::size_t count,
             StreamId stream) noexcept override {
    ++unmaps;
    return upstream_.unmap(segment, bytes, offset, count, stream);
  }

  std::size_t requests = 0;
  std::size_t unmaps = 0;

 private:
  SegmentSource& upstream_;
};

// Blocks are the blocks of a trace in a pool. Those that the trace leaves live are freed at the
// end.
class Blocks {
 public:
  Blocks(Pool& pool, std::size_t slots) : pool_(pool), blocks_(slots) {}
  ~Blocks() {
    for (void* const block : blocks_) {
      if (block != nullptr) pool_.free(block);
    }
  }

  void take(const TraceStep& step) {
    void*& block = blocks_[step.slot];
    if (step.bytes > 0) {
      block = pool_.allocate(step.bytes);
    } else {
      pool_.free(block);
      block = nullptr;
    }
  }

 private:
  Pool& pool_;
  std::vector<void*> blocks_;
};

double fragmentation(const PoolStatistics& statistics) {
  const std::size_t free = statistics.reserved_bytes.current - statistics.allocated_bytes.current;
  if (free == 0) return 0;
  return 1 - static_cast<double>(statistics.largest_free_block) / static_cast<double>(free);
}

void measure_memory(const Trace& trace, Pool& pool, ReplayResult& result) {
  Blocks blocks(pool, trace.slots);
  std::size_t most = 0;
  for (const TraceStep& step : trace.steps) {
    blocks.take(step);
    const PoolStatistics now = pool.statistics();
    if (now.requested_bytes.current <= most) continue;
    most = now.requested_bytes.current;
    result.fragmentation = fragmentation(now);
  }
  const PoolStatistics end = pool.statistics();
  result.peak_live_bytes = end.requested_bytes.peak;
  result.peak_allocated_bytes = end.allocated_bytes.peak;
  result.peak_reserved_bytes = end.reserved_bytes.peak;
  result.segments = end.segment.current;
}

// Returns the seconds for the steps, without the frees of blocks that they leave live.
double measure_time(const Trace& trace, Pool& pool) {
  Blocks blocks(pool, trace.slots);
  const auto begin = std::chrono::steady_clock::now();
  for (const TraceStep& step : trace.steps)
    blocks.take(step);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

ReplayResult replay(const Trace& trace, SegmentSource& source, const ReplayOptions& options) {
  CountingSource counting(source);
  // No work uses the memory.
  Pool pool(counting, {.name = "replay", .growth = options.growth, .stream = kIdle});
  ReplayResult result{.operations = trace.steps.size()};
  measure_memory(trace, pool, result);
  result.segment_requests = counting.requests;
  result.first_unmaps = counting.unmaps;
  if (result.peak_reserved_bytes > 0) {
    result.utilization = static_cast<double>(result.peak_live_bytes) /
                         static_cast<double>(result.peak_reserved_bytes);
  }
  if (trace.steps.empty()) return result;
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < options.rounds; ++round)
    least = std::min(least, measure_time(trace, pool));
  result.later_unmaps = counting.unmaps - result.first_unmaps;
  result.ns_per_pair = least * 1e9 * 2 / static_cast<double>(trace.steps.size());
  return result;
}

}  // namespace cgtree::tools
