// Rounds over contexts that live as long as the soak.
#include "benchmarks/serve/soak.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>

#include "benchmarks/serve/measure.h"
#include "examples/serve/numbers.h"
#include "examples/serve/server.h"

namespace cgtree::serve {
namespace {

using Clock = Progress::Clock;

constexpr std::size_t kMebibyte = 1 << 20;
// One more segment is not a leak, because sizes are random; nor is a heap that settles late.
constexpr std::size_t kPoolSlack = 2 * kMebibyte;
constexpr std::size_t kResidentSlack = 16 * kMebibyte;

// Sanitizers keep freed memory, so that every process grows.
#if defined(__has_feature)
#define SERVE_HAS_FEATURE(feature) __has_feature(feature)
#else
#define SERVE_HAS_FEATURE(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    SERVE_HAS_FEATURE(address_sanitizer) || SERVE_HAS_FEATURE(thread_sanitizer)
constexpr bool kKeepsFreedMemory = true;
#else
constexpr bool kKeepsFreedMemory = false;
#endif

// Source: proc(5), statm: the second number is the resident pages.
std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::vector<Policy> policies_of(const Options& options) {
  if (options.policy) return {*options.policy};
  return {Policy::kExact, Policy::kBuckets, Policy::kSuggested};
}

class Soak {
 public:
  Soak(const Model& model, std::span<const Request> requests, const Options& options,
       const StepSizes& sizes)
      : requests_(requests),
        options_(options.scheduler()),
        state_(mix(options_.seed)),
        length_(std::chrono::seconds(options.soak_seconds)),
        exact_(Policy::kExact, 0, options.limits(), sizes),
        eager_(model, options_, exact_.decode(CacheUse::kStatic, false),
               exact_.prefill(CacheUse::kStatic, false)),
        progress_(stderr, "soak", options.soak_seconds, "second") {
    for (const Policy policy : policies_of(options)) {
      for (const CacheUse use : {CacheUse::kStatic, CacheUse::kCopied}) {
        report_.contexts.push_back({policy, options.budget, use == CacheUse::kCopied, {}, {}});
        const SizePlan plan(policy, options.budget, options.limits(), sizes, options.batches);
        servers_.push_back(std::make_unique<Server>(model, options_, plan.decode(use, true),
                                                    plan.prefill(use, true)));
        buckets_.push_back(plan.buckets());
      }
    }
  }

  SoakReport run() {
    while (!is_over() && !report_.failure) {
      serve_round(static_cast<std::size_t>(report_.rounds) % servers_.size());
      ++report_.rounds;
      watch();
    }
    report_.seconds = seconds();
    return std::move(report_);
  }

 private:
  std::int64_t draw(std::int64_t bound) {
    state_ = mix(state_);
    return static_cast<std::int64_t>(state_ % static_cast<std::uint64_t>(bound));
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool is_over() const { return Clock::now() - start_ >= length_; }
  // Each context gets at least two rounds before growth counts.
  bool is_settling() const {
    return std::cmp_less(report_.rounds, 2 * servers_.size()) ||
           Clock::now() - start_ < std::min<Clock::duration>(std::chrono::minutes(1), length_ / 3);
  }

  // Returns at most 100 consecutive requests, which arrive up to four times slower or faster than
  // in the trace.
  std::vector<Request> draw_requests() {
    const std::int64_t count = 1 + draw(std::min<std::int64_t>(100, std::ssize(requests_)));
    const std::int64_t first = draw(std::ssize(requests_) - count + 1);
    const auto part =
        requests_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    std::vector<Request> drawn(part.begin(), part.end());
    const std::int64_t quarters = 1 + draw(16);
    for (Request& request : drawn)
      request.arrival_ns = (request.arrival_ns - part[0].arrival_ns) / 4 * quarters;
    return drawn;
  }

  void serve_round(std::size_t index) {
    const std::vector<Request> requests = draw_requests();
    SchedulerOptions options = options_;
    options.seed = static_cast<std::uint64_t>(draw(1 << 30));
    Server& server = *servers_[index];
    eager_.pad_to(buckets_[index]);
    Scheduler scheduler(requests, options);
    while (!is_over() && !report_.failure && scheduler.begin_step()) {
      server.launch(scheduler);
      eager_.launch(scheduler);
      server.wait();
      eager_.wait();
      compare(index, server);
      scheduler.end_step(server.first(), server.next());
      ++report_.steps;
      progress_.update(static_cast<std::int64_t>(seconds()), report_.tokens + scheduler.generated(),
                       Clock::now());
    }
    report_.tokens += scheduler.generated();
  }

  void compare(std::size_t index, const Server& server) {
    if (std::ranges::equal(server.first(), eager_.first()) &&
        std::ranges::equal(server.next(), eager_.next())) {
      return;
    }
    report_.failure =
        fmt::format("tokens differ: policy {}{}, round {}, step {}: {} eagerly, {} through cgtree",
                    name(report_.contexts[index].policy),
                    report_.contexts[index].copies_cache ? ", copied cache" : "", report_.rounds,
                    report_.steps, text_of(eager_), text_of(server));
  }
  static std::string text_of(const Server& server) {
    return fmt::format("{} | {}", fmt::join(server.first(), " "), fmt::join(server.next(), " "));
  }

  void watch() {
    const bool settling = is_settling();
    report_.resident.see(resident_bytes(), !settling);
    if (!kKeepsFreedMemory && report_.resident.has_grown(kResidentSlack)) {
      fail("the process", report_.resident);
    }
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      SoakedContext& context = report_.contexts[i];
      context.stats = servers_[i]->stats();
      context.pool.see(context.stats.pool_reserved_bytes, !settling);
      if (context.pool.has_grown(kPoolSlack)) {
        fail(fmt::format("the pool of policy {}", name(context.policy)), context.pool);
      }
      // Decode and prefill each have the budget.
      if (context.budget != 0 &&
          std::cmp_greater(context.stats.kept_recordings, 2 * context.budget)) {
        report_.failure =
            fmt::format("policy {} keeps {} recordings, more than two times {}",
                        name(context.policy), context.stats.kept_recordings, context.budget);
      }
    }
  }

