// The text of an Error.
#include "base/error.h"

#include <gtest/gtest.h>

#include <string>

namespace cgtree {
namespace {

TEST(ErrorTest, SaysWhereItWasThrownAndKeepsTheMessageApart) {
  const auto line = std::source_location::current().line() + 1;
  const InvalidArgument error("shape {2} given, {3} recorded");

  EXPECT_EQ(error.message(), "shape {2} given, {3} recorded");
  EXPECT_EQ(std::string(error.what()),
            "tests/base/error_test.cc:" + std::to_string(line) + ": shape {2} given, {3} recorded");
}

TEST(ErrorTest, DeviceErrorsCarryTheCudaNumber) {
  try {
    throw CaptureError(901, "capture of 'decode' was invalidated");
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), 901);
  }
}

}  // namespace
}  // namespace cgtree
