// Stats as text: a small table that leaves out lines without information.
#include "cgtree/values/stats.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace cgtree {
namespace {

TEST(StatsTest, AFunctionThatReplaysNeedsFourLines) {
  const FunctionStats stats{.calls = 1000, .warm_ups = 2, .recordings = 2, .replays = 996};

  EXPECT_EQ(to_string(stats),
            "calls                           1000\n"
            "  replayed                       996  99.6 %\n"
            "  recorded                         2\n"
            "  warmed up                        2");
}

TEST(StatsTest, SkipsAreListedByReasonWithWhatToDo) {
  FunctionStats stats{.calls = 4, .warm_ups = 1, .failures = 1};
  stats.skips[static_cast<int>(SkipReason::kOtherDevice)] = 2;

  EXPECT_EQ(to_string(stats),
            "calls                              4\n"
            "  replayed                         0  0.0 %\n"
            "  warmed up                        1\n"
            "  skipped                          2  50.0 %\n"
            "    other_device                   2  an input lives on another device\n"
            "  failed                           1");
}

TEST(StatsTest, NumbersStandInOneColumnWhateverTheReasonIsCalled) {
  FunctionStats stats{.calls = 99};
  stats.skips.fill(7);
  stats.unverified.fill(7);

  std::istringstream lines(to_string(stats));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end = line.find_last_of("0123456789", 35);
    EXPECT_EQ(end, 35u) << line;
    EXPECT_EQ(line[34 - 3], ' ') << line;
  }
}

TEST(StatsTest, NoCallsAreOneLine) {
  EXPECT_EQ(to_string(FunctionStats{}), "calls                              0");
}

TEST(StatsTest, OnlyAllOfThemAreAHundredPercent) {
  const FunctionStats stats{.calls = 1'000'000, .recordings = 1, .replays = 999'999};

  EXPECT_NE(to_string(stats).find("  99.9 %"), std::string::npos) << to_string(stats);
}

TEST(StatsTest, AContextAddsItsMemoryWithUnits) {
  ContextStats stats;
  stats.calls = stats.warm_ups = 1;
  stats.generations = 12;
  stats.live_outputs = 3;
  stats.pool_live_bytes = 1536;
  stats.pool_reserved_bytes = 6 << 20;

  EXPECT_EQ(to_string(stats),
            "calls                              1\n"
            "  replayed                         0  0.0 %\n"
            "  warmed up                        1\n"
            "generations                       12\n"
            "live outputs                       3  1.5 KiB\n"
            "pool bytes                   6291456  6.0 MiB");
}

}  // namespace
}  // namespace cgtree
