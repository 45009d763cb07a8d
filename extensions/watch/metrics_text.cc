// Writes metrics in the text exposition format: each family once, with a sample for each context,
// function and label.
#include "extensions/watch/metrics.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "extensions/scopes/utf8.h"
#include "extensions/verify/verification.h"

namespace cgtree {
namespace {

// Names come from the caller, and may not be UTF-8, which the format requires.
std::string escaped(std::string_view text) {
  std::string value;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) {
      value += "\xef\xbf\xbd";  // U+FFFD, the replacement character
    } else if (text[0] == '\n') {
      value += "\\n";
    } else {
      if (text[0] == '\\' || text[0] == '"') value += '\\';
      value += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return value;
}

template <typename Duration>
double in_seconds(Duration time) {
  return std::chrono::duration<double>(time).count();
}

using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

// A MetricsText is the growing text, family by family.
class MetricsText {
 public:
  explicit MetricsText(std::span<const ContextMetrics> contexts) : contexts_(contexts) {}

  // Begins a family. Calls samples(one) for each ContextMetrics or, if it takes FunctionMetrics,
  // for each of these.
  template <typename Samples>
  void family(std::string_view name, std::string_view type, std::string_view help,
              Samples&& samples) {
    name_ = name;
    text_ += str_format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    for (const ContextMetrics& context : contexts_) {
      labels_ = str_format("context=\"{}\"", escaped(context.context));
      if constexpr (std::is_invocable_v<Samples, const ContextMetrics&>) {
        samples(context);
      } else {
        const std::string of_context = labels_;
        for (const FunctionMetrics& one : context.functions) {
          labels_ = str_format("{},function=\"{}\"", of_context, escaped(one.function));
          samples(one);
        }
      }
    }
  }
  // The next two write families with a sample for each function or context: a counter of it.
  void counted(std::string_view name, std::string_view type, std::string_view help,
               std::uint64_t FunctionStats::*counter) {
    family(name, type, help, [&](const FunctionMetrics& one) { add({}, one.stats.*counter); });
  }
  void counted(std::string_view name, std::string_view type, std::string_view help,
               std::uint64_t ContextStats::*counter) {
    family(name, type, help, [&](const ContextMetrics& one) { add({}, one.stats.*counter); });
  }

  // The next three add samples of the family's present context or function.
  template <typename Number>
  void add(const Labels& labels, Number value, std::string_view suffix = "") {
    text_ += str_format("{}{}{{{}", name_, suffix, labels_);
    for (const auto& [label, text] : labels)
      text_ += str_format(",{}=\"{}\"", label, escaped(text));
    text_ += str_format("}} {}\n", value);
  }
  // Adds the counts that are not 0, with the names of the enumeration.
  template <typename Enum, std::size_t kCount>
  void add_counts(std::string_view label, const std::array<std::uint64_t, kCount>& counts) {
    for (std::size_t i = 0; i < kCount; ++i)
      if (counts[i] > 0) add({{label, name(static_cast<Enum>(i))}}, counts[i]);
  }
  // `bounds`: in microseconds, without the highest.
  void add_histogram(const Labels& labels, std::span<const std::int64_t> bounds,
                     std::span<const std::uint64_t> counts, double seconds) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      sum += counts[i];
      const std::string bound =
          i == bounds.size() ? "+Inf" : str_format("{}", static_cast<double>(bounds[i]) / 1e6);
      Labels with_bound = labels;
      with_bound.emplace_back("le", bound);
      add(with_bound, sum, "_bucket");
    }
    add(labels, seconds, "_sum");
    add(labels, sum, "_count");
  }

  std::string take() { return std::move(text_); }

 private:
  const std::span<const ContextMetrics> contexts_;
  std::string_view name_;
  std::string labels_;  // of all samples of the context or function
  std::string text_;
};

void add_calls(MetricsText& text) {
  text.family("cgtree_calls_total", "counter", "Calls that have ended, by what they did.",
              [&](const FunctionMetrics& one) {
                text.add({{"outcome", "warm_up"}}, one.stats.warm_ups);
                text.add({{"outcome", "record"}}, one.stats.recordings);
                text.add({{"outcome", "replay"}}, one.stats.replays);
                text.add({{"outcome", "skip"}}, one.stats.skipped());
                text.add({{"outcome", "failure"}}, one.stats.failures);
              });
  text.family(
      "cgtree_skips_total", "counter",
      "Calls that ran eagerly on purpose, by reason; reasons that occurred.",
      [&](const FunctionMetrics& one) { text.add_counts<SkipReason>("reason", one.stats.skips); });
  text.family(
      "cgtree_warm_ups_total", "counter",
      "Calls that were warmed up, by how they differed from the warm-up before; causes "
      "that occurred.",
      [&](const FunctionMetrics& one) { text.add_counts<Cause>("cause", one.causes.warm_ups); });
  text.family(
      "cgtree_recordings_total", "counter",
      "Calls that recorded, by why no earlier recording served them; causes that occurred.",
      [&](const FunctionMetrics& one) { text.add_counts<Cause>("cause", one.causes.recordings); });
  text.counted("cgtree_evictions_total", "counter", "Recordings that were dropped at a limit.",
               &FunctionStats::evictions);
  text.counted("cgtree_recordings", "gauge", "Recordings that are kept now.",
               &FunctionStats::kept_recordings);
  text.counted("cgtree_frozen_functions", "gauge",
               "Functions that record nothing now, by freeze().", &FunctionStats::frozen);
}

