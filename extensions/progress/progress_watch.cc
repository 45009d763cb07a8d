// Watches contexts on a thread that reports replays which exceed the time limit.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "base/condition.h"
#include "base/format.h"
#include "base/log.h"
#include "base/mutex.h"
#include "extensions/progress/context_progress.h"
#include "extensions/progress/progress_watch.h"

namespace cgtree {

struct ProgressWatch::State {
  explicit State(ProgressOptions given)
      : options(std::move(given)), time_limit(std::min(options.time_limit, kLongestLimit)) {}

  using Contexts = std::vector<std::shared_ptr<ContextProgress>>;

  Contexts in_order() const {
    Contexts all;
    {
      const std::lock_guard lock(mutex);
      all = contexts;
    }
    std::ranges::stable_sort(all, {}, [](const auto& one) { return one->rank(); });
    return all;
  }
  std::vector<ContextProgressReport> report() const {
    std::vector<ContextProgressReport> reports;
    for (const auto& context : in_order())
      reports.push_back(context->report());
    return reports;
  }

  // Checks a few times within the limit, until it ends.
  void serve() {
    using std::chrono::milliseconds;
    const milliseconds pause = std::clamp(time_limit / 4, milliseconds(1), milliseconds(1'000));
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, pause, [&] { return ends; })) {
      lock.unlock();
      look();
      lock.lock();
    }
  }
  void look() noexcept try {
    bool is_exceeded = false;
    for (const auto& context : in_order())
      is_exceeded = context->exceeds(time_limit) || is_exceeded;
    if (!is_exceeded) return;
    tell("replay_exceeds_time_limit\n", "");
  } catch (const std::exception&) {  // out of memory: it is not reported again
  }
  // `event`: for the log. `heading`: before the report.
  void tell(std::string_view event, const std::string& heading) const {
    const std::string text = heading + to_string(report());
    if (options.on_timeout) return options.on_timeout(text);
    log_line(LogLevel::kError, std::string(event) + text);
  }

  // Times of clocks are nanoseconds, which end after 292 years.
  static constexpr std::chrono::milliseconds kLongestLimit = std::chrono::years(100);

  const ProgressOptions options;
  const std::chrono::milliseconds time_limit;
  mutable Mutex<LockRank::kWatch> mutex;  // guards the next two
  Contexts contexts;
  bool ends = false;
  std::atomic<bool> has_told_failure = false;
  Condition ended;
  std::thread thread;
};

ProgressWatch::ProgressWatch(ProgressOptions options)
    : state_(std::make_shared<State>(std::move(options))) {
  if (state_->options.time_limit.count() > 0) {
    state_->thread = std::thread([state = state_] { state->serve(); });
  }
}

ProgressWatch::~ProgressWatch() {
  if (!state_->thread.joinable()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
  }
  state_->ended.notify_all();
  if (state_->thread.get_id() == std::this_thread::get_id()) {
    state_->thread.detach();
  } else {
    state_->thread.join();
  }
}

const ProgressOptions& ProgressWatch::options() const noexcept {
  return state_->options;
}

std::vector<ContextProgressReport> ProgressWatch::report() const {
  return state_->report();
}

void ProgressWatch::add(std::shared_ptr<ContextProgress> context) {
  const std::lock_guard lock(state_->mutex);
  state_->contexts.push_back(std::move(context));
}

void ProgressWatch::remove(const ContextProgress& context) noexcept {
  const std::lock_guard lock(state_->mutex);
  std::erase_if(state_->contexts, [&](const auto& one) { return one.get() == &context; });
}

void ProgressWatch::tell_device_failure(std::string_view what) noexcept try {
  if (state_->has_told_failure.exchange(true)) return;
  state_->tell("device_failed\n",
               str_format("the device has failed, after which it does no more work, and no time "
                          "limit was exceeded: {}\n",
                          what));
} catch (const std::exception&) {  // out of memory: it is not reported again
}

}  // namespace cgtree
