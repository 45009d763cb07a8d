// Decides what a report advises: each advice has a condition and the numbers behind it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "extensions/watch/call_causes.h"
#include "extensions/watch/report.h"

namespace cgtree {
namespace {

// From how many on something is no accident.
constexpr std::uint64_t kEnoughRecordings = 2;
constexpr std::uint64_t kEnoughReplays = 10;
constexpr std::uint64_t kEnoughEvictions = 4;
constexpr std::uint64_t kManyKeys = 8;       // of warm-ups or recordings that come to nothing
constexpr std::uint64_t kShareOfCalls = 10;  // a tenth of the calls is no accident
constexpr std::uint64_t kLargeCopy = 4096;   // bytes
constexpr double kMuchPadding = 1.5;         // padded sizes over actual ones
constexpr double kWorthAChange = 0.9;        // of the padded sizes, that other buckets would leave

// What the caller asks for, or gets a graph in another way.
bool is_on_purpose(SkipReason reason) {
  return reason == SkipReason::kDisabled || reason == SkipReason::kNoGraphScope ||
         reason == SkipReason::kNestedCall || reason == SkipReason::kForeignCapture;
}

std::string plural(std::uint64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

std::uint64_t padded_sum(const std::vector<SizeCount>& sizes,
                         const std::vector<std::int64_t>& buckets) {
  std::uint64_t sum = 0;
  for (const SizeCount& one : sizes) {
    const auto bucket = std::ranges::lower_bound(buckets, one.size);
    sum += one.count * static_cast<std::uint64_t>(bucket == buckets.end() ? one.size : *bucket);
  }
  return sum;
}

std::int64_t largest_size(const AxisFacts& axis) {
  std::int64_t largest = 0;
  for (const SizeCount& one : axis.sizes)
    largest = std::max(largest, one.size);
  return largest;
}

// The recordings of one function that were made for the same reason.
struct Causes {
  std::uint64_t count = 0;
  std::uint64_t us = 0;
  std::uint64_t replays = 0;  // of these recordings
  std::uint64_t skipped = 0;  // calls that a limit kept from one recording more
  const Mismatch* last = nullptr;
};

// Which recordings are of one kind: function, difference and input.
using CauseKey = std::tuple<std::size_t, Mismatch::Kind, std::uint32_t>;

// An Adviser collects.
class Adviser {
 public:
  explicit Adviser(const ReportFacts& facts) : facts_(facts) {
    for (const RecordingFacts& one : facts_.recordings) {
      if (one.cause.kind == Mismatch::Kind::kNone) continue;
      Causes& causes = causes_[{one.function, one.cause.kind, one.cause.input}];
      ++causes.count;
      causes.us += one.us;
      causes.replays += one.replays;
      causes.last = &one.cause;
    }
  }

  std::vector<Advice> take() {
    for (std::size_t i = 0; i < facts_.functions.size(); ++i) {
      const FunctionFacts& function = facts_.functions[i];
      advise_on_failures(function);
      advise_on_warm_ups(function);
      advise_on_skips(i);
      if (!wasteful_cause(i)) advise_on_evictions(function);
      for (const AxisFacts& axis : function.axes)
        advise_on_padding(function, axis);
    }
    advise_on_times();
    advise_on_causes();
    advise_on_copies();
    advise_on_foreign_memory();
    std::ranges::stable_sort(found_, std::greater(), &Advice::weight);
    return std::move(found_);
  }

 private:
  void add(std::string text, std::string numbers, std::uint64_t weight) {
    found_.push_back({std::move(text), std::move(numbers), weight});
  }

  void advise_on_failures(const FunctionFacts& function) {
    const FunctionStats& stats = function.stats;
    if (kShareOfCalls * stats.failures < stats.calls || stats.failures == 0) return;
    add(fmt::format("'{}': mend what it throws: a call that throws is neither a warm-up nor a "
                    "recording",
                    function.name),
        fmt::format("{} of {} threw, the last: {}", stats.failures, plural(stats.calls, "call"),
                    function.causes.last_failure),
        stats.failures);
  }

  // Each call has other inputs than the one before, so that none is the second of its kind.
  void advise_on_warm_ups(const FunctionFacts& function) {
    const FunctionStats& stats = function.stats;
    const std::uint64_t lost = stats.warm_ups - std::min(stats.recordings, stats.warm_ups);
    const Mismatch& changed = function.causes.changed;
    if (lost < kManyKeys || kShareOfCalls * lost < stats.calls) return;
    if (changed.kind == Mismatch::Kind::kNone) return;
    Explanation why{.outcome = Outcome::kWarmUp};
    why.changed = changed;
    why.axes.resize(function.axes.size());
    add(fmt::format("'{}': {}", function.name, advice(why)),
        fmt::format("{} of {} were warmed up and not recorded: {}", lost,
                    plural(stats.calls, "call"), sides_of_change(changed)),
        lost);
  }

  // Returns the cause of most recordings of the function, if they are hardly replayed.
  std::optional<CauseKey> wasteful_cause(std::size_t function) const {
    const auto recordings = static_cast<std::uint64_t>(std::ranges::count_if(
        facts_.recordings, [&](const RecordingFacts& one) { return one.function == function; }));
    for (const auto& [key, causes] : causes_) {
      const auto& [of, kind, input] = key;
      if (of != function || 2 * causes.count <= recordings || !is_costly(causes)) continue;
      if (kind == Mismatch::Kind::kKey) continue;
      const bool is_of_axes =
          kind == Mismatch::Kind::kSignature && !facts_.functions[of].axes.empty();
      if (kind >= Mismatch::Kind::kSignature && !is_of_axes) return key;
    }
    return std::nullopt;
  }

  void advise_on_skips(std::size_t number) {
    const FunctionFacts& function = facts_.functions[number];
    const std::optional<CauseKey> wasteful = wasteful_cause(number);
    for (int i = 0; i < kSkipReasonCount; ++i) {
      const auto reason = static_cast<SkipReason>(i);
      const std::uint64_t count = function.stats.skipped(reason);
      if (count == 0 || is_on_purpose(reason)) continue;
      if (wasteful && is_of_limit(reason)) {  // more recordings would be as useless
        causes_[*wasteful].skipped += count;
        continue;
      }
      std::string to_do(advice(reason));
      if (reason == SkipReason::kAboveLargestBucket) {
        for (const AxisFacts& axis : function.axes) {
          const std::int64_t largest = largest_size(axis);
          if (axis.buckets.empty() || largest <= std::ranges::max(axis.buckets)) continue;
          to_do = fmt::format("add a bucket of {} to axis '{}', whose largest is {}", largest,
                              axis.axis, std::ranges::max(axis.buckets));
        }
      }
      add(fmt::format("'{}': {}", function.name, to_do),
          fmt::format("{} of {} ran eagerly: {}", count, plural(function.stats.calls, "call"),
                      explain(reason)),
          count);
    }
  }

  void advise_on_evictions(const FunctionFacts& function) {
    const FunctionStats& stats = function.stats;
    if (stats.evictions < kEnoughEvictions || 2 * stats.evictions < stats.recordings) return;
    add(fmt::format("'{}': raise the limit at which its recordings are evicted", function.name),
        fmt::format("{} of {} were evicted, and may have been made again", stats.evictions,
                    plural(stats.recordings, "recording")),
        stats.evictions);
  }

  void advise_on_padding(const FunctionFacts& function, const AxisFacts& axis) {
    if (axis.actual == 0 || axis.sizes.empty()) return;
    const auto actual = static_cast<double>(axis.actual);
    const auto padded = static_cast<double>(axis.padded);
    if (padded < kMuchPadding * actual) return;
    std::vector<SizeCount> sizes = axis.sizes;
    std::erase_if(sizes, [](const SizeCount& one) { return one.size <= 0; });
    if (sizes.empty()) return;
    std::vector<std::int64_t> now = axis.buckets;
    std::ranges::sort(now);
    const std::vector<std::int64_t> better =
        suggest_buckets(sizes, std::max<std::size_t>(now.size(), 4));
    if (static_cast<double>(padded_sum(sizes, better)) > kWorthAChange * padded) return;
    const std::uint64_t calls =
        std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0},
                        [](std::uint64_t sum, const SizeCount& one) { return sum + one.count; });
    add(fmt::format("'{}': give axis '{}' buckets that fit its sizes, such as {{{}}}",
                    function.name, axis.axis, fmt::join(better, ", ")),
        fmt::format("{:.0f} % of its padded size is padding: {} became {} in {}",
                    100 * (1 - actual / padded), axis.actual, axis.padded, plural(calls, "call")),
        calls);
  }

