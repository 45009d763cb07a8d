// Continuous batching: schedule, upload, decode, download, wait; until every request is finished.
#include "examples/serve/server.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>

#include "cgtree/cgtree.h"
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

// The model outlives what this returns.
auto compile_decode(Context& context, const Model& model, bool enabled) {
  return compile(context, "decode",
                 [&model](Tensor batch, Tensor kv_cache) { return model.decode(batch, kv_cache); },
                 {.inputs = {{}, {.is_static = true, .is_mutated = true}}, .enabled = enabled});
}

// One entry per step.
struct Times {
  std::vector<double> host_us;
  std::vector<double> step_us;
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
  Context context(model.device());
  const auto decode = compile_decode(context, model, false);
  const Tensor kv_cache = model.make_kv_cache();
  StepBuffers buffers(model.device(), static_cast<int>(model.sizes().slots));
  const std::vector<Row> rows(static_cast<std::size_t>(model.sizes().slots), Row{.slot = -1});
  for (const Tensor& batch : buffers.batches()) {
    const auto count = static_cast<std::size_t>(batch.dim(1));
    context.mark_step();
    const Tensor next =
        decode(buffers.upload(context.stream(), std::span(rows).first(count)), kv_cache);
    buffers.download(context.stream(), next);
    context.synchronize();
  }
}

Served serve(const Model& model, std::span<const Request> requests, const SchedulerOptions& options,
             bool compiled) {
  Context context(model.device());
  const StreamRef stream = context.stream();
  const auto decode = compile_decode(context, model, compiled);
  const Tensor kv_cache = model.make_kv_cache();
  StepBuffers buffers(model.device(), options.max_batch);
  Scheduler scheduler(requests, options);
  const std::int64_t steps = count_steps(requests, options);
  Progress progress(stderr, compiled ? "cgtree" : "eager", steps);
  Times times;
  times.host_us.reserve(static_cast<std::size_t>(steps));
  times.step_us.reserve(static_cast<std::size_t>(steps));
  std::uint64_t replays_while_settling = 0;

  Served served;
  const auto begin = Clock::now();
  for (auto start = begin; scheduler.begin_step(); start = Clock::now()) {
    const Tensor& batch = buffers.upload(stream, scheduler.rows());
    context.mark_step();
    const Tensor next = decode(batch, kv_cache);
    buffers.download(stream, next);
    const auto launched = Clock::now();
    stream.synchronize();
    const auto done = Clock::now();
    scheduler.end_step(buffers.next());
    times.host_us.push_back(microseconds(launched - start));
    times.step_us.push_back(microseconds(done - start));
    progress.update(++served.steps, scheduler.generated(), done);
    if (served.steps == kSettlingSteps) replays_while_settling = decode.stats().replays;
  }
  served.seconds = std::chrono::duration<double>(Clock::now() - begin).count();

  served.tokens = scheduler.tokens();
  served.generated = scheduler.generated();
  served.stats = decode.stats();
  served.pool_bytes = context.stats().pool_reserved_bytes;
  served.replay_share_after_100 = replay_share(served, replays_while_settling);
  summarize(times, served);
  return served;
}

}  // namespace cgtree::serve
