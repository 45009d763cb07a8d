// Continuous batching: schedule, launch, wait; until every request is finished.
#include "examples/serve/server.h"

#include <chrono>
#include <cstdio>
#include <numeric>

#include "examples/serve/percentile.h"
#include "examples/serve/progress.h"

namespace cgtree::serve {
namespace {

using Clock = Progress::Clock;

constexpr std::uint64_t kSettlingCalls = 100;

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// One entry per step.
struct Times {
  std::vector<double> host_us;
  std::vector<double> step_us;

  explicit Times(std::int64_t steps) {
    host_us.reserve(static_cast<std::size_t>(steps));
    step_us.reserve(static_cast<std::size_t>(steps));
  }
  void add(Clock::duration host, Clock::duration step) {
    host_us.push_back(microseconds(host));
    step_us.push_back(microseconds(step));
  }
};

void summarize(const Times& times, Served& served) {
  const double total = std::accumulate(times.host_us.begin(), times.host_us.end(), 0.0);
  served.host_us_per_step = total / static_cast<double>(times.host_us.size());
  served.step_us_p50 = percentile(times.step_us, 50);
  served.step_us_p99 = percentile(times.step_us, 99);
}

double share_of(std::uint64_t replays, std::uint64_t calls) {
  return calls == 0 ? 0 : static_cast<double>(replays) / static_cast<double>(calls);
}

// What the lane has counted.
void take_stats(const StepLane& lane, const FunctionStats& settled, Served& served) {
  served.decode = lane.decode_stats();
  served.prefill = lane.prefill_stats();
  served.context = lane.stats();
  served.decode_work = lane.decode_work();
  served.prefill_work = lane.prefill_work();
  if (served.decode.calls > kSettlingCalls) {
    served.replay_share_after_100 =
        share_of(served.decode.replays - settled.replays, served.decode.calls - settled.calls);
  }
}

}  // namespace

double Served::tokens_per_second() const {
  return seconds > 0 ? static_cast<double>(generated) / seconds : 0;
}

double Served::replay_share() const {
  return share_of(decode.replays, decode.calls);
}

void prime(const Model& model, const SchedulerOptions& options) {
  const Request twice{.context_tokens = 1, .generated_tokens = 2};
  const SizePlan plan(Policy::kExact, 0, {}, {});
  StepLane lane(model, plan, options.max_prompt, CacheUse::kStatic, false);
  Scheduler scheduler({&twice, 1}, options);
  while (scheduler.begin_step()) {
    lane.launch(scheduler);
    lane.wait();
    scheduler.end_step(lane.first(), lane.next());
  }
}

Served serve(const Model& model, std::span<const Request> requests, const SchedulerOptions& options,
             const SizePlan& plan, std::int64_t steps, bool compiled) {
  StepLane lane(model, plan, options.max_prompt, CacheUse::kStatic, compiled);
  Scheduler scheduler(requests, options);
  Progress progress(stderr, compiled ? "cgtree" : "eager", steps);
  Times times(steps);
  FunctionStats settled;

  Served served;
  const auto begin = Clock::now();
  for (auto start = begin; scheduler.begin_step(); start = Clock::now()) {
    lane.launch(scheduler);
    const auto launched = Clock::now();
    lane.wait();
    const auto done = Clock::now();
    scheduler.end_step(lane.first(), lane.next());
    times.add(launched - start, done - start);
    progress.update(++served.steps, scheduler.generated(), done);
    if (settled.calls < kSettlingCalls) settled = lane.decode_stats();
  }
  served.seconds = std::chrono::duration<double>(Clock::now() - begin).count();

  served.tokens = scheduler.tokens();
  served.generated = scheduler.generated();
  take_stats(lane, settled, served);
  summarize(times, served);
  return served;
}

}  // namespace cgtree::serve
