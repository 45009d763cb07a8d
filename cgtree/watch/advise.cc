// Decides what a report advises: each advice has a condition and the numbers behind it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cgtree/watch/report.h"

namespace cgtree {
namespace {

// From how many on something is no accident.
constexpr std::uint64_t kEnoughRecordings = 2;
constexpr std::uint64_t kEnoughReplays = 10;
constexpr std::uint64_t kEnoughEvictions = 4;
constexpr std::uint64_t kManyKeys = 8;      // of recordings that are not replayed
constexpr std::uint64_t kLargeCopy = 4096;  // bytes
constexpr double kMuchPadding = 1.5;        // padded sizes over actual ones
constexpr double kWorthAChange = 0.9;       // of the padded sizes, that other buckets would leave

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
  const Mismatch* last = nullptr;
};

// An Adviser collects.
class Adviser {
 public:
  explicit Adviser(const ReportFacts& facts) : facts_(facts) {}

  std::vector<Advice> take() {
    for (const FunctionFacts& function : facts_.functions) {
      advise_on_skips(function);
      advise_on_evictions(function);
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

  void advise_on_skips(const FunctionFacts& function) {
    for (int i = 0; i < kSkipReasonCount; ++i) {
      const auto reason = static_cast<SkipReason>(i);
      const std::uint64_t count = function.stats.skipped(reason);
      if (count == 0 || is_on_purpose(reason)) continue;
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
    std::map<std::tuple<std::size_t, Mismatch::Kind, std::uint32_t>, Causes> all;
    for (const RecordingFacts& one : facts_.recordings) {
      if (one.cause.kind == Mismatch::Kind::kNone) continue;
      Causes& causes = all[{one.function, one.cause.kind, one.cause.input}];
      ++causes.count;
      causes.us += one.us;
      causes.replays += one.replays;
      causes.last = &one.cause;
    }
    Causes of_held;
    for (const auto& [key, causes] : all) {
      if (std::get<1>(key) == Mismatch::Kind::kFootprint && facts_.generations == 0) {
        of_held.count += causes.count;
        of_held.us += causes.us;
        of_held.replays += causes.replays;
        continue;
      }
      const FunctionFacts& function = facts_.functions[std::get<0>(key)];
      // Each size that calls are padded to has a recording of its own.
      const bool is_of_axes =
          std::get<1>(key) == Mismatch::Kind::kSignature && !function.axes.empty();
      const bool is_of_keys = std::get<1>(key) == Mismatch::Kind::kKey;
      if (is_of_keys ? !is_of_lost_keys(causes) : !is_costly(causes) || is_of_axes) continue;
      add(fmt::format("'{}': {}", function.name, advice(*causes.last)),
          fmt::format("{} took {:.1f} ms: {}", plural(causes.count, "recording"),
                      static_cast<double>(causes.us) / 1000, to_string(*causes.last)),
          causes.count);
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
        causes.count + facts_.live_outputs);
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
  std::vector<Advice> found_;
};

}  // namespace

std::vector<Advice> advise(const ReportFacts& facts) {
  return Adviser(facts).take();
}

}  // namespace cgtree
