// Continuous batching: schedule, upload, decode, download, wait; until every request is finished.
#include "examples/serve/server.h"

#include <chrono>
#include <cstdio>
#include <numeric>

#include "cgtree/cgtree.h"
#include "examples/serve/buckets.h"
#include "examples/serve/percentile.h"
#include "examples/serve/progress.h"
#include "examples/serve/step_buffers.h"

namespace cgtree::serve {
namespace {

using Clock = Progress::Clock;

constexpr std::int64_t kSettlingSteps = 100;

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// A lane of steps: the context, the compiled step function and its inputs, made once for all steps.
class StepRunner {
 public:
  // The model outlives the runner.
  StepRunner(const Model& model, bool compiled)
      : context_(model.device()),
        decode_(compile(
            context_, "decode",
            [&model](Tensor batch, Tensor kv_cache) { return model.decode(batch, kv_cache); },
            {.inputs = {{}, {.is_static = true, .is_mutated = true}}, .enabled = compiled})),
        kv_cache_(model.make_kv_cache()),
        buffers_(model.device(), static_cast<int>(model.sizes().slots)) {}

  // Enqueues one step. The output of the step before is given up.
  void launch(std::span<const Row> rows) {
    const Tensor& batch = buffers_.upload(context_.stream(), rows);
    context_.mark_step();
    const Tensor next = decode_(batch, kv_cache_);
    buffers_.download(context_.stream(), next);
  }
  // Blocks until the tokens of the step are on the host.
  std::span<const std::int32_t> wait() {
    context_.synchronize();
    return buffers_.next();
  }

  FunctionStats stats() const { return decode_.stats(); }
  std::size_t pool_bytes() const { return context_.stats().pool_reserved_bytes; }

 private:
  Context context_;
  CompiledFunction<Tensor(Tensor, Tensor)> decode_;
  Tensor kv_cache_;
  StepBuffers buffers_;
};

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

std::optional<double> replay_share(const Served& served, std::uint64_t replays_while_settling) {
  if (served.steps <= kSettlingSteps) return std::nullopt;
  return static_cast<double>(served.stats.replays - replays_while_settling) /
         static_cast<double>(served.steps - kSettlingSteps);
}

}  // namespace

double Served::tokens_per_second() const {
  return seconds > 0 ? static_cast<double>(generated) / seconds : 0;
}

void prime(const Model& model) {
  StepRunner runner(model, false);
  const auto slots = static_cast<int>(model.sizes().slots);
  const std::vector<Row> padding(static_cast<std::size_t>(slots), Row{.slot = -1});
  for (const int bucket : make_buckets(slots)) {
    runner.launch(std::span(padding).first(static_cast<std::size_t>(bucket)));
    runner.wait();
  }
}

Served serve(const Model& model, std::span<const Request> requests, const SchedulerOptions& options,
             bool compiled) {
  StepRunner runner(model, compiled);
  Scheduler scheduler(requests, options);
  const std::int64_t steps = count_steps(requests, options);
  Progress progress(stderr, compiled ? "cgtree" : "eager", steps);
  Times times(steps);
  std::uint64_t replays_while_settling = 0;

  Served served;
  const auto begin = Clock::now();
  for (auto start = begin; scheduler.begin_step(); start = Clock::now()) {
    runner.launch(scheduler.rows());
    const auto launched = Clock::now();
    const std::span<const std::int32_t> next = runner.wait();
    const auto done = Clock::now();
    scheduler.end_step(next);
    times.add(launched - start, done - start);
    progress.update(++served.steps, scheduler.generated(), done);
    if (served.steps == kSettlingSteps) replays_while_settling = runner.stats().replays;
  }
  served.seconds = std::chrono::duration<double>(Clock::now() - begin).count();

  served.tokens = scheduler.tokens();
  served.generated = scheduler.generated();
  served.stats = runner.stats();
  served.pool_bytes = runner.pool_bytes();
  served.replay_share_after_100 = replay_share(served, replays_while_settling);
  summarize(times, served);
  return served;
}

}  // namespace cgtree::serve
