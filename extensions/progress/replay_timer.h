// ReplayTimer: measures how long replays take on the device.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "cgtree/memory/context_memory.h"
#include "cgtree/tree/tree.h"
#include "extensions/progress/replay_times.h"
#include "interop/device/device_api.h"

namespace cgtree {

// A ReplayTimer records an event with a time before and after every n-th replay of each recording.
// A later timed replay reads the completed events: the host never waits.
//
// Thread safety: used by the thread that is inside the context, except times().
class ReplayTimer {
 public:
  // One replay that was timed.
  struct Sample {
    std::string function;
    std::uint32_t node = 0;
    std::chrono::nanoseconds device{0};
    std::chrono::nanoseconds host{0};
    bool found_idle = false;
    // When it began on the device, in microseconds since the epoch, by the host's clock.
    std::int64_t began_us = 0;
  };

  // `every`: 0 for no replay, also on a device whose events have no times.
  ReplayTimer(std::size_t every, const ContextMemory& memory);
  ~ReplayTimer();
  ReplayTimer(const ReplayTimer&) = delete;
  ReplayTimer& operator=(const ReplayTimer&) = delete;

  bool is_on() const noexcept { return every_ > 0; }

  // The next three are called for one replay, in this order. If the launch fails, the last is not
  // called. `number`: of the replay among those of its recording, from 1. `host`: the duration of
  // the call. Returns whether collect() should be called now.
  void open(std::uint64_t number) noexcept;
  void begin_launch() noexcept;
  bool close(const Node& node, std::chrono::nanoseconds host) noexcept;

  // Notes a call of the function that ran without a graph.
  void note_eager(const std::string& function, std::chrono::nanoseconds host) noexcept;

  // Returns the samples that completed since the last call, in order. Does not wait.
  std::vector<Sample> collect();
  // Adds the time of a replay of the function in each scope.
  void count_scopes(const std::string& function,
                    const std::map<std::string_view, std::chrono::nanoseconds>& times);
  // The next two return the times of all functions by name. Any thread.
  std::map<std::string, ReplayTimes, std::less<>> times() const;
  std::map<std::string, std::map<std::string, ScopeTimes>, std::less<>> scope_times() const;

 private:
  struct Timed {
    Sample sample;
    EventHandle begin;
    EventHandle end;
  };

  GraphAPI& graphs() const noexcept { return *memory_.stream().api().graphs(); }
  std::optional<EventHandle> record();
  bool set_anchor();
  void give_up(std::string_view what, Code code) noexcept;
  void count(const Sample& sample);

  static constexpr std::size_t kMostPending = 64;
  static constexpr std::size_t kMostScopes = 512;  // of a function; those beyond are "(more)"

  const ContextMemory& memory_;
  std::size_t every_;
  bool is_turn_ = false;  // the replay in progress is timed
  std::optional<EventHandle> begin_;
  bool found_idle_ = false;
  std::chrono::nanoseconds own_{0};  // time that the call took for this
  std::deque<Timed> pending_;        // enqueued and not read, in order
  std::vector<EventHandle> unused_;  // events to record again
  // A point of the device's time whose host time is known: the stream was idle. kNull: no point.
  EventHandle anchor_ = EventHandle::kNull;
  std::int64_t anchor_us_ = 0;
  mutable Mutex<LockRank::kWatch> mutex_;  // guards all below
  std::map<std::string, ReplayTimes, std::less<>> times_;
  std::map<std::string, std::map<std::string, ScopeTimes>, std::less<>> scope_times_;
};

}  // namespace cgtree