  void advise_on_times() {
    for (const auto& [function, times] : facts_.times) {
      if (times.count < kEnoughReplays || !times.are_bound_by_host()) continue;
      const auto mean_us = [&](std::chrono::nanoseconds sum) {
        return static_cast<double>(sum.count()) / 1000 / static_cast<double>(times.count);
      };
      add(fmt::format("'{}': it is bound by the host: put more work into one call", function),
          fmt::format(
              "a replay takes {:.1f} us on the host and {:.1f} us on the device, in the mean "
              "of {}",
              mean_us(times.host), mean_us(times.device), plural(times.count, "replay")),
          times.count);
    }
  }

  void advise_on_causes() {
    Causes of_held;
    for (const auto& [key, causes] : causes_) {
      if (std::get<1>(key) == Mismatch::Kind::kFootprint && facts_.generations == 0) {
        of_held.count += causes.count;
        of_held.us += causes.us;
        of_held.replays += causes.replays;
        of_held.skipped += causes.skipped;
        continue;
      }
      const FunctionFacts& function = facts_.functions[std::get<0>(key)];
      // Each size that calls are padded to has a recording of its own.
      const bool is_of_axes =
          std::get<1>(key) == Mismatch::Kind::kSignature && !function.axes.empty();
      const bool is_of_keys = std::get<1>(key) == Mismatch::Kind::kKey;
      if (is_of_keys ? !is_of_lost_keys(causes) : !is_costly(causes) || is_of_axes) continue;
      add(fmt::format("'{}': {}", function.name, advice(*causes.last)),
          fmt::format("{} took {:.1f} ms{}: {}", plural(causes.count, "recording"),
                      static_cast<double>(causes.us) / 1000,
                      causes.skipped == 0 ? ""
                                          : fmt::format(", and {} ran eagerly at the limit",
                                                        plural(causes.skipped, "call")),
                      to_string(*causes.last)),
          causes.count + causes.skipped);
    }
    if (is_costly(of_held)) advise_mark_step(of_held);
  }

