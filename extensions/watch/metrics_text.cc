// Writes metrics in the text exposition format: each family once, with a sample for each context,
// function and label.
#include "cgtree/values/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cgtree/values/verification.h"
#include "extensions/scopes/utf8.h"

namespace cgtree {
namespace {

// Names are the caller's, and may not be UTF-8, which the format requires.
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

double seconds(std::int64_t microseconds) {
  return static_cast<double>(microseconds) / 1e6;
}

using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

// A MetricsText is the text as it grows: family by family.
class MetricsText {
 public:
  explicit MetricsText(std::span<const ContextMetrics> contexts) : contexts_(contexts) {}

  // Begins a family; samples(context) adds the samples of one context.
  template <typename Samples>
  void family(std::string_view name, std::string_view type, std::string_view help,
              Samples&& samples) {
    name_ = name;
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    for (const ContextMetrics& context : contexts_) {
      context_ = context.context;
      samples(context);
    }
  }
  // The same with one sample for each function.
  template <typename Value>
  void of_functions(std::string_view name, std::string_view type, std::string_view help,
                    Value&& value) {
    family(name, type, help, [&](const ContextMetrics& context) {
      for (const FunctionMetrics& one : context.functions)
        add({{"function", one.function}}, value(one.stats));
    });
  }
  // The same with one sample for each context.
  template <typename Value>
  void of_contexts(std::string_view name, std::string_view type, std::string_view help,
                   Value&& value) {
    family(name, type, help, [&](const ContextMetrics& context) { add({}, value(context)); });
  }

  template <typename Number>
  void add(const Labels& labels, Number value, std::string_view suffix = "") {
    text_ += fmt::format("{}{}{{context=\"{}\"", name_, suffix, escaped(context_));
    for (const auto& [label, text] : labels)
      text_ += fmt::format(",{}=\"{}\"", label, escaped(text));
    text_ += fmt::format("}} {}\n", value);
  }

  std::string take() { return std::move(text_); }

