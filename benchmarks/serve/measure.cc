// Schedules, launches and waits until every request is finished, and sums up the measurements.
#include "benchmarks/serve/measure.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <variant>

#include "base/error.h"
#include "examples/serve/numbers.h"
#include "extensions/verify/verify.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"

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

void add(Work& work, std::int64_t rows, std::int64_t with_padding) {
  work.rows += with_padding;
  work.padded += with_padding - rows;
}

// Adds the work of the step.
// `learned`: the batches that decode() may be padded to beside the plan's.
void add_work(const Scheduler& scheduler, const SizePlan& plan, const Sizes& learned,
              Served& served) {
  if (const std::int64_t count = std::ssize(scheduler.prompts()); count > 0) {
    std::int64_t tokens = 0;
    for (const Prompt& prompt : scheduler.prompts())
      tokens += prompt.length;
    const std::int64_t length = longest(scheduler.prompts());
    add(served.prefill_work, tokens, plan.prefill_rows(count, length));
  }
  if (const std::int64_t count = std::ssize(scheduler.rows()); count > 0) {
    add(served.decode_work, count, StepBuckets::pad(learned, plan.decode_rows(count)));
  }
}

void take_stats(const Server& server, const FunctionStats& settled, Served& served) {
  served.decode = server.decode_stats();
  served.prefill = server.prefill_stats();
  served.context = server.stats();
  served.verification = server.verification();
  if (served.decode.calls > kSettlingCalls) {
    served.replay_share_after_100 =
        share_of(served.decode.replays - settled.replays, served.decode.calls - settled.calls);
  }
}

constexpr const char* kWipe = "\r\x1b[K";

std::string gibibytes(std::int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

// Bytes of device memory.
struct MemoryNeeds {
  std::int64_t weights = 0;
  std::int64_t kv_cache = 0;
  std::int64_t step = 0;  // temporaries, including the rounding of pools

  std::int64_t total() const { return weights + kv_cache + step; }
};

MemoryNeeds estimate_memory(const ModelConfig& c, const SchedulerOptions& options, Device device) {
  const auto element = static_cast<std::int64_t>(size_of(number_type(device)));
  // The elements of a row: x, norm, qkv, attention, MLP; and logits, of which a prompt has one row.
  const std::int64_t wide = 3 * c.hidden + 3 * c.heads * c.head_size + 3 * c.ffn;
  const std::int64_t prompts = options.max_batch * options.max_prompt * wide * element;
  const std::int64_t logits = options.max_batch * c.vocabulary * 4;
  // Recordings share temporaries, except where sizes differ: four times the largest is enough.
  return {
      .weights = c.parameters() * element,
      .kv_cache = c.layers * 2 * options.blocks * kBlockSize * c.kv_heads * c.head_size * element,
      .step = 4 * (prompts + logits)};
}

}  // namespace

double Served::tokens_per_second() const {
  return seconds > 0 ? static_cast<double>(generated) / seconds : 0;
}

double Served::replay_share() const {
  return share_of(decode.replays, decode.calls);
}

void prime(const Model& model, const SchedulerOptions& options, const Rank& rank) {
  const Request twice{.context_tokens = 1, .generated_tokens = 2};
  const SizePlan plan(Policy::kExact, 0, {}, {});
  Server server(model, options, plan.decode(CacheUse::kStatic, false),
                plan.prefill(CacheUse::kStatic, false), 0, rank);
  Scheduler scheduler({&twice, 1}, options);
  while (scheduler.begin_step()) {
    server.launch(scheduler);
    server.wait();
    scheduler.end_step(server.first(), server.next());
  }
}

Served serve(const Model& model, std::span<const Request> requests, const SchedulerOptions& options,
             const SizePlan& plan, std::int64_t steps, bool compiled, const Rank& rank,
             std::size_t verify_every) {
  Server server(model, options, plan.decode(CacheUse::kStatic, compiled),
                plan.prefill(CacheUse::kStatic, compiled), 0, rank,
                {.extensions = {verify({.every = verify_every})}});
  if (!compiled) server.pad_to(plan.buckets());
  if (compiled && plan.learns()) server.learn(*plan.learns());
  Scheduler scheduler(requests, options);
  Progress progress(stderr, compiled ? "cgtree" : "eager", steps);
  Times times(steps);
  FunctionStats settled;

  Served served;
  const auto begin = Clock::now();
  for (auto start = begin; scheduler.begin_step(); start = Clock::now()) {
    (void)server.learn_between_steps();
    server.launch(scheduler);
    const auto launched = Clock::now();
    server.wait();
    const auto done = Clock::now();
    add_work(scheduler, plan, server.learned(), served);
    scheduler.end_step(server.first(), server.next());
    times.add(launched - start, done - start);
    progress.update(++served.steps, scheduler.generated(), done);
    if (settled.calls < kSettlingCalls) settled = server.decode_stats();
  }
  served.seconds = std::chrono::duration<double>(Clock::now() - begin).count();

  served.tokens = scheduler.tokens();
  served.generated = scheduler.generated();
  take_stats(server, settled, served);
  summarize(times, served);
  return served;
}

double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  const double rank = std::ceil(percent / 100.0 * static_cast<double>(values.size()));
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

Progress::Progress(std::FILE* file, std::string label, std::int64_t total, std::string unit)
    : file_(isatty(fileno(file)) != 0 ? file : nullptr),
      label_(std::move(label)),
      total_(std::max<std::int64_t>(total, 1)),
      unit_(std::move(unit)),
      start_(Clock::now()),
      next_draw_(start_) {
}

Progress::~Progress() {
  if (file_ == nullptr) return;
  std::fputs(kWipe, file_);
  std::fflush(file_);
}

void Progress::draw(std::int64_t done, std::int64_t tokens, Clock::time_point now) {
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  fmt::print(file_, "{}{:<6} {:>3}%  {} {} of {}  {:.0f} tokens/s", kWipe, label_,
             100 * done / total_, unit_, done, total_, rate);
  std::fflush(file_);
  next_draw_ = now + std::chrono::milliseconds(100);
}

void expect_memory(const ModelConfig& config, const SchedulerOptions& options,
                   std::int64_t contexts, Device device) {
  MemoryNeeds needs = estimate_memory(config, options, device);
  needs.kv_cache *= contexts;
  needs.step *= contexts;
  const AttributeValue value =
      device_api(device).attribute(device.id, DeviceAttribute::kFreeMemory);
  const std::int64_t* const free = std::get_if<std::int64_t>(&value);
  if (free == nullptr || needs.total() <= *free) return;
  throw OutOfMemory(fmt::format(
      "the model needs {} (weights {}, KV cache {}, each step {}), but {} has {} free: lower "
      "--layers, --context, --prompt or --max-batch, or take a smaller --model",
      gibibytes(needs.total()), gibibytes(needs.weights), gibibytes(needs.kv_cache),
      gibibytes(needs.step), to_string(device), gibibytes(*free)));
}
}  // namespace cgtree::serve
