// Records events around replays, and reads their times when both have completed.
#include "extensions/progress/replay_timer.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "base/log_event.h"
#include "interop/device/device_api.h"

namespace cgtree {
namespace {

// Returns the index in ReplayTimes::histogram.
std::size_t bucket_of(std::chrono::nanoseconds time) noexcept {
  const auto found = std::ranges::lower_bound(kReplayTimeBounds, time, {}, [](std::int64_t bound) {
    return std::chrono::microseconds(bound);
  });
  return static_cast<std::size_t>(found - kReplayTimeBounds.begin());
}

constexpr std::size_t kMostNames = 1024;  // as metrics have

// Returns the entry of a function, or of all functions beyond kMostNames.
template <typename Times>
Times& times_of(std::map<std::string, Times, std::less<>>& all, const std::string& function) {
  const bool has_series = all.size() < kMostNames || all.contains(function);
  return all[has_series ? function : ""];
}

}  // namespace

ReplayTimer::ReplayTimer(std::size_t every, const ContextMemory& memory)
    : memory_(memory), every_(every) {
  const StreamRef stream = memory.stream();
  if (!stream.api().supports(stream.device().id, DeviceAttribute::kSupportsProgress)) every_ = 0;
}

ReplayTimer::~ReplayTimer() {
  for (const Timed& one : pending_)
    unused_.insert(unused_.end(), {one.begin, one.end});
  if (begin_) unused_.push_back(*begin_);
  if (anchor_ != EventHandle::kNull) unused_.push_back(anchor_);
  for (const EventHandle event : unused_)
    (void)graphs().destroy_event(event);
}

void ReplayTimer::give_up(std::string_view what, Code code) noexcept {
  (void)graphs().take_last_error();
  every_ = 0;
  log_event(LogLevel::kWarn, "replays_not_timed what=\"{}\" error={}", what, name(code));
}

// An event and a default stream belong to the current device.
std::optional<EventHandle> ReplayTimer::record() {
  const StreamRef stream = memory_.stream();
  const DeviceScope current = stream.make_device_current();
  EventHandle event = EventHandle::kNull;
  Code code = Code::kSuccess;
  if (!unused_.empty()) {
    event = unused_.back();
    unused_.pop_back();
  } else {
    code = graphs().create_timed_event(&event);
  }
  if (ok(code)) code = graphs().record_event(event, stream.handle());
  if (ok(code)) return event;
  if (event != EventHandle::kNull) unused_.push_back(event);
  give_up("record an event", code);
  return std::nullopt;
}

// Work on an idle stream begins at once.
bool ReplayTimer::set_anchor() {
  const std::int64_t now = now_us();
  const std::optional<EventHandle> event = record();
  if (!event) return false;
  if (anchor_ != EventHandle::kNull) unused_.push_back(anchor_);
  anchor_ = *event;
  anchor_us_ = now;
  return true;
}

void ReplayTimer::open(std::uint64_t number) noexcept {
  if (begin_) unused_.push_back(*std::exchange(begin_, std::nullopt));  // of a launch that failed
  is_turn_ = every_ > 0 && number % every_ == 0;
}

void ReplayTimer::begin_launch() noexcept try {
  if (!is_turn_ || pending_.size() == kMostPending) return;
  const auto start = std::chrono::steady_clock::now();
  const StreamRef stream = memory_.stream();
  {
    const DeviceScope current = stream.make_device_current();
    const RelaxedCapture relaxed(&graphs());  // a query must not break a capture of another thread
    found_idle_ = ok(stream.api().query_stream(stream.handle()));
  }
  // Pending replays use the present anchor.
  const bool is_better = found_idle_ && pending_.empty();
  if ((is_better || anchor_ == EventHandle::kNull) && !set_anchor()) return;
  begin_ = record();
  own_ = std::chrono::steady_clock::now() - start;
} catch (const std::exception& error) {
  give_up(error.what(), Code::kUnknown);
}

bool ReplayTimer::close(const Node& node, std::chrono::nanoseconds host) noexcept try {
  if (!begin_) return is_turn_;
  const std::optional<EventHandle> end = record();
  if (!end) return is_turn_;
  pending_.push_back({{.function = node.function->name,
                       .node = node.id,
                       .host = host - own_,
                       .found_idle = found_idle_},
                      *begin_,
                      *end});
  begin_.reset();
  return is_turn_;
} catch (const std::exception& error) {
  give_up(error.what(), Code::kUnknown);
  return false;
}

std::vector<ReplayTimer::Sample> ReplayTimer::collect() {
  std::vector<Sample> samples;
  while (!pending_.empty()) {
    Timed& first = pending_.front();
    const RelaxedCapture relaxed(&graphs());
    Code code = graphs().query_event(first.end);
    std::chrono::nanoseconds since_anchor{0};
    if (ok(code)) code = graphs().elapsed(first.begin, first.end, &first.sample.device);
    if (ok(code)) code = graphs().elapsed(anchor_, first.begin, &since_anchor);
    if (code == Code::kNotReady) break;
    if (!ok(code)) {
      give_up("read the times of events", code);
      break;
    }
    using std::chrono::microseconds;
    first.sample.began_us =
        anchor_us_ + std::chrono::duration_cast<microseconds>(since_anchor).count();
    unused_.insert(unused_.end(), {first.begin, first.end});
    count(first.sample);
    samples.push_back(std::move(first.sample));
    pending_.pop_front();
  }
  return samples;
}

void ReplayTimer::note_eager(const std::string& function, std::chrono::nanoseconds host) noexcept
    try {
  if (!is_on()) return;
  const std::lock_guard lock(mutex_);
  std::chrono::nanoseconds& eager = times_of(times_, function).eager;
  eager = eager.count() == 0 ? host : std::min(eager, host);
} catch (const std::bad_alloc&) {  // it is not noted
}

void ReplayTimer::count_scopes(const std::string& function,
                               const std::map<std::string_view, std::chrono::nanoseconds>& times) {
  if (times.empty()) return;
  const std::lock_guard lock(mutex_);
  auto& scopes = times_of(scope_times_, function);
  for (const auto& [scope, time] : times) {
    std::string name(scope);
    if (scopes.size() >= kMostScopes && !scopes.contains(name)) name = "(more)";
    ScopeTimes& sum = scopes[name];
    ++sum.count;
    sum.device += time;
    ++sum.histogram[bucket_of(time)];
  }
}

void ReplayTimer::count(const Sample& sample) {
  const std::lock_guard lock(mutex_);
  ReplayTimes& times = times_of(times_, sample.function);
  times.device_min = times.count == 0 ? sample.device : std::min(times.device_min, sample.device);
  times.device_max = std::max(times.device_max, sample.device);
  ++times.count;
  times.found_idle += sample.found_idle;
  times.device += sample.device;
  times.host += sample.host;
  ++times.histogram[bucket_of(sample.device)];
}

std::map<std::string, ReplayTimes, std::less<>> ReplayTimer::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

std::map<std::string, std::map<std::string, ScopeTimes>, std::less<>> ReplayTimer::scope_times()
    const {
  const std::lock_guard lock(mutex_);
  return scope_times_;
}

}  // namespace cgtree