  void fail(std::string_view what, const Watched& watched) {
    report_.failure = fmt::format("memory of {} grew from {} bytes to {}, round {}", what,
                                  watched.settled, watched.most, report_.rounds);
  }

  std::span<const Request> requests_;
  SchedulerOptions options_;
  std::uint64_t state_;
  Clock::duration length_;
  Clock::time_point start_ = Clock::now();
  SizePlan exact_;
  Server eager_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<StepBuckets> buckets_;  // by server
  Progress progress_;
  SoakReport report_;
};

}  // namespace

void Watched::see(std::size_t bytes, bool is_settled) {
  most = std::max(most, bytes);
  if (!is_settled) settled = most;
}

// One server is eager, and each policy has a server for each use of the cache.
std::int64_t count_contexts(const Options& options) {
  return 1 + 2 * std::ssize(policies_of(options));
}

SoakReport soak(const Model& model, std::span<const Request> requests, const Options& options,
                const StepSizes& sizes) {
  return Soak(model, requests, options, sizes).run();
}

std::string to_table(const SoakReport& report) {
  std::string table = fmt::format(
      "soaked for {:.0f} s: {} rounds, {} steps, {} tokens\n\n{:<10}{:>7}{:>8}{:>10}{:>9}{:>8}{:>6}"
      "{:>9}{:>13}{:>13}\n",
      report.seconds, report.rounds, report.steps, report.tokens, "policy", "budget", "cache",
      "calls", "replays", "made", "kept", "evicted", "pool settled", "pool most");
  for (const SoakedContext& context : report.contexts) {
    table += fmt::format(
        "{:<10}{:>7}{:>8}{:>10}{:>9}{:>8}{:>6}{:>9}{:>13}{:>13}\n", name(context.policy),
        context.budget, context.copies_cache ? "copied" : "static", context.stats.calls,
        context.stats.replays, context.stats.recordings, context.stats.kept_recordings,
        context.stats.evictions, context.pool.settled, context.pool.most);
  }
  table += fmt::format("\nmemory of the process, bytes: {} settled, {} most\n",
                       report.resident.settled, report.resident.most);
  return table + (report.failure ? fmt::format("\n{}\n", *report.failure)
                                 : "\nevery token equal, memory flat\n");
}

nlohmann::ordered_json to_json(const SoakReport& report) {
  const auto watched = [](const Watched& w) {
    return nlohmann::ordered_json{{"settled", w.settled}, {"most", w.most}};
  };
  nlohmann::ordered_json json = {{"seconds", report.seconds},
                                 {"rounds", report.rounds},
                                 {"steps", report.steps},
                                 {"tokens", report.tokens},
                                 {"resident_bytes", watched(report.resident)},
                                 {"contexts", nlohmann::ordered_json::array()}};
  json["failure"] = report.failure ? nlohmann::ordered_json(*report.failure) : nullptr;
  for (const SoakedContext& context : report.contexts) {
    json["contexts"].push_back({{"policy", name(context.policy)},
                                {"budget", context.budget},
                                {"copies_cache", context.copies_cache},
                                {"calls", context.stats.calls},
                                {"replays", context.stats.replays},
                                {"recordings_made", context.stats.recordings},
                                {"recordings_kept", context.stats.kept_recordings},
                                {"evictions", context.stats.evictions},
                                {"graph_bytes", context.stats.graph_bytes},
                                {"pool_bytes", watched(context.pool)}});
  }
  return json;
}

}  // namespace cgtree::serve
