// Traces that the reader accepts, and the line and column in the message about others.
#include "benchmarks/serve/trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/error.h"

namespace cgtree::serve {
namespace {

const std::string kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

std::string complaint(std::string_view text) {
  try {
    parse_trace(text, "t.csv");
  } catch (const InvalidArgument& error) {
    return std::string(error.message());
  }
  return "none";
}

TEST(TraceTest, ReadsRequestsRelativeToTheFirst) {
  const auto requests = parse_trace(kHeader +
                                        "2023-11-16 18:15:46.6805900,374,44\n"
                                        "2023-11-16 18:15:50.9951690,396,109\n",
                                    "t.csv");

  EXPECT_EQ(requests, (std::vector<Request>{{0, 374, 44}, {4'314'579'000, 396, 109}}));
}

TEST(TraceTest, OrdersRequestsByArrivalAndKeepsTheOrderOfEqualOnes) {
  const auto requests = parse_trace(kHeader +
                                        "2023-11-17 00:00:00,2,2\n"
                                        "2023-11-16 23:59:59,1,1\n"
                                        "2023-11-17 00:00:00,3,3\n",
                                    "t.csv");

  EXPECT_EQ(requests,
            (std::vector<Request>{{0, 1, 1}, {1'000'000'000, 2, 2}, {1'000'000'000, 3, 3}}));
}

TEST(TraceTest, ReadsCrlfQuotesAByteOrderMarkAndAMissingLastNewline) {
  const auto requests = parse_trace(
      "\xEF\xBB\xBF\"TIMESTAMP\",ContextTokens,\"GeneratedTokens\"\r\n"
      "\"2023-11-16 18:15:46\",\"374\",44\r\n"
      "\r\n"
      "2023-11-16 18:15:47,1,\"2\"",
      "t.csv");

  EXPECT_EQ(requests, (std::vector<Request>{{0, 374, 44}, {1'000'000'000, 1, 2}}));
}

TEST(TraceTest, SaysThatATraceIsEmpty) {
  EXPECT_NE(complaint("").find("t.csv: the trace holds no request"), std::string::npos);
  EXPECT_NE(complaint(kHeader).find("t.csv: the trace holds no request"), std::string::npos);
}

struct Malformed {
  std::string text;
  std::string complaint;
};

class MalformedTraceTest : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedTraceTest, IsRefusedWithLineAndColumn) {
  EXPECT_EQ(complaint(GetParam().text), GetParam().complaint);
}

const std::string kLine = "2023-11-16 18:15:46.68,374,44\n";

INSTANTIATE_TEST_SUITE_P(
    Lines, MalformedTraceTest,
    testing::Values(
        Malformed{"time,ContextTokens,GeneratedTokens\n" + kLine,
                  "t.csv:1:1: expected the column TIMESTAMP, found 'time'"},
        Malformed{"TIMESTAMP,GeneratedTokens,ContextTokens\n",
                  "t.csv:1:11: expected the column ContextTokens, found 'GeneratedTokens'"},
        Malformed{kHeader + kLine + "2023-11-16 18:15:46.68,374\n",
                  "t.csv:3:27: expected ',' and GeneratedTokens"},
        Malformed{kHeader + "2023-11-16 18:15:46.68,374,44,5\n",
                  "t.csv:2:30: unexpected text after GeneratedTokens"},
        Malformed{kHeader + "2023-11-16 18:15:46.68,,44\n",
                  "t.csv:2:24: expected a number as ContextTokens"},
        Malformed{kHeader + "2023-11-16 18:15:46.68,37x,44\n",
                  "t.csv:2:26: unexpected 'x' in ContextTokens"},
        Malformed{kHeader + "2023-11-16 18:15:46.68,374,-4\n",
                  "t.csv:2:28: GeneratedTokens -4 is not between 1 and 10000000"},
        Malformed{kHeader + "2023-11-16 18:15:46.68,374,99999999999999999999\n",
                  "t.csv:2:28: GeneratedTokens 99999999999999999999 is not between 1 and 10000000"},
        Malformed{kHeader + "\"2023-11-16 18:15:46.68,374,44\n",
                  "t.csv:2:1: quote is never closed"},
        Malformed{kHeader + "\"2023-11-16 18:15:46\"x,374,44\n",
                  "t.csv:2:22: expected ',' after the quote"},
        Malformed{kHeader + "\n2023-11-16 18:15:46.68,374,\"4 4\"\n",
                  "t.csv:3:30: unexpected ' ' in GeneratedTokens"},
        Malformed{kHeader + "2023-13-16 18:15:46,374,44\n",
                  "t.csv:2:6: month 13 is not between 1 and 12"},
        Malformed{kHeader + "2023-02-30 18:15:46,374,44\n",
                  "t.csv:2:11: month 2023-02 has no day 30"},
        Malformed{kHeader + "2023-11-16 18:15,374,44\n", "t.csv:2:17: expected ':'"},
        Malformed{kHeader + "yesterday,374,44\n", "t.csv:2:1: expected 4 digits of year"}));

TEST(TraceTest, ReadsOffsetsOfTimeZones) {
  const auto requests = parse_trace(kHeader +
                                        "2024-05-10 00:00:00.5+00:00,1,1\n"
                                        "2024-05-10T02:00:01Z,2,2\n"
                                        "2024-05-10 03:30:02+01:30,3,3\n",
                                    "t.csv");

  EXPECT_EQ(requests[1].arrival_ns, 7'200'500'000'000);
  EXPECT_EQ(requests[2].arrival_ns, 7'201'500'000'000);
}

TEST(TraceTest, SaysWhyAFileCannotBeRead) {
  EXPECT_THROW(read_trace(testing::TempDir()), InvalidArgument);
  try {
    read_trace("no/such/trace.csv");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.message(), "cannot read the trace 'no/such/trace.csv': no such file");
  }
}

TEST(TraceTest, ReadsAFile) {
  const std::string path = testing::TempDir() + "/trace.csv";
  std::ofstream(path) << kHeader << kLine;

  EXPECT_EQ(read_trace(path), (std::vector<Request>{{0, 374, 44}}));
}

}  // namespace
}  // namespace cgtree::serve
