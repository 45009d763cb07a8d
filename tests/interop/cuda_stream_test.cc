// CUDA streams as StreamRefs, and back.
#include "interop/exchange/cuda_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/devices.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(CudaStreamTest, AStreamOfAnotherDeviceIsNoStreamOfCuda) {
  const Stream stream(Device::host());
  EXPECT_THAT([&] { (void)cuda_stream(stream); }, ThrowsMessage<InvalidArgument>(HasSubstr(
                                                      "cuda_stream() of a stream of host:0: pass a "
                                                      "stream of a GPU")));
  EXPECT_THAT([&] { (void)cuda_stream({}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("a null stream")));
}

class CudaStreamOnDeviceTest : public ::testing::TestWithParam<DeviceUnderTest> {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaStreamOnDeviceTest, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(CudaStreamOnDeviceTest, AStreamOfAGpuComesBackWithItsDevice) {
  CGTREE_SKIP_IF_MISSING(GetParam());
  const Device device = GetParam().device;
  if (device.type != DeviceType::kCuda) return;
  const Stream stream(device);
  CUstream_st* const native = cuda_stream(stream);
  EXPECT_EQ(stream_of(native), stream.ref());
  EXPECT_EQ(stream_of(native).device(), device);
  EXPECT_TRUE(stream_of(nullptr).is_default());
}

}  // namespace
}  // namespace cgtree::testing
