// Writes reports: the calls, why they did not replay, what costs most, and what to change.
#include "extensions/watch/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cgtree {
namespace {

constexpr std::size_t kMostReasons = 8;
constexpr std::size_t kMostFunctions = 8;
constexpr std::size_t kMostAdvices = 6;
constexpr std::size_t kNameWidth = 24;

// Returns the text in one line of at most so many bytes, cut between characters.
std::string fitted(std::string_view text, std::size_t most) {
  std::string line(text.substr(0, most));
  if (text.size() > most) {
    line.resize(most - 3);
    while (!line.empty() && (static_cast<unsigned char>(text[line.size()]) & 0xc0) == 0x80)
      line.pop_back();
    line += "...";
  }
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return line;
}

std::string in_mib(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// Why calls did not replay: how many, and how many of them in which function.
struct Reason {
  std::string what;
  std::uint64_t count = 0;
  std::map<std::size_t, std::uint64_t> functions;  // by index
};

class Reasons {
 public:
  void add(std::string what, std::size_t function, std::uint64_t count) {
    if (count == 0) return;
    auto found = std::ranges::find(all_, what, &Reason::what);
    if (found == all_.end()) found = all_.insert(all_.end(), {std::move(what), 0, {}});
    found->count += count;
    found->functions[function] += count;
  }
  // Returns them, the most frequent first.
  std::vector<Reason> take() {
    std::ranges::stable_sort(all_, std::greater(), &Reason::count);
    return std::move(all_);
  }

 private:
  std::vector<Reason> all_;
};

// Returns how many recordings of the function had the cause. What an earlier library has written
// tells it of the recordings that are kept.
std::uint64_t recordings_of(const ReportFacts& facts, std::size_t function, Cause cause) {
  const auto& counts = facts.functions[function].causes.recordings;
  const bool has_counts =
      std::ranges::any_of(counts, [](std::uint64_t count) { return count > 0; });
  if (has_counts) return counts[static_cast<std::size_t>(cause)];
  const auto count = std::ranges::count_if(facts.recordings, [&](const RecordingFacts& one) {
    return one.function == function && cause_of(one.cause.kind) == cause;
  });
  return static_cast<std::uint64_t>(count);
}

std::vector<Reason> reasons_of(const ReportFacts& facts) {
  Reasons reasons;
  for (std::size_t i = 0; i < facts.functions.size(); ++i) {
    const FunctionStats& stats = facts.functions[i].stats;
    reasons.add("warmed up", i, stats.warm_ups);
    std::uint64_t explained = 0;
    for (int cause = 0; cause < kCauseCount; ++cause) {
      const std::uint64_t count = recordings_of(facts, i, static_cast<Cause>(cause));
      reasons.add(fmt::format("recorded: {}", explain(static_cast<Cause>(cause))), i, count);
      explained += count;
    }
    reasons.add("recorded", i, stats.recordings - std::min(explained, stats.recordings));
    reasons.add("failed", i, stats.failures);
    for (int reason = 0; reason < kSkipReasonCount; ++reason) {
      reasons.add(fmt::format("ran eagerly: {}", name(static_cast<SkipReason>(reason))), i,
                  stats.skips[static_cast<std::size_t>(reason)]);
    }
  }
  return reasons.take();
}

// What the recordings of a function cost, and what they were worth.
struct Cost {
  std::size_t function = 0;
  std::uint64_t recordings = 0, us = 0, bytes = 0, replays = 0;
};

std::vector<Cost> costs_of(const ReportFacts& facts) {
  std::vector<Cost> costs(facts.functions.size());
  for (std::size_t i = 0; i < costs.size(); ++i)
    costs[i].function = i;
  for (const RecordingFacts& one : facts.recordings) {
    Cost& cost = costs[one.function];
    ++cost.recordings;
    cost.us += one.us;
    cost.bytes += one.graph_bytes + one.footprint_bytes;
    cost.replays += one.replays;
  }
  std::erase_if(costs, [](const Cost& cost) { return cost.recordings == 0; });
  std::ranges::stable_sort(costs, std::greater(), &Cost::us);
  return costs;
}

std::string head_of(const ReportFacts& facts) {
  FunctionStats all;
  for (const FunctionFacts& function : facts.functions) {
    all.calls += function.stats.calls;
    all.replays += function.stats.replays;
    all.recordings += function.stats.recordings;
    all.warm_ups += function.stats.warm_ups;
    all.failures += function.stats.failures;
    all.skips[0] += function.stats.skipped();
  }
  std::string text =
      fmt::format("context '{}' on {}: {} calls, {} replayed", fitted(facts.context, kNameWidth),
                  facts.device, all.calls, all.replays);
  if (!facts.has_replays) text += " (not in this file: event_file_has_replays is off)";
  text += fmt::format("\n{} recorded, {} warmed up, {} ran eagerly, {} failed, {} steps",
                      all.recordings, all.warm_ups, all.skipped(), all.failures, facts.generations);
  text += fmt::format("\npools {}, graphs {}, {} outputs held of {}\n", in_mib(facts.pool_bytes),
                      in_mib(facts.graph_bytes), facts.live_outputs, in_mib(facts.live_bytes));
  if (facts.left_out > 0) text += fmt::format("{} lines are no events\n", facts.left_out);
  return text;
}

std::string reasons_text(const ReportFacts& facts) {
  const std::vector<Reason> reasons = reasons_of(facts);
  if (reasons.empty()) return {};
  std::string text = "\nwhy calls did not replay                  calls  most of them\n";
  for (std::size_t i = 0; i < std::min(reasons.size(), kMostReasons); ++i) {
    const auto most = std::ranges::max_element(reasons[i].functions, {},
                                               [](const auto& one) { return one.second; });
    text += fmt::format("  {:<38}{:>7}  '{}' {}\n", reasons[i].what, reasons[i].count,
                        fitted(facts.functions[most->first].name, kNameWidth), most->second);
  }
  return text;
}

// The means of one function: on the device, on the host, and how often the stream was idle.
std::string times_text(const ReportFacts& facts, const std::string& function) {
  const auto found = facts.times.find(function);
  if (found == facts.times.end() || found->second.count == 0) return {};
  const ReplayTimes& times = found->second;
  const auto count = static_cast<double>(times.count);
  const auto mean_us = [&](std::chrono::nanoseconds sum) {
    return static_cast<double>(sum.count()) / 1000 / count;
  };
  return fmt::format("{:>12.1f}{:>10.1f}{:>6.0f}%", mean_us(times.device), mean_us(times.host),
                     100 * static_cast<double>(times.found_idle) / count);
}

std::string seconds_text(std::chrono::nanoseconds time) {
  const auto seconds = static_cast<double>(time.count()) / 1e9;
  return seconds >= 10 ? fmt::format("{:.0f} s", seconds) : fmt::format("{:.1f} ms", 1e3 * seconds);
}

// Returns what all replays have saved of the host, and of which function the most.
std::string savings_text(const ReportFacts& facts) {
  std::chrono::nanoseconds all{0};
  std::chrono::nanoseconds most{0};
  const FunctionFacts* first = nullptr;
  for (const FunctionFacts& function : facts.functions) {
    const auto found = facts.times.find(function.name);
    if (found == facts.times.end()) continue;
    const std::chrono::nanoseconds saved = found->second.saved(function.stats.replays);
    all += saved;
    if (saved <= most) continue;
    most = saved;
    first = &function;
  }
  if (first == nullptr) return {};
  const ReplayTimes& times = facts.times.at(first->name);
  const auto in_us = [](std::chrono::nanoseconds time, std::uint64_t count) {
    return static_cast<double>(time.count()) / 1000 / static_cast<double>(count);
  };
  return fmt::format(
      "graphs have saved {} of the host: {} in '{}', whose replays take {:.1f} us and not {:.1f}\n",
      seconds_text(all), seconds_text(most), fitted(first->name, kNameWidth),
      in_us(times.host, times.count), in_us(times.eager, 1));
}

std::string costs_text(const ReportFacts& facts) {
  const std::vector<Cost> costs = costs_of(facts);
  if (costs.empty()) return {};
  std::string text = fmt::format("\n{:<26}{:>12}{:>12}{:>14}{:>12}", "recordings cost",
                                 "recordings", "ms", "memory", "replays");
  if (!facts.times.empty())
    text += fmt::format("{:>12}{:>10}{:>7}", "device us", "host us", "idle");
  text += '\n';
  for (std::size_t i = 0; i < std::min(costs.size(), kMostFunctions); ++i) {
    const Cost& cost = costs[i];
    const std::string& function = facts.functions[cost.function].name;
    text += fmt::format("  {:<24}{:>12}{:>12.1f}{:>14}{:>12}{}\n", fitted(function, kNameWidth),
                        cost.recordings, static_cast<double>(cost.us) / 1000, in_mib(cost.bytes),
                        facts.has_replays ? std::to_string(cost.replays) : "-",
                        times_text(facts, function));
  }
  return text + savings_text(facts);
}

std::string advice_text(const ReportFacts& facts) {
  const std::vector<Advice> advices = advise(facts);
  if (advices.empty()) return "\nadvice: nothing to change was found\n";
  std::string text = "\nadvice\n";
  for (std::size_t i = 0; i < std::min(advices.size(), kMostAdvices); ++i)
    text += fmt::format("{}. {}\n   {}\n", i + 1, fitted(advices[i].text, 160),
                        fitted(advices[i].numbers, 160));
  return text;
}

}  // namespace

std::chrono::nanoseconds ReplayTimes::saved(std::uint64_t replays) const noexcept {
  if (count == 0) return {};
  const auto times = static_cast<std::int64_t>(replays);
  return std::max(times * (eager - host / static_cast<std::int64_t>(count)), {});
}

std::string report_text(const ReportFacts& facts) {
  return head_of(facts) + reasons_text(facts) + costs_text(facts) + advice_text(facts);
}

std::string report_of(std::string_view text) {
  std::string all;
  for (const ReportFacts& facts : read_facts(text))
    all += (all.empty() ? "" : "\n") + report_text(facts);
  return all;
}

}  // namespace cgtree