  // Recordings that are replayed often are worth what they cost: those of two buffers that take
  // turns, for instance.
  static bool is_costly(const Causes& causes) {
    return causes.count >= kEnoughRecordings && causes.replays < kEnoughReplays * causes.count;
  }

  // Each key has a recording of its own, as it should: keys that do not come again are the fault.
  static bool is_of_lost_keys(const Causes& causes) {
    return causes.count >= kManyKeys && causes.replays < causes.count;
  }

  void advise_mark_step(const Causes& causes) {
    std::string most;
    const auto by_count = [](const auto& one, const auto& other) {
      return one.second < other.second;
    };
    const auto holder = std::ranges::max_element(facts_.held, by_count);
    if (holder != facts_.held.end()) {
      most = fmt::format(", at least {} of them of '{}'", holder->second, holder->first);
    }
    add("call mark_step() where a step begins: it was never called",
        fmt::format("{} took {:.1f} ms because outputs were held; {} held now{}",
                    plural(causes.count, "recording"), static_cast<double>(causes.us) / 1000,
                    facts_.live_outputs == 1 ? "1 is" : fmt::format("{} are", facts_.live_outputs),
                    most),
        causes.count + causes.skipped + facts_.live_outputs);
  }

  // An input that was at one address in all replays need not be copied.
  void advise_on_copies() {
    struct Copies {
      std::uint64_t bytes = 0, replays = 0;
      bool has_moved = false;
    };
    std::map<std::pair<std::size_t, std::uint32_t>, Copies> all;
    for (const RecordingFacts& one : facts_.recordings) {
      for (const CopiedInput& copied : one.copied) {
        Copies& copies = all[{one.function, copied.input}];
        copies.bytes = std::max(copies.bytes, copied.bytes);
        copies.replays += one.replays;
        copies.has_moved = copies.has_moved || one.has_moved;
      }
    }
    for (const auto& [key, copies] : all) {
      const bool may_be_static = !copies.has_moved && copies.replays >= kEnoughReplays;
      if (!may_be_static || copies.bytes < kLargeCopy) continue;
      add(fmt::format("'{}': declare input {} static, if its address stays",
                      facts_.functions[key.first].name, key.second),
          fmt::format("{} bytes are copied at each replay, and it has not moved in {}",
                      copies.bytes, plural(copies.replays, "replay")),
          copies.replays);
    }
  }

  // Replays go on to use such memory after it was freed.
  void advise_on_foreign_memory() {
    struct Foreign {
      std::uint64_t pointers = 0, recordings = 0, replays = 0;
      const std::string* first = nullptr;
    };
    std::map<std::size_t, Foreign> all;
    for (const RecordingFacts& one : facts_.recordings) {
      if (one.foreign.empty()) continue;
      Foreign& foreign = all[one.function];
      foreign.pointers += one.foreign.size();
      ++foreign.recordings;
      foreign.replays += one.replays;
      if (foreign.first == nullptr) foreign.first = &one.foreign.front();
    }
    for (const auto& [function, foreign] : all) {
      add(fmt::format("'{}': pass or bind, or declare(), the memory that its kernels use and that "
                      "nothing keeps; when it goes, replays are wrong",
                      facts_.functions[function].name),
          fmt::format("{} in {}: {}", plural(foreign.pointers, "pointer"),
                      plural(foreign.recordings, "recording"), *foreign.first),
          foreign.recordings + foreign.replays);
    }
  }

  const ReportFacts& facts_;
  std::map<CauseKey, Causes> causes_;
  std::vector<Advice> found_;
};

}  // namespace

std::vector<Advice> advise(const ReportFacts& facts) {
  return Adviser(facts).take();
}

}  // namespace cgtree
