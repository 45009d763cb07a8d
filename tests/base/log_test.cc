// Each event is one line, and nothing is formatted below the level.
#include "base/log_event.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace cgtree {
namespace {

// Counts its conversions to text.
struct Probe {
  operator FormatArgument() const { return ++*formatted; }

  int* formatted;
};

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel, const std::string& line) { lines_.push_back(line); });
  }
  void TearDown() override {
    set_log_sink(nullptr);
    set_log_level(LogLevel::kWarn);
  }

  std::vector<std::string> lines_;
};

TEST_F(LogTest, WritesOneLinePerEvent) {
  set_log_level(LogLevel::kDebug);

  log_event(LogLevel::kDebug, "record function={} bytes={}", "decode", 512);

  EXPECT_EQ(lines_, std::vector<std::string>{"record function=decode bytes=512"});
}

TEST_F(LogTest, FormatsNothingBelowTheLevel) {
  set_log_level(LogLevel::kWarn);
  int formatted = 0;

  log_event(LogLevel::kDebug, "replay node={}", Probe{&formatted});

  EXPECT_EQ(formatted, 0);
  EXPECT_TRUE(lines_.empty());
}

std::vector<std::string>& written() {
  static std::vector<std::string> lines;
  return lines;
}

TEST_F(LogTest, AWriterHasTheLinesThatNoSinkTakes) {
  write_log_with([](LogLevel, const std::string& line) { written().push_back(line); });
  log_event(LogLevel::kError, "one");  // reaches the sink
  set_log_sink(nullptr);
  log_event(LogLevel::kError, "two");

  EXPECT_EQ(written(), (std::vector<std::string>{"two"}));
}

TEST_F(LogTest, OffSilencesErrorsToo) {
  set_log_level(LogLevel::kOff);

  log_event(LogLevel::kError, "lost");

  EXPECT_TRUE(lines_.empty());
}

}  // namespace
}  // namespace cgtree
