// Structs that grow from version to version, passed between callers and libraries of different
// versions.
#include "bindings/c/sized_struct.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace cgtree::capi {
namespace {

struct FirstReport {
  std::uint32_t struct_size;
  std::int32_t count;
};
struct Report {
  std::uint32_t struct_size;
  std::int32_t count;
  std::int64_t bytes;  // since the second version
};

}  // namespace

template <>
inline constexpr std::size_t kFirstSize<Report> = sizeof(FirstReport);

namespace {

TEST(SizedStructTest, AnOlderCallersStructIsFilledAsFarAsItGoes) {
  struct {
    FirstReport report = {sizeof(FirstReport), 0};
    std::int64_t behind = 77;
  } caller;

  write_struct(Report{0, 5, 9}, reinterpret_cast<Report*>(&caller.report), "a report");

  EXPECT_EQ(caller.report.struct_size, sizeof(FirstReport));
  EXPECT_EQ(caller.report.count, 5);
  EXPECT_EQ(caller.behind, 77);
}

TEST(SizedStructTest, FieldsThatOnlyTheCallerKnowsBecomeZero) {
  struct {
    Report report = {sizeof(Report) + 8, 0, 0};
    std::int64_t since_the_third_version = 77;
  } caller;

  write_struct(Report{0, 5, 9}, &caller.report, "a report");

  EXPECT_EQ(caller.report.struct_size, sizeof(Report) + 8);
  EXPECT_EQ(caller.report.bytes, 9);
  EXPECT_EQ(caller.since_the_third_version, 0);
}

TEST(SizedStructTest, ASizeThatNoVersionHasIsRefusedAndNothingIsWritten) {
  for (const std::uint32_t size : {0u, 4u, 7u, 12u, 15u, 17u, 1u << 20}) {
    Report report = {size, 1, 2};
    EXPECT_THROW((void)read_struct(&report, "a report"), InvalidArgument) << size;
    EXPECT_THROW(write_struct(Report{0, 5, 9}, &report, "a report"), InvalidArgument) << size;
    EXPECT_EQ(report.count, 1);
    EXPECT_EQ(report.bytes, 2);
  }
  EXPECT_THROW(write_struct(Report{}, static_cast<Report*>(nullptr), "a report"), InvalidArgument);
}

TEST(SizedStructTest, AnOlderCallersStructIsReadWithZerosForWhatItLacks) {
  const FirstReport given = {sizeof(FirstReport), 5};
  const Report read = read_struct(reinterpret_cast<const Report*>(&given), "a report");
  EXPECT_EQ(read.count, 5);
  EXPECT_EQ(read.bytes, 0);
}

}  // namespace
}  // namespace cgtree::capi
