// Accepted logs, and refused logs with their line.
#include "tests/support/rmm_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"

namespace cgtree {
namespace {

using testing::HasSubstr;

const std::string kHeader = "Thread,Time,Action,Pointer,Size,Stream\n";

class RmmTraceTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const {
    return (std::filesystem::path(testing::TempDir()) / name).string();
  }

  std::string write(const std::string& text) const {
    std::ofstream(path("log.csv"), std::ios::binary) << text;
    return path("log.csv");
  }

  std::string write_compressed(const std::string& text) const {
    const gzFile file = gzopen(path("log.csv.gz").c_str(), "wb");
    EXPECT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())),
              static_cast<int>(text.size()));
    gzclose(file);
    return path("log.csv.gz");
  }

  static std::string refusal_of(const std::string& path) {
    try {
      read_rmm_log(path);
    } catch (const InvalidArgument& error) {
      return std::string(error.message());
    }
    return "nothing was thrown";
  }

  std::string refusal_of_rows(const std::string& rows) const {
    return refusal_of(write(kHeader + rows));
  }
};

TEST_F(RmmTraceTest, ReadsAllocationsAndFrees) {
  const Trace trace = read_rmm_log(
      write(kHeader + "1,00:00:00:000000,allocate,0x100,700,0\n1,00:00:00:000001,allocate,0x900,5,7"
                      "\n2,00:00:00.000002,free,0x100,700,0\n1,0,allocate,100,6,0\n"));

  ASSERT_EQ(trace.steps.size(), 4u);
  EXPECT_EQ(trace.slots, 3u);
  EXPECT_EQ(trace.steps[1].bytes, 5u);
  EXPECT_EQ(trace.steps[2].slot, trace.steps[0].slot);
  EXPECT_EQ(trace.steps[2].bytes, 0u);
  EXPECT_NE(trace.steps[3].slot, trace.steps[0].slot);
  EXPECT_EQ(trace.peak_live_bytes, 705u);
}

TEST_F(RmmTraceTest, CountsFailedAllocationsAsNoSteps) {
  const Trace trace = read_rmm_log(write(kHeader + "1,0,allocate failure,0x0,99,0\n"));

  EXPECT_EQ(trace.failures, 1u);
  EXPECT_TRUE(trace.steps.empty());
}

TEST_F(RmmTraceTest, ReadsGzipAsItIs) {
  std::string rows;
  for (int i = 1; i <= 20000; ++i)
    rows += "1,0,allocate," + std::to_string(i) + ",512,0\n";

  EXPECT_EQ(read_rmm_log(write_compressed(kHeader + rows)).steps.size(), 20000u);
}

TEST_F(RmmTraceTest, ReadsTheLastLineWithoutItsEnd) {
  EXPECT_EQ(read_rmm_log(write(kHeader + "1,0,allocate,0x1,512,0")).steps.size(), 1u);
}

TEST_F(RmmTraceTest, RefusesTruncatedGzip) {
  std::string rows;
  for (int i = 1; i <= 20000; ++i)
    rows += "1,0,allocate," + std::to_string(i * 7919) + ",512,0\n";
  const std::string file = write_compressed(kHeader + rows);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);

  EXPECT_THAT(refusal_of(file), HasSubstr("the compressed data end too early"));
}

TEST_F(RmmTraceTest, RefusesDamagedGzip) {
  const std::string file = write_compressed(kHeader + std::string(5000, 'x'));
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(20);
  stream << "????????";
  stream.close();

  EXPECT_NE(refusal_of(file), "nothing was thrown");
}

TEST_F(RmmTraceTest, RefusesAFileThatIsNotThere) {
  EXPECT_THAT(refusal_of(path("none.csv")), HasSubstr("cannot open"));
}

TEST_F(RmmTraceTest, RefusesAnotherHeader) {
  EXPECT_THAT(refusal_of(write("")), HasSubstr("line 0: the header is ''"));
  EXPECT_THAT(refusal_of(write("id,lower,upper,size\n")), HasSubstr("line 1: the header is 'id,"));
}

TEST_F(RmmTraceTest, RefusesRowsThatAreNotOfTheFormat) {
  EXPECT_THAT(refusal_of_rows("1,0,allocate,0x1,512\n"), HasSubstr("line 2: 5 columns"));
  EXPECT_THAT(refusal_of_rows("1,0,allocate,0xg,512,0\n"), HasSubstr("Pointer '0xg' is not"));
  EXPECT_THAT(refusal_of_rows("1,0,allocate,0x1,-1,0\n"), HasSubstr("Size '-1' is not"));
  EXPECT_THAT(refusal_of_rows("1,0,allocate,0x1,0,0\n"), HasSubstr("of 0 bytes"));
  EXPECT_THAT(refusal_of_rows("1,0,alloc,0x1,512,0\n"), HasSubstr("Action 'alloc' is none of"));
}

TEST_F(RmmTraceTest, RefusesAFreeOfAnUnknownPointer) {
  EXPECT_THAT(refusal_of_rows("1,0,allocate,0x1,512,0\n1,0,free,0x2,512,0\n"),
              HasSubstr("line 3: 0x2 is freed but not live"));
}

TEST_F(RmmTraceTest, RefusesAFreeOfAnotherSize) {
  EXPECT_THAT(refusal_of_rows("1,0,allocate,0x1,512,0\n1,0,free,0x1,511,0\n"),
              HasSubstr("line 3: 0x1 is freed with 511 bytes, allocated with 512 in line 2"));
}

TEST_F(RmmTraceTest, RefusesASecondAllocationOfALivePointer) {
  EXPECT_THAT(refusal_of_rows("1,0,allocate,0x1,512,0\n1,0,allocate,0x1,512,0\n"),
              HasSubstr("line 3: 0x1 is allocated a second time; it is live since line 2"));
}

}  // namespace
}  // namespace cgtree
