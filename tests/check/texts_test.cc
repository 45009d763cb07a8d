// Stacks, reports, and what is read of caching allocators.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "check/blocks.h"
#include "check/finding.h"
#include "check/ledger.h"
#include "check/report.h"
#include "check/stacks.h"

namespace cgtree::graph_check {
namespace {

StackId take_once(Stacks& stacks) {
  return stacks.take();
}

TEST(StacksTest, EqualStacksHaveOneNumber) {
  Stacks stacks;
  StackId taken[3] = {};
  for (StackId& stack : taken)
    stack = take_once(stacks);
  EXPECT_EQ(taken[0], taken[1]);
  EXPECT_EQ(taken[0], taken[2]);
  EXPECT_NE(taken[0], take_once(stacks));
  EXPECT_FALSE(stacks.frames(taken[0]).empty());
  EXPECT_TRUE(stacks.frames(StackId::kNone).empty());
}

TEST(StacksTest, FramesOfPythonThatAreGivenComeFirst) {
  Stacks stacks;
  StackId taken[3] = {};
  for (int i = 0; i < 3; ++i) {
    set_python_frames(i == 2 ? "" : i == 1 ? "g at b.py:2" : "f at a.py:1\nmain at a.py:9");
    taken[i] = take_once(stacks);
  }
  EXPECT_NE(taken[0], taken[1]);
  EXPECT_NE(taken[1], taken[2]);
  EXPECT_EQ("f at a.py:1", stacks.frames(taken[0])[0]);
  EXPECT_EQ("main at a.py:9", stacks.frames(taken[0])[1]);
  EXPECT_EQ(stacks.frames(taken[2]).size() + 2, stacks.frames(taken[0]).size());
}

Report report_of(const Process& process, const Ledger& ledger, const Stacks& stacks) {
  std::vector<Finding> findings(ledger.findings().begin(), ledger.findings().end());
  for (const Finding& remark : ledger.remarks())
    findings.push_back(remark);
  return make_report(process, findings, ledger.totals(), stacks);
}

class ReportTest : public ::testing::Test {
 protected:
  ReportTest() {
    const TakeStack take = [this] { return take_once(stacks_); };
    const auto exec = static_cast<ExecHandle>(1);
    ledger_.begin_capture({}, 1, take());
    ledger_.refuse({}, 1, "cuMemcpyBatchAsync returned 900", take);
    ledger_.end_capture({}, static_cast<GraphHandle>(2));
    GraphContents contents;
    contents.nodes.emplace_back();
    ledger_.instantiate(static_cast<GraphHandle>(2), exec, std::move(contents), take(), 1);
    process_ = {.pid = 7, .program = "decode", .unseen = {"much"}, .calls = {}};
  }

