// Metrics: the numbers of contexts that monitoring systems scrape, and their text for Prometheus.
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

namespace cgtree {

class Context;  // cgtree/context.h

// One dynamic axis, or one integer of the key, of all functions of a name.
struct AxisMetrics {
  std::string axis;
  SizeSums sums;
};

// The bounds of the histogram of the times of replays on the device, in microseconds, ascending.
inline constexpr std::array<std::int64_t, 14> kReplayTimeBounds = {
    5, 10, 25, 50, 100, 250, 500, 1'000, 2'500, 5'000, 10'000, 25'000, 100'000, 1'000'000};

// How long the work of one scope took on the device in replays that were timed by the scopes
// (ProgressOptions::times_scopes): of each replay the sum over the kernels of the scope, without
// those of scopes inside of it.
struct ScopeTimes {
  std::uint64_t count = 0;             // replays
  std::chrono::nanoseconds device{0};  // the sum
  // As ReplayTimes::histogram.
  std::array<std::uint64_t, kReplayTimeBounds.size() + 1> histogram = {};
};

// The times of those replays that were timed (ContextOptions::time_every_nth_replay) and have
// ended. The time on the device lasts from the launch, if the stream was idle, or else from the end
// of what was enqueued before, until the replay's work has ended.
struct ReplayTimes {
  std::uint64_t count = 0;
  std::uint64_t found_idle = 0;  // of them, those for which the stream was idle: it had waited
  std::chrono::nanoseconds device{0};  // the sum
  std::chrono::nanoseconds device_min{0};
  std::chrono::nanoseconds device_max{0};
  std::chrono::nanoseconds host{0};  // the sum of what the calls took on the host
  // The least that a call without a graph, a warm-up or an eager run, took on the host; 0: none was
  // seen.
  std::chrono::nanoseconds eager{0};
  // How many took at most as long as the bound of the same index, and longer than the one before;
  // the last is for longer ones.
  std::array<std::uint64_t, kReplayTimeBounds.size() + 1> histogram = {};
};

// A Cause says why a call was warmed up or recorded.
enum class Cause {
  kFirst,        // no call of the function was warmed up before; or none was recorded before
  kMadeAgain,    // the recording of such calls was dropped: evicted, invalidated or released
  kBadInput,     // an input of the nearest recording is null or stale now
  kInputCount,   // another number of inputs
  kKey,          // another key
  kShape,        // another shape, strides, type or device of an input
  kStaticMoved,  // a static input is at another address
  kOutputMoved,  // an input is another output of an earlier call
  kAlignment,    // an input is less aligned
  kOverlap,      // two inputs share memory
  kOutputHeld,   // an output is held where the nearest recording writes
};

// The number of causes, for arrays that have an element for each.
inline constexpr int kCauseCount = 11;

// Returns "output_held", ...: the name in metrics and JSON.
std::string_view name(Cause cause) noexcept;
// Returns the same for people: "an output was held".
std::string_view explain(Cause cause) noexcept;
// The next two return the cause of a recording of which this kept the nearest one from being
// replayed; kFirst if nothing did.
Cause cause_of(Mismatch::Kind kind) noexcept;
Cause cause_of(const Explanation& why) noexcept;

// Returns name(value) as a string, for every enumeration that has names: outcomes, reasons, types.
template <typename Enum>
std::string to_string(Enum value) requires std::is_enum_v<Enum> {
  return std::string(name(value));
}

// What is known of the calls of one function that did not replay.
struct FunctionCauses {
  std::array<std::uint64_t, kCauseCount> warm_ups =
      {};  // by Cause: kFirst, kInputCount, kKey, kShape
  std::array<std::uint64_t, kCauseCount> recordings = {};  // by Cause
  Mismatch changed;          // how the inputs of the last two warm-ups differ
  std::string last_failure;  // what the last call that threw has thrown, or ""
};

// All functions of one name, those that have been destroyed included.
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
// Returns that of contexts, for a process that serves several as one page. Throws as above.
std::string metrics_text(std::span<const Context* const> contexts);

}  // namespace cgtree
