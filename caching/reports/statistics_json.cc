// Writes statistics of pools as JSON.
#include "caching/reports/statistics_json.h"

#include <nlohmann/json.hpp>

namespace cgtree {
namespace {

using Json = nlohmann::ordered_json;

void write(Json& json, const std::string& name, const Counter& counter) {
  json[name + ".current"] = counter.current;
  json[name + ".peak"] = counter.peak;
  json[name + ".allocated"] = counter.allocated;
  json[name + ".freed"] = counter.freed;
}

void write_class(Json& json, const std::string& name, const PoolCounters& counters) {
#define CGTREE_WRITE(counter) write(json, #counter "." + name, counters.counter);
  CGTREE_POOL_COUNTERS(CGTREE_WRITE)
#undef CGTREE_WRITE
  write(json, "active." + name, counters.allocation);
  write(json, "active_bytes." + name, counters.allocated_bytes);
}

void write_split(Json& json, const std::string& name, const PoolGauges::Split& split) {
  json["inactive_split." + name + ".current"] = split.blocks;
  json["inactive_split_bytes." + name + ".current"] = split.bytes;
}

double ratio(std::size_t part, std::size_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

std::string to_json(const PoolStatistics& statistics) {
  Json json;
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

std::string to_flat_json(const PoolStatistics& statistics, const PoolGauges& gauges) {
  Json json;
  write_class(json, "all", statistics);
  write_class(json, "small_pool", statistics.small_pool);
  write_class(json, "large_pool", statistics.large_pool);
  const PoolGauges::Split& small = gauges.small_pool;
  const PoolGauges::Split& large = gauges.large_pool;
  write_split(json, "all", {small.blocks + large.blocks, small.bytes + large.bytes});
  write_split(json, "small_pool", small);
  write_split(json, "large_pool", large);
  // A block of any size is split.
  write(json, "oversize_allocations", {});
  write(json, "oversize_segments", {});
  json["max_split_size"] = -1;
  json["num_ooms"] = statistics.num_ooms;
  json["num_alloc_retries"] = statistics.num_alloc_retries;
  json["num_device_alloc"] = statistics.num_device_alloc;
  json["num_device_free"] = statistics.num_device_free;
  json["checkpoint.taken"] = statistics.checkpoints_taken;
  json["checkpoint.restored"] = statistics.restores;
  json["checkpoint.segments_touched"] = statistics.segments_touched;
  json["checkpoint.bytes_pinned"] = gauges.bytes_pinned;
  json["largest_free_block"] = statistics.largest_free_block;
  const std::size_t free = statistics.reserved_bytes.current - statistics.allocated_bytes.current;
  json["fragmentation"] = free == 0 ? 0 : 1 - ratio(statistics.largest_free_block, free);
  json["utilization"] = ratio(statistics.allocated_bytes.peak, statistics.reserved_bytes.peak);
  return json.dump();
}

}  // namespace cgtree
