// The error about a driver that is older than the runtime names both versions.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "interop/device/device.h"

namespace cgtree {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OldDriverTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // The runtime opens the library with this soname, and finds the loaded one.
    ASSERT_NE(dlopen("tests/interop/cuda/libold_driver.so", RTLD_NOW | RTLD_GLOBAL), nullptr)
        << dlerror();
  }
};

TEST_F(OldDriverTest, AGpuCannotBeUsedAndTheErrorNamesBothVersions) {
  try {
    device_api(Device::cuda(0));
    FAIL() << "the device was found";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("device cuda:0 cannot be used"), HasSubstr("CUDA up to 11.4"),
                      HasSubstr("built with CUDA 1"), HasSubstr("update the driver")));
  }
}

TEST_F(OldDriverTest, TheBestDeviceIsTheHostAndOneWarningSaysWhy) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel level, const std::string& line) {
    EXPECT_EQ(level, LogLevel::kWarn);
    lines.push_back(line);
  });
  EXPECT_EQ(Device::best(), Device::host());
  EXPECT_EQ(Device::best(), Device::host());
  set_log_sink(nullptr);
  EXPECT_THAT(lines, ElementsAre(AllOf(HasSubstr("host_device_chosen"), HasSubstr("11.4"),
                                       HasSubstr("update the driver"))));
}

}  // namespace
}  // namespace cgtree
