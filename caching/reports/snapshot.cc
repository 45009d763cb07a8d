// Takes snapshots, arranges them as PyTorch does, and writes them.
//
// Source of keys and values: torch/cuda/_memory_viz.py of PyTorch 2.
#include "caching/reports/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "allocator/pool/block.h"
#include "base/error.h"
#include "caching/reports/pickle.h"

namespace cgtree {
namespace {

void check(std::span<const PoolToSnapshot> pools) {
  for (std::size_t i = 0; i < pools.size(); ++i) {
    if (pools[i].pool == nullptr) throw InvalidArgument(fmt::format("pool {} is null", i));
    if (pools[i].label.device < 0) {
      throw InvalidArgument(
          fmt::format("pool {} is on device {}; devices count from 0", i, pools[i].label.device));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (pools[i].pool != pools[j].pool && pools[i].label != pools[j].label) continue;
      throw InvalidArgument(
          fmt::format("pools {} and {} are the same or have the same label (pool {} of device {})",
                      j, i, pools[i].label.id, pools[i].label.device));
    }
  }
}

SnapshotSegment segment_of(const PoolToSnapshot& view, const BlockList& blocks) {
  SnapshotSegment segment{.pool = view.label,
                          .address = blocks.front().range.address,
                          .total_size = blocks.back().range.end() - blocks.front().range.address,
                          .stream = view.pool->options().stream,
                          .is_expandable = view.is_expandable};
  segment.is_small = segment.total_size <= kSmallSegment;
  segment.blocks.reserve(blocks.size());
  for (const Block& block : blocks) {
    segment.blocks.push_back({block.range.address, block.range.bytes, block.requested});
    segment.requested_size += block.requested;
    if (block.is_live()) segment.active_size += block.range.bytes;
  }
  return segment;
}

using Json = nlohmann::ordered_json;

constexpr std::string_view kPairs[] = {"segment_pool_id", "pool_id"};

Json pool_id(const PoolLabel& pool) {
  return Json::array({pool.id, 0});
}

Json tree_of(const SnapshotBlock& block) {
  return {{"address", block.address},
          {"size", block.size},
          {"requested_size", block.requested_size},
          {"state", block.requested_size > 0 ? "active_allocated" : "inactive"},
          {"frames", Json::array()}};
}

Json tree_of(const SnapshotSegment& segment) {
  Json blocks = Json::array();
  for (const SnapshotBlock& block : segment.blocks)
    blocks.push_back(tree_of(block));
  return {{"device", segment.pool.device},
          {"address", segment.address},
          {"total_size", segment.total_size},
          {"allocated_size", segment.active_size},  // only allocated blocks are active
          {"active_size", segment.active_size},
          {"requested_size", segment.requested_size},
          {"stream", segment.stream},
          {"segment_type", segment.is_small ? "small" : "large"},
          {"segment_pool_id", pool_id(segment.pool)},
          {"is_expandable", segment.is_expandable},
          {"frames", Json::array()},
          {"blocks", std::move(blocks)}};
}

const char* name(TraceEvent::Action action) {
  switch (action) {
    case TraceEvent::Action::kAlloc:
      return "alloc";
    case TraceEvent::Action::kFreeCompleted:
      return "free_completed";
    case TraceEvent::Action::kOom:
      return "oom";
  }
  return "";
}

Json tree_of(const TraceEvent& event) {
  // The viewer expects the free bytes of the device here; pools do not know them.
  const char* const place = event.action == TraceEvent::Action::kOom ? "device_free" : "addr";
  return {{"action", name(event.action)}, {place, event.address},
          {"size", event.size},           {"stream", event.stream},
          {"time_us", event.time_us},     {"pool_id", pool_id(event.pool)},
          {"frames", Json::array()}};
}

Json tree_of(const MemorySnapshot& snapshot) {
  int devices = 1;
  bool is_expandable = false;
  Json segments = Json::array();
  for (const SnapshotSegment& segment : snapshot.segments) {
    segments.push_back(tree_of(segment));
    devices = std::max(devices, segment.pool.device + 1);
    is_expandable |= segment.is_expandable;
  }
  for (const TraceEvent& event : snapshot.trace)
    devices = std::max(devices, event.pool.device + 1);
  Json traces(static_cast<std::size_t>(devices), Json::array());
  for (const TraceEvent& event : snapshot.trace)
    traces[static_cast<std::size_t>(event.pool.device)].push_back(tree_of(event));
  return {{"segments", std::move(segments)},
          {"device_traces", std::move(traces)},
          {"allocator_settings", {{"expandable_segments", is_expandable}}},
          {"external_annotations", Json::array()}};
}

}  // namespace

MemorySnapshot take_snapshot(std::span<const PoolToSnapshot> pools, const MemoryTrace* trace) {
  check(pools);
  MemorySnapshot snapshot;
  for (const PoolToSnapshot& view : pools) {
    for (const BlockList& blocks : view.pool->blocks())
      snapshot.segments.push_back(segment_of(view, blocks));
  }
  if (trace != nullptr) snapshot.trace = trace->events();
  return snapshot;
}

std::string to_json(const MemorySnapshot& snapshot) {
  return tree_of(snapshot).dump();
}

std::string to_pickle(const MemorySnapshot& snapshot) {
  return to_pickle(tree_of(snapshot), kPairs);
}

}  // namespace cgtree