 private:
  const std::span<const ContextMetrics> contexts_;
  std::string_view name_;
  std::string_view context_;
  std::string text_;
};

void add_calls(MetricsText& text) {
  text.family("cgtree_calls_total", "counter", "Calls that have ended, by what they did.",
              [&](const ContextMetrics& context) {
                for (const FunctionMetrics& one : context.functions) {
                  const FunctionStats& stats = one.stats;
                  const std::pair<std::string_view, std::uint64_t> outcomes[] = {
                      {"warm_up", stats.warm_ups},
                      {"record", stats.recordings},
                      {"replay", stats.replays},
                      {"skip", stats.skipped()},
                      {"failure", stats.failures}};
                  for (const auto& [outcome, count] : outcomes)
                    text.add({{"function", one.function}, {"outcome", outcome}}, count);
                }
              });
  text.family("cgtree_skips_total", "counter",
              "Calls that ran eagerly on purpose, by reason; reasons that occurred.",
              [&](const ContextMetrics& context) {
                for (const FunctionMetrics& one : context.functions) {
                  for (int i = 0; i < kSkipReasonCount; ++i) {
                    const auto reason = static_cast<SkipReason>(i);
                    if (one.stats.skipped(reason) == 0) continue;
                    text.add({{"function", one.function}, {"reason", name(reason)}},
                             one.stats.skipped(reason));
                  }
                }
              });
  const auto of_causes = [&](std::string_view name_of_family, std::string_view help, auto counts) {
    text.family(name_of_family, "counter", help, [&](const ContextMetrics& context) {
      for (const FunctionMetrics& one : context.functions) {
        for (int i = 0; i < kCauseCount; ++i) {
          const std::uint64_t count = (one.causes.*counts)[static_cast<std::size_t>(i)];
          if (count == 0) continue;
          text.add({{"function", one.function}, {"cause", name(static_cast<Cause>(i))}}, count);
        }
      }
    });
  };
  of_causes("cgtree_warm_ups_total",
            "Calls that were warmed up, by how they differed from the warm-up before; causes that "
            "occurred.",
            &FunctionCauses::warm_ups);
  of_causes("cgtree_recordings_total",
            "Calls that recorded, by why no earlier recording served them; causes that occurred.",
            &FunctionCauses::recordings);
  text.of_functions("cgtree_evictions_total", "counter", "Recordings that were dropped at a limit.",
                    [](const FunctionStats& stats) { return stats.evictions; });
  text.of_functions("cgtree_recordings", "gauge", "Recordings that are kept now.",
                    [](const FunctionStats& stats) { return stats.kept_recordings; });
  text.of_functions("cgtree_frozen_functions", "gauge",
                    "Functions that record nothing now, by freeze().",
                    [](const FunctionStats& stats) { return stats.frozen; });
}

void add_verification(MetricsText& text) {
  text.of_functions("cgtree_verified_replays_total", "counter",
                    "Replays that were compared with an eager run.",
                    [](const FunctionStats& stats) { return stats.verified; });
  text.of_functions("cgtree_differing_replays_total", "counter",
                    "Verified replays that differed from the eager run; the call has failed.",
                    [](const FunctionStats& stats) { return stats.differed; });
  text.family("cgtree_unverified_replays_total", "counter",
              "Replays that were to be verified and were not, by reason; reasons that occurred.",
              [&](const ContextMetrics& context) {
                for (const FunctionMetrics& one : context.functions) {
                  for (int i = 0; i < kUnverifiedReasonCount; ++i) {
                    const std::uint64_t count = one.stats.unverified[static_cast<std::size_t>(i)];
                    if (count == 0) continue;
                    text.add({{"function", one.function},
                              {"reason", name(static_cast<UnverifiedReason>(i))}},
                             count);
                  }
                }
              });
}

void add_axes(MetricsText& text) {
  const auto of_axes = [&](std::string_view name, std::string_view type, std::string_view help,
                           auto&& value) {
    text.family(name, type, help, [&](const ContextMetrics& context) {
      for (const FunctionMetrics& one : context.functions) {
        for (const AxisMetrics& axis : one.axes) {
          if (axis.sums.actual == 0) continue;
          text.add({{"function", one.function}, {"axis", axis.axis}}, value(axis.sums));
        }
      }
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

template <typename Duration>
double in_seconds(Duration time) {
  return std::chrono::duration<double>(time).count();
}

// Of ReplayTimes or ScopeTimes.
template <typename Times>
void add_histogram(MetricsText& text, const Labels& labels, const Times& times) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < times.histogram.size(); ++i) {
    sum += times.histogram[i];
    const bool is_last = i == kReplayTimeBounds.size();
    const std::string bound = is_last ? "+Inf" : fmt::format("{}", seconds(kReplayTimeBounds[i]));
    Labels with_bound = labels;
    with_bound.emplace_back("le", bound);
    text.add(with_bound, sum, "_bucket");
  }
  text.add(labels, in_seconds(times.device), "_sum");
  text.add(labels, sum, "_count");
}

void add_replay_times(MetricsText& text) {
  text.family("cgtree_replay_device_seconds", "histogram",
              "How long replays took on the device; of those that were timed.",
              [&](const ContextMetrics& context) {
                for (const FunctionMetrics& one : context.functions) {
                  const ReplayTimes& times = one.replay_times;
                  if (times.count > 0) add_histogram(text, {{"function", one.function}}, times);
                }
              });
  text.family("cgtree_scope_device_seconds", "histogram",
              "How long the work of a scope, without scopes inside of it, took on the device in a "
              "replay; of replays that were timed by scopes.",
              [&](const ContextMetrics& context) {
                for (const FunctionMetrics& one : context.functions) {
                  for (const auto& [scope, times] : one.scope_times)
                    add_histogram(text, {{"function", one.function}, {"scope", scope}}, times);
                }
              });
  const auto of_timed = [&](std::string_view name, std::string_view help, auto&& value) {
    text.family(name, "counter", help, [&](const ContextMetrics& context) {
      for (const FunctionMetrics& one : context.functions) {
        if (one.replay_times.count == 0) continue;
        text.add({{"function", one.function}}, value(one.replay_times));
      }
    });
  };
  of_timed("cgtree_replay_host_seconds_total",
           "How long the calls of the timed replays took on the host.",
           [](const ReplayTimes& times) { return in_seconds(times.host); });
  of_timed("cgtree_replays_that_found_the_stream_idle_total",
           "Timed replays before which the device had nothing to do on the stream.",
           [](const ReplayTimes& times) { return times.found_idle; });
}

void add_times(MetricsText& text) {
  text.family("cgtree_record_seconds", "histogram",
              "How long recordings took, from deciding to record until the call returns.",
              [&](const ContextMetrics& context) {
                std::uint64_t sum = 0;
                for (std::size_t i = 0; i < context.record_times.size(); ++i) {
                  sum += context.record_times[i];
                  const bool is_last = i == kRecordTimeBounds.size();
                  const std::string bound =
                      is_last ? "+Inf" : fmt::format("{}", seconds(kRecordTimeBounds[i]));
                  text.add({{"le", bound}}, sum, "_bucket");
                }
                text.add({}, seconds(context.record_time.count()), "_sum");
                text.add({}, sum, "_count");
              });
  text.of_contexts(
      "cgtree_recording_time_seconds_total", "counter",
      "Time spent on warming up and recording, failed attempts included.",
      [](const ContextMetrics& context) { return seconds(context.stats.recording_time.count()); });
}

void add_memory(MetricsText& text) {
  const auto of_regions = [&](std::string_view name, std::string_view help, auto member) {
    text.family(name, "gauge", help, [&](const ContextMetrics& context) {
      for (const RegionMetrics& region : context.regions)
        text.add({{"region", region.region}}, region.*member);
    });
  };
  of_regions("cgtree_pool_bytes", "Device memory that the pools hold, by region.",
             &RegionMetrics::reserved_bytes);
  of_regions("cgtree_pool_allocated_bytes",
             "The part of the pools that is in blocks in use, by region.",
             &RegionMetrics::allocated_bytes);
  text.of_contexts("cgtree_graph_bytes", "gauge",
                   "Device memory of the graphs of recordings, estimated.",
                   [](const ContextMetrics& context) { return context.stats.graph_bytes; });
  text.of_contexts("cgtree_live_outputs", "gauge", "Outputs that are held now.",
                   [](const ContextMetrics& context) { return context.stats.live_outputs; });
  text.of_contexts("cgtree_live_output_bytes", "gauge", "Bytes of the outputs that are held now.",
                   [](const ContextMetrics& context) { return context.stats.pool_live_bytes; });
}

// Two contexts of one name would make two samples with the same labels.
void check_names(std::span<const ContextMetrics> contexts) {
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (escaped(contexts[i].context) != escaped(contexts[j].context)) continue;
      throw InvalidArgument(fmt::format(
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
  add_replay_times(text);
  add_memory(text);
  text.of_contexts("cgtree_generations_total", "counter", "Calls of mark_step().",
                   [](const ContextMetrics& context) { return context.stats.generations; });
  text.of_contexts("cgtree_pool_restores_total", "counter",
                   "Times the pool was given an earlier layout.",
                   [](const ContextMetrics& context) { return context.stats.restores; });
  text.of_contexts("cgtree_root_patches_total", "counter",
                   "Replays whose inputs had moved, or that draw random numbers.",
                   [](const ContextMetrics& context) { return context.stats.root_patches; });
  return text.take();
}

}  // namespace cgtree
