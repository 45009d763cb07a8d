// Prints stats as a small table; empty lines are left out.
#include "cgtree/values/stats.h"

#include <algorithm>
#include <string_view>

#include "base/format.h"
#include "extensions/verify/verification.h"

namespace cgtree {
namespace {

// A TextTable has columns of labels, numbers and remarks.
class TextTable {
 public:
  void add(std::string_view label, std::uint64_t number, std::string_view remark = "") {
    const std::string digits = std::to_string(number);
    if (!text_.empty()) text_ += '\n';
    text_ += label;
    text_.append(kWidth - std::min(kWidth, label.size() + digits.size()), ' ') += digits;
    if (!remark.empty()) text_ += str_format("  {}", remark);
  }
  void add_if_any(std::string_view label, std::uint64_t number, std::string_view remark = "") {
    if (number > 0) add(label, number, remark);
  }
  std::string take() { return std::move(text_); }

 private:
  static constexpr std::size_t kWidth = 36;  // of a label and a number
  std::string text_;
};

std::string bytes_of(std::size_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  double value = static_cast<double>(bytes);
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit)
    value /= 1024;
  return unit == 0 ? str_format("{} B", bytes) : str_format("{:.1f} {}", value, kUnits[unit]);
}

// Returns the percentage, which is 100.0 % only if the part is the whole.
std::string share(std::uint64_t part, std::uint64_t whole) {
  const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return str_format("{:.1f} %", part < whole ? std::min(percent, 99.9) : percent);
}

constexpr std::size_t kRemark = 160;  // bytes of a remark at most

void add_calls(TextTable& table, const FunctionStats& stats) {
  table.add("calls", stats.calls);
  if (stats.calls == 0) return;
  table.add("  replayed", stats.replays, share(stats.replays, stats.calls));
  table.add_if_any("  recorded", stats.recordings);
  table.add_if_any("  warmed up", stats.warm_ups);
  table.add_if_any("  skipped", stats.skipped(), share(stats.skipped(), stats.calls));
  for (int i = 0; i < kSkipReasonCount; ++i) {
    const auto reason = static_cast<SkipReason>(i);
    table.add_if_any(str_format("    {}", name(reason)), stats.skips[i], explain(reason));
  }
  const std::string_view last = stats.last_failure;
  table.add_if_any("  failed", stats.failures, last.substr(0, std::min(last.find('\n'), kRemark)));
  table.add_if_any("verified replays", stats.verified);
  table.add_if_any("  differed", stats.differed, "from an eager run");
  for (int i = 0; i < kUnverifiedReasonCount; ++i) {
    const auto reason = static_cast<UnverifiedReason>(i);
    table.add_if_any(str_format("  not {}", name(reason)), stats.unverified[i], explain(reason));
  }
  table.add_if_any("evicted recordings", stats.evictions);
  table.add_if_any("frozen", stats.frozen, "nothing is warmed up or recorded");
}

}  // namespace

std::string to_string(const FunctionStats& stats) {
  TextTable table;
  add_calls(table, stats);
  return table.take();
}

std::string to_string(const ContextStats& stats) {
  TextTable table;
  add_calls(table, stats);
  table.add_if_any("generations", stats.generations);
  table.add_if_any("restores", stats.restores, "of the pool to an earlier layout");
  table.add_if_any("root patches", stats.root_patches, "replays whose copied inputs had moved");
  table.add_if_any("kept recordings", stats.kept_recordings,
                   str_format("graphs of {}", bytes_of(stats.graph_bytes)));
  table.add_if_any("recording took", static_cast<std::uint64_t>(stats.recording_time.count()),
                   "us");
  table.add_if_any("live outputs", stats.live_outputs, bytes_of(stats.pool_live_bytes));
  table.add_if_any("pool bytes", stats.pool_reserved_bytes, bytes_of(stats.pool_reserved_bytes));
  return table.take();
}

}  // namespace cgtree