  Stacks stacks_;
  Ledger ledger_;
  Process process_;
};

TEST_F(ReportTest, TheTableHasFaultsThenRemarks) {
  const std::string table = report_of(process_, ledger_, stacks_).table;
  EXPECT_EQ(0u, table.find("cgtree-check: process 7 (decode): faults: 1, remarks: 1\nrefused: "));
  const std::size_t fault =
      table.find("graph 1, executable 1\n    cuMemcpyBatchAsync returned 900\n");
  EXPECT_NE(std::string::npos, fault) << table;
  EXPECT_LT(fault, table.find("unlaunched: "));
  EXPECT_NE(std::string::npos, table.find("      captured "));
  EXPECT_NE(std::string::npos, table.find("nodes: 1, of which 1 could not be read"));
  EXPECT_NE(std::string::npos, table.find("not seen: much\n"));
}

TEST_F(ReportTest, TheTableListsTwentyOfAKind) {
  const auto graph = static_cast<GraphHandle>(3);
  const TakeStack take = [this] { return take_once(stacks_); };
  ledger_.begin_capture({}, 1, take());
  for (int i = 0; i < 24; ++i)
    ledger_.refuse({}, 1, "call " + std::to_string(i) + "; returned 900", take);
  ledger_.end_capture({}, graph);
  ledger_.instantiate(graph, static_cast<ExecHandle>(4), {}, take(), 1);
  const Report report = report_of(process_, ledger_, stacks_);
  EXPECT_NE(std::string::npos, report.table.find("faults: 25, remarks: "));
  EXPECT_NE(std::string::npos, report.table.find("call 18; returned 900\n"));
  EXPECT_EQ(std::string::npos, report.table.find("call 19; returned 900\n"));
  EXPECT_NE(std::string::npos, report.table.find("  and 5 more\nunlaunched: "));
  EXPECT_NE(std::string::npos, report.json.find("call 23; returned 900"));
}

TEST_F(ReportTest, TheJsonHasTheSame) {
  const auto json = nlohmann::json::parse(report_of(process_, ledger_, stacks_).json);
  EXPECT_EQ(7, json["pid"]);
  ASSERT_EQ(2u, json["findings"].size());
  const auto& finding = json["findings"][0];
  EXPECT_EQ("refused", finding["kind"]);
  EXPECT_TRUE(finding["is_fault"]);
  EXPECT_EQ("cuMemcpyBatchAsync returned 900", finding["call"]);
  EXPECT_FALSE(finding["called"].empty());
  EXPECT_EQ("unlaunched", json["findings"][1]["kind"]);
  EXPECT_FALSE(json["findings"][1]["is_fault"]);
  EXPECT_EQ(1, json["totals"]["instantiated"]);
}

TEST(EmptyReportTest, AProgramWithoutGraphsHasALine) {
  EXPECT_EQ("cgtree-check: process 7 (decode): no graph was used\n",
            report_of({.pid = 7, .program = "decode", .unseen = {"much"}, .calls = {}}, Ledger(),
                      Stacks())
                .table);
}

TEST(BlocksTest, ASnapshotOfPyTorchIsRead) {
  const Blocks blocks = read_torch_blocks(
      "20,free,7f00,256,train.py:3\n10,allocate,7f00,256,\n0,kept,8000,4096,\nnonsense\n5,other,1,"
      "2,\n");
  ASSERT_EQ(2u, blocks.events.size());
  EXPECT_EQ(10, blocks.events[0].time);
  EXPECT_FALSE(blocks.events[0].is_free);
  EXPECT_EQ(0x7f00u, blocks.events[1].address);
  EXPECT_EQ(256u, blocks.events[1].bytes);
  EXPECT_EQ("train.py:3", blocks.events[1].where);
  ASSERT_EQ(1u, blocks.kept.size());
  EXPECT_EQ(0x8000u, blocks.kept[0].address);
}

// A log has the time of day, which is that of the last one.
TEST(BlocksTest, ALogOfRmmIsRead) {
  constexpr Time kSecond = 1'000'000;
  std::tm noon = {};
  noon.tm_year = 126;
  noon.tm_mon = 10;
  noon.tm_mday = 30;
  noon.tm_hour = 12;
  noon.tm_isdst = -1;
  const Time now = std::mktime(&noon) * kSecond;
  const Blocks blocks = read_rmm_log(
      "Thread,Time,Action,Pointer,Size,Stream\n"
      "1,23:00:00.000000,allocate,0x8000,16,0x2\n"
      "1,11:59:59.000250,allocate,0x7f00,256,0x2\n"
      "1,11:59:59:500000,free,0x7f00,256,0x2\n"
      "1,11:59:59.600000,allocate failure,(nil),16,0x2\n",
      now);
  ASSERT_EQ(3u, blocks.events.size());
  EXPECT_EQ(0x8000u, blocks.events[0].address);  // of yesterday
  EXPECT_EQ(now - 13 * 3600 * kSecond, blocks.events[0].time);
  EXPECT_EQ(now - kSecond + 250, blocks.events[1].time);
  EXPECT_EQ(now - kSecond / 2, blocks.events[2].time);
  EXPECT_TRUE(blocks.events[2].is_free);
  EXPECT_EQ("", blocks.events[2].where);
}

TEST(BlocksTest, RowsOfRmmAreInTheOrderOfTimeOverDays) {
  constexpr Time kHour = Time{3'600} * 1'000'000;
  const Time now = Time{1'000'000} * kHour;
  const Blocks any = read_rmm_log("1,00:00:00.000000,free,0x7f00,256,0x2\n", now);
  const Time midnight = any.events.at(0).time;
  const Blocks blocks = read_rmm_log(
      "1,10:00:00.000000,allocate,0x7f00,256,0x2\n"
      "1,09:00:00.000000,free,0x7f00,256,0x2\n"
      "2,08:00:00.000001,allocate,0x7f00,256,0x2\n"
      "1,08:00:00.000000,free,0x7f00,256,0x2\n"
      "1,08:00:00.0000",
      midnight + 12 * kHour);
  ASSERT_EQ(4u, blocks.events.size());
  EXPECT_EQ(midnight - 38 * kHour, blocks.events[0].time);
  EXPECT_EQ(midnight - 15 * kHour, blocks.events[1].time);
  EXPECT_EQ(midnight + 8 * kHour, blocks.events[2].time);
  EXPECT_EQ(midnight + 8 * kHour + 1, blocks.events[3].time);
}

}  // namespace
}  // namespace cgtree::graph_check
