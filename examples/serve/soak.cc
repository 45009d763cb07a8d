// Rounds over lanes that live as long as the soak.
#include "examples/serve/soak.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>

#include "examples/serve/hash.h"
#include "examples/serve/progress.h"
#include "examples/serve/step_lane.h"

namespace cgtree::serve {
namespace {

using Clock = Progress::Clock;

constexpr std::size_t kMebibyte = 1 << 20;
// A segment more is no leak: sizes are random. Neither is a heap that has found its shape late.
constexpr std::size_t kPoolSlack = 2 * kMebibyte;
constexpr std::size_t kResidentSlack = 16 * kMebibyte;

// Sanitizers keep freed memory, so that the process grows however clean it is.
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
        eager_(model, SizePlan(Policy::kExact, 0, options.limits(), sizes), options_.max_prompt,
               CacheUse::kStatic, false),
        progress_(stderr, "soak", options.soak_seconds, "second") {
    for (const Policy policy : policies_of(options)) {
      for (const CacheUse use : {CacheUse::kStatic, CacheUse::kCopied}) {
        report_.lanes.push_back({policy, options.budget, use == CacheUse::kCopied, {}, {}});
        const SizePlan plan(policy, options.budget, options.limits(), sizes);
        lanes_.push_back(std::make_unique<StepLane>(model, plan, options_.max_prompt, use, true));
      }
    }
  }

  SoakReport run() {
    while (!is_over() && !report_.failure) {
      serve_round(static_cast<std::size_t>(report_.rounds) % lanes_.size());
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
  // Each lane has had two rounds at least.
  bool is_settling() const {
    return std::cmp_less(report_.rounds, 2 * lanes_.size()) ||
           Clock::now() - start_ < std::min<Clock::duration>(std::chrono::minutes(1), length_ / 3);
  }

  // At most 100 requests in a row, arriving up to four times slower or faster than in the trace.
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
    StepLane& lane = *lanes_[index];
    Scheduler scheduler(requests, options);
    while (!is_over() && !report_.failure && scheduler.begin_step()) {
      lane.launch(scheduler);
      eager_.launch(scheduler);
      lane.wait();
      eager_.wait();
      compare(index, lane);
      scheduler.end_step(lane.first(), lane.next());
      ++report_.steps;
      progress_.update(static_cast<std::int64_t>(seconds()), report_.tokens + scheduler.generated(),
                       Clock::now());
    }
    report_.tokens += scheduler.generated();
  }

  void compare(std::size_t index, const StepLane& lane) {
    if (std::ranges::equal(lane.first(), eager_.first()) &&
        std::ranges::equal(lane.next(), eager_.next())) {
      return;
    }
    report_.failure =
        fmt::format("tokens differ: policy {}{}, round {}, step {}: {} eagerly, {} through cgtree",
                    name(report_.lanes[index].policy),
                    report_.lanes[index].copies_cache ? ", copied cache" : "", report_.rounds,
                    report_.steps, text_of(eager_), text_of(lane));
  }
  static std::string text_of(const StepLane& lane) {
    return fmt::format("{} | {}", fmt::join(lane.first(), " "), fmt::join(lane.next(), " "));
  }

  void watch() {
    const bool settling = is_settling();
    report_.resident.see(resident_bytes(), !settling);
    if (!kKeepsFreedMemory && report_.resident.has_grown(kResidentSlack)) {
      fail("the process", report_.resident);
    }
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      SoakedLane& lane = report_.lanes[i];
      lane.stats = lanes_[i]->stats();
      lane.pool.see(lane.stats.pool_reserved_bytes, !settling);
      if (lane.pool.has_grown(kPoolSlack)) {
        fail(fmt::format("the pool of policy {}", name(lane.policy)), lane.pool);
      }
      // Decode and prefill have the budget each.
      if (lane.budget != 0 && std::cmp_greater(lane.stats.kept_recordings, 2 * lane.budget)) {
        report_.failure = fmt::format("policy {} keeps {} recordings, more than two times {}",
                                      name(lane.policy), lane.stats.kept_recordings, lane.budget);
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
  StepLane eager_;
  std::vector<std::unique_ptr<StepLane>> lanes_;
  Progress progress_;
  SoakReport report_;
};

}  // namespace

void Watched::see(std::size_t bytes, bool is_settled) {
  most = std::max(most, bytes);
  if (!is_settled) settled = most;
}

// The eager one, and one for each use of the cache.
std::int64_t count_lanes(const Options& options) {
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
  for (const SoakedLane& lane : report.lanes) {
    table +=
        fmt::format("{:<10}{:>7}{:>8}{:>10}{:>9}{:>8}{:>6}{:>9}{:>13}{:>13}\n", name(lane.policy),
                    lane.budget, lane.copies_cache ? "copied" : "static", lane.stats.calls,
                    lane.stats.replays, lane.stats.recordings, lane.stats.kept_recordings,
                    lane.stats.evictions, lane.pool.settled, lane.pool.most);
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
                                 {"lanes", nlohmann::ordered_json::array()}};
  json["failure"] = report.failure ? nlohmann::ordered_json(*report.failure) : nullptr;
  for (const SoakedLane& lane : report.lanes) {
    json["lanes"].push_back({{"policy", name(lane.policy)},
                             {"budget", lane.budget},
                             {"copies_cache", lane.copies_cache},
                             {"calls", lane.stats.calls},
                             {"replays", lane.stats.replays},
                             {"recordings_made", lane.stats.recordings},
                             {"recordings_kept", lane.stats.kept_recordings},
                             {"evictions", lane.stats.evictions},
                             {"graph_bytes", lane.stats.graph_bytes},
                             {"pool_bytes", watched(lane.pool)}});
  }
  return json;
}

}  // namespace cgtree::serve
