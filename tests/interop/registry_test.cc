// The registry: devices of the user's own.
#include "interop/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "interop/empty.h"
#include "interop/host/host_device.h"
#include "interop/tensor.h"

namespace cgtree {
namespace {

using ::testing::HasSubstr;

constexpr DeviceType user_type(int number) {
  return static_cast<DeviceType>(static_cast<int>(DeviceType::kFirstUserType) + number);
}

TEST(RegistryTest, ARegisteredDeviceServesItsKindAndNamesItself) {
  const Device device{user_type(0), 0};
  EXPECT_EQ(find_device_api(device.type), nullptr);
  EXPECT_THROW((void)device_api(device), InvalidArgument);

  register_device_api(device.type, host_device_api());

  EXPECT_EQ(&device_api(device), &host_device_api());
  EXPECT_EQ(to_string(device), "host:0");
  const std::vector<float> values = {1, 2, 3};
  EXPECT_EQ(from_host<float>({3}, values, device).to_vector<float>(), values);
}

TEST(RegistryTest, ANumberThatIsTakenIsRefusedWithBothNames) {
  register_device_api(user_type(1), host_device_api());

  try {
    register_device_api(user_type(1), host_device_api());
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(std::string(error.message()), HasSubstr("device type 65 is taken by 'host'"));
  }
}

TEST(RegistryTest, ReservedNumbersAndThoseBeyondTheLastAreRefused) {
  for (const DeviceType type :
       {DeviceType::kHost, DeviceType::kCuda, user_type(-1), user_type(16)}) {
    EXPECT_THROW(register_device_api(type, host_device_api()), InvalidArgument);
  }
}

}  // namespace
}  // namespace cgtree
