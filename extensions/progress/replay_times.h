// The times of replays, and of the scopes in them.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace cgtree {

// The bounds of the histogram of the times of replays on the device, in microseconds, ascending.
inline constexpr std::array<std::int64_t, 14> kReplayTimeBounds = {
    5, 10, 25, 50, 100, 250, 500, 1'000, 2'500, 5'000, 10'000, 25'000, 100'000, 1'000'000};

// Device times of the work of one scope in replays that were timed by scope
// (ProgressOptions::times_scopes): for each replay the sum over the kernels of the scope, without
// nested scopes.
struct ScopeTimes {
  std::uint64_t count = 0;             // replays
  std::chrono::nanoseconds device{0};  // the sum
  // As ReplayTimes::histogram.
  std::array<std::uint64_t, kReplayTimeBounds.size() + 1> histogram = {};
};

// The times of the ended replays that were timed (WatchOptions::time_every_nth_replay). The time on
// the device lasts from the launch, if the stream was idle, or else from the end of earlier work,
// until the replay's work has ended.
struct ReplayTimes {
  std::uint64_t count = 0;
  std::uint64_t found_idle = 0;        // those for which the stream was idle: it had waited
  std::chrono::nanoseconds device{0};  // the sum
  std::chrono::nanoseconds device_min{0};
  std::chrono::nanoseconds device_max{0};
  std::chrono::nanoseconds host{0};  // the sum over the calls, on the host
  // The least host time of a call without a graph, a warm-up or an eager run; 0: none was seen.
  std::chrono::nanoseconds eager{0};
  // Counts of the times between the bound before and the bound of the same index, inclusive; the
  // last is for longer times.
  std::array<std::uint64_t, kReplayTimeBounds.size() + 1> histogram = {};
};

}  // namespace cgtree