void add_verification(MetricsText& text) {
  text.counted("cgtree_verified_replays_total", "counter",
               "Replays that were compared with an eager run.", &FunctionStats::verified);
  text.counted("cgtree_differing_replays_total", "counter",
               "Verified replays that differed from the eager run; the call has failed.",
               &FunctionStats::differed);
  text.family("cgtree_unverified_replays_total", "counter",
              "Replays that were to be verified and were not, by reason; reasons that occurred.",
              [&](const FunctionMetrics& one) {
                text.add_counts<UnverifiedReason>("reason", one.stats.unverified);
              });
}

void add_axes(MetricsText& text) {
  const auto of_axes = [&](std::string_view name, std::string_view type, std::string_view help,
                           auto&& value) {
    text.family(name, type, help, [&](const FunctionMetrics& one) {
      for (const AxisMetrics& axis : one.axes)
        if (axis.sums.actual > 0) text.add({{"axis", axis.axis}}, value(axis.sums));
    });
  };
  of_axes("cgtree_axis_actual_size_total", "counter",
          "Sum of the sizes of calls along a dynamic axis.",
          [](const SizeSums& sums) { return sums.actual; });
  of_axes("cgtree_axis_padded_size_total", "counter",
          "Sum of the same sizes as the policy of the axis rounds them up.",
          [](const SizeSums& sums) { return sums.padded; });
  of_axes("cgtree_padded_ratio", "gauge",
          "Padded sizes divided by actual sizes of all calls so far; 1: nothing is padded.",
          [](const SizeSums& sums) {
            return static_cast<double>(sums.padded) / static_cast<double>(sums.actual);
          });
}

void add_times(MetricsText& text) {
  text.family("cgtree_record_seconds", "histogram",
              "How long recordings took, from deciding to record until the call returns.",
              [&](const ContextMetrics& context) {
                text.add_histogram({}, kRecordTimeBounds, context.record_times,
                                   in_seconds(context.record_time));
              });
  text.family("cgtree_recording_time_seconds_total", "counter",
              "Time spent on warming up and recording, failed attempts included.",
              [&](const ContextMetrics& context) {
                text.add({}, in_seconds(context.stats.recording_time));
              });
  text.family("cgtree_replay_device_seconds", "histogram",
              "How long replays took on the device; of those that were timed.",
              [&](const FunctionMetrics& one) {
                const ReplayTimes& times = one.replay_times;
                if (times.count == 0) return;
                text.add_histogram({}, kReplayTimeBounds, times.histogram,
                                   in_seconds(times.device));
              });
  text.family("cgtree_scope_device_seconds", "histogram",
              "How long the work of a scope, without scopes inside of it, took on the device in a "
              "replay; of replays that were timed by scopes.",
              [&](const FunctionMetrics& one) {
                for (const auto& [scope, times] : one.scope_times)
                  text.add_histogram({{"scope", scope}}, kReplayTimeBounds, times.histogram,
                                     in_seconds(times.device));
              });
  text.family("cgtree_replay_host_seconds_total", "counter",
              "How long the calls of the timed replays took on the host.",
              [&](const FunctionMetrics& one) {
                const ReplayTimes& times = one.replay_times;
                if (times.count > 0) text.add({}, in_seconds(times.host));
              });
  text.family("cgtree_replays_that_found_the_stream_idle_total", "counter",
              "Timed replays before which the device had nothing to do on the stream.",
              [&](const FunctionMetrics& one) {
                if (one.replay_times.count > 0) text.add({}, one.replay_times.found_idle);
              });
}

void add_memory(MetricsText& text) {
  text.family("cgtree_pool_bytes", "gauge", "Device memory that the pools hold, by region.",
              [&](const ContextMetrics& context) {
                for (const RegionMetrics& one : context.regions)
                  text.add({{"region", one.region}}, one.reserved_bytes);
              });
  text.family("cgtree_pool_allocated_bytes", "gauge",
              "The part of the pools that is in blocks in use, by region.",
              [&](const ContextMetrics& context) {
                for (const RegionMetrics& one : context.regions)
                  text.add({{"region", one.region}}, one.allocated_bytes);
              });
  text.counted("cgtree_graph_bytes", "gauge",
               "Device memory of the graphs of recordings, estimated.", &ContextStats::graph_bytes);
  text.counted("cgtree_live_outputs", "gauge", "Outputs that are held now.",
               &ContextStats::live_outputs);
  text.counted("cgtree_live_output_bytes", "gauge", "Bytes of the outputs that are held now.",
               &ContextStats::pool_live_bytes);
}

// Two contexts of one name would make two samples with the same labels.
void check_names(std::span<const ContextMetrics> contexts) {
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (escaped(contexts[i].context) != escaped(contexts[j].context)) continue;
      throw InvalidArgument(str_format(
          "metrics of two contexts that are both named \"{}\": give each a ContextOptions::name of "
          "its own",
          contexts[i].context));
    }
  }
}

}  // namespace

std::string metrics_text(std::span<const ContextMetrics> contexts) {
  check_names(contexts);
  MetricsText text(contexts);
  text.family("cgtree_context_info", "gauge", "1 for each context; its device is a label.",
              [&](const ContextMetrics& context) {
                text.add({{"device", context.device}}, 1);
              });
  add_calls(text);
  add_verification(text);
  add_axes(text);
  add_times(text);
  add_memory(text);
  text.counted("cgtree_generations_total", "counter", "Calls of mark_step().",
               &ContextStats::generations);
  text.counted("cgtree_pool_restores_total", "counter",
               "Times the pool was given an earlier layout.", &ContextStats::restores);
  text.counted("cgtree_root_patches_total", "counter",
               "Replays whose inputs had moved, or that draw random numbers.",
               &ContextStats::root_patches);
  return text.take();
}

}  // namespace cgtree
