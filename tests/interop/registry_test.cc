// The registry of devices, with devices of users.
#include "interop/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "interop/device/device_api.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/tensor.h"
#include "simulator/host_device.h"

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

TEST(RegistryTest, ADeviceIsFoundByItsNameAndByTvmsKey) {
  for (const char* name : {"host", "cpu", "device_api.host", "device_api.cpu"})
    EXPECT_EQ(find_device_api(name), &host_device_api()) << name;
  EXPECT_EQ(find_device_api("cuda"), find_device_api(DeviceType::kCuda));
  EXPECT_EQ(find_device_api("device_api.cuda"), find_device_api(DeviceType::kCuda));
  EXPECT_EQ(find_device_api("tape"), nullptr);
  EXPECT_EQ(find_device_api("device_api."), nullptr);
}

// TVM: test_check_if_device_exists, for a kind that is not registered.
TEST(RegistryTest, AnUnknownNameIsRefusedWithTheNamesThereAre) {
  try {
    (void)device_api("device_api.tape");
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(std::string(error.message()), HasSubstr("'tape' is unknown; there are host"));
  }
}

TEST(RegistryTest, WithoutCudaItsNameIsKnownAndNotEnabled) {
  if (find_device_api("cuda") != nullptr) GTEST_SKIP() << "built with CUDA";
  try {
    (void)device_api("cuda");
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(std::string(error.message()), HasSubstr("'cuda' is not enabled"));
  }
}

// TVM (tvm-ffi, test_device): from_str, with_dev_id, rejects_noncanonical_aliases, id_error.
TEST(RegistryTest, ParsesDevicesAndRefusesWhatIsNone) {
  EXPECT_EQ(parse_device("host"), Device::host());
  EXPECT_EQ(parse_device("cpu:2"), Device::host(2));
  EXPECT_EQ(parse_device("cuda:1"), Device::cuda(1));
  EXPECT_EQ(parse_device("auto"), Device::best());
  for (const char* text : {"", ":", "gpu", "CUDA", "cuda ", "cuda:", "cuda:-1", "cuda:1x",
                           "cuda:1:1", "cuda:99999999999", "auto:1"}) {
    EXPECT_THROW((void)parse_device(text), InvalidArgument) << text;
  }
}

}  // namespace
}  // namespace cgtree
