// Metrics: the numbers of contexts for monitoring systems, and their text for Prometheus.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cgtree/values/axes.h"
#include "cgtree/values/stats.h"
#include "extensions/progress/replay_times.h"

namespace cgtree {

// One dynamic axis, or one integer of the key, over all functions of a name.
struct AxisMetrics {
  std::string axis;
  SizeSums sums;
};

// A Cause is the reason why a call was warmed up or recorded.
enum class Cause {
  kFirst,        // the first warm-up, or the first recording, of the function
  kMadeAgain,    // the earlier recording of these calls was dropped: evicted, invalidated or
                 // released
  kBadInput,     // an input of the nearest recording is null or stale now
  kInputCount,   // another number of inputs
  kKey,          // another key
  kShape,        // another shape, strides, type or device of an input
  kGuard,        // a guard gave another answer
  kStaticMoved,  // a static input is at another address
  kOutputMoved,  // an input is another output of an earlier call
  kAlignment,    // an input is less aligned
  kOverlap,      // two inputs share memory
  kOutputHeld,   // an output is held where the nearest recording writes
};

// The number of causes, for arrays that have an element for each.
inline constexpr int kCauseCount = 12;

// Returns the name in metrics and JSON: "output_held", ...
std::string_view name(Cause cause) noexcept;
// Returns the text for messages: "an output was held".
std::string_view explain(Cause cause) noexcept;
// The next two return the cause of a recording, given the mismatch that kept the nearest recording
// from being replayed; kFirst without a mismatch.
Cause cause_of(Mismatch::Kind kind) noexcept;
Cause cause_of(const Explanation& why) noexcept;

// Returns name(value) as a string, for every enumeration that has names: outcomes, reasons, types.
template <typename Enum>
std::string to_string(Enum value) requires std::is_enum_v<Enum> {
  return std::string(name(value));
}

// The causes of the calls of one function that did not replay.
struct FunctionCauses {
  std::array<std::uint64_t, kCauseCount> warm_ups =
      {};  // by Cause: kFirst, kInputCount, kKey, kShape
  std::array<std::uint64_t, kCauseCount> recordings = {};  // by Cause
  Mismatch changed;          // difference between the inputs of the last two warm-ups
  std::string last_failure;  // text of the last exception of a call, or ""
};

// All functions of one name, including destroyed ones.
struct FunctionMetrics {
  std::string function;
  FunctionStats stats;
  std::vector<AxisMetrics> axes;
  ReplayTimes replay_times;
  std::map<std::string, ScopeTimes> scope_times;  // by the path of the scopes; "" outside of all
  FunctionCauses causes;
};

// One pool of a context, by its name: "output", "scratch" or "eager".
struct RegionMetrics {
  std::string region;
  std::size_t reserved_bytes = 0;   // device memory that the pool holds
  std::size_t allocated_bytes = 0;  // the part in blocks in use, as of the last call that changed
                                    // the layout; replays do not change it
};

// All metrics of one context, read while calls go on: values that belong together may come from
// neighbouring calls.
struct ContextMetrics {
  std::string context;  // ContextOptions::name
  std::string device;   // "cuda:0"
  ContextStats stats;
  std::vector<FunctionMetrics> functions;
  std::vector<RegionMetrics> regions;
  // The number of recordings that took at most the bound of the same index, and longer than the one
  // before; the last is for longer ones.
  std::array<std::uint64_t, kRecordTimeBounds.size() + 1> record_times = {};
  std::chrono::microseconds record_time{0};  // the sum
};

// Returns the text exposition format, version 0.0.4, of these contexts; docs/metrics.md lists the
// metrics. A pure function. Throws InvalidArgument if two contexts have the same name, because
// their series could not be told apart.
std::string metrics_text(std::span<const ContextMetrics> contexts);

}  // namespace cgtree
