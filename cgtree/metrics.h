// Metrics: the numbers of contexts that monitoring systems scrape, and their text for Prometheus.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cgtree/axes.h"
#include "cgtree/stats.h"

namespace cgtree {

// One dynamic axis, or one integer of the key, of all functions of a name.
struct AxisMetrics {
  std::string axis;
  SizeSums sums;
};

// All functions of one name, those that have been destroyed included.
struct FunctionMetrics {
  std::string function;
  FunctionStats stats;
  std::vector<AxisMetrics> axes;
};

// One pool of a context, by its name: "output", "scratch" or "eager".
struct RegionMetrics {
  std::string region;
  std::size_t reserved_bytes = 0;   // device memory that the pool holds
  std::size_t allocated_bytes = 0;  // the part in blocks that are in use, as of the last call that
                                    // changed the layout; replays do not change it
};

// All that monitoring systems scrape of one context, read while calls go on: values that belong
// together may be of neighbouring calls.
struct ContextMetrics {
  std::string context;  // ContextOptions::name
  std::string device;   // "cuda:0"
  ContextStats stats;
  std::vector<FunctionMetrics> functions;
  std::vector<RegionMetrics> regions;
  // The number of recordings that took at most as long as the bound of the same index, and longer
  // than the one before; the last is for longer ones.
  std::array<std::uint64_t, kRecordTimeBounds.size() + 1> record_times = {};
  std::chrono::microseconds record_time{0};  // the sum
};

// Returns the text exposition format, version 0.0.4, of these contexts; docs/metrics.md lists the
// metrics. A pure function. Throws InvalidArgument if two contexts have the same name, because
// their series could not be told apart.
std::string metrics_text(std::span<const ContextMetrics> contexts);

}  // namespace cgtree
