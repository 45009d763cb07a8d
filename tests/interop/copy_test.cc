// copy() between devices, and memory with a requested alignment. Tests modelled on TVM's name them.
#include "interop/tensor/copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"
#include "simulator/host_device.h"

namespace cgtree {
namespace {

using ::testing::HasSubstr;

template <typename Function>
std::string refusal(Function function) {
  try {
    function();
  } catch (const InvalidArgument& error) {
    return std::string(error.message());
  }
  return "nothing was thrown";
}

TEST(CopyTest, GoesFromOneDeviceToAnother) {
  const std::vector<float> values = {1, 2, 3};
  const Tensor source = from_host<float>({3}, values, Device::host(0));
  for (const int id : {0, 1}) {
    const Tensor there = from_host<float>({3}, std::vector<float>(3, -1), Device::host(2));
    const Stream stream(Device::host(id));

    copy(there, source, stream);
    stream.synchronize();

    EXPECT_EQ(there.to_vector<float>(), values);
  }
}

TEST(CopyTest, RefusesAStreamThatCannotReachTheMemory) {
  const auto type = static_cast<DeviceType>(static_cast<int>(DeviceType::kFirstUserType) + 3);
  register_device_api(type, host_device_api());
  const Tensor there = empty({3}, DType::kFloat32, Device{type, 0});
  const Tensor here = empty({3}, DType::kFloat32, Device::host());
  const Stream stream(Device::host());

  EXPECT_THAT(refusal([&] { copy(here, there, stream); }), HasSubstr("cannot reach memory"));
  EXPECT_THAT(refusal([&] { copy(there, here, stream); }), HasSubstr("cannot reach memory"));
  copy(there, here, Stream(Device{type, 0}));  // this device has access to the host's memory
}

// TVM: test_stream.py, test_raw_stream.
TEST(CopyTest, NestedStreamScopesRestoreTheStreamBefore) {
  const Stream outer(Device::host());
  const Stream inner(Device::host(1));
  EXPECT_FALSE(current_stream_or_none());
  {
    const StreamScope outer_scope(outer);
    {
      const StreamScope inner_scope(inner);
      EXPECT_EQ(current_stream(), inner.ref());
    }
    EXPECT_EQ(current_stream(), outer.ref());
  }
  EXPECT_FALSE(current_stream_or_none());
}

// A scope on the heap may end before scopes that began inside it. The later stream may have the
// handle of the ended one.
TEST(CopyTest, ASideStreamThatEndsWithoutJoiningIsNotJoinedByALaterOne) {
  const Stream own(Device::host());
  const StreamFork fork(own);
  std::optional<Stream> side(Device::host());
  const StreamHandle handle = side->ref().handle();
  side->ref().wait_for(own);
  side.reset();
  std::list<Stream> later;
  for (int i = 0; i < 64 && (later.empty() || later.back().ref().handle() != handle); ++i) {
    later.emplace_back(Device::host());
    own.ref().wait_for(later.back());
  }
  EXPECT_FALSE(fork.is_joined());
}

TEST(CopyTest, StreamScopesThatEndInAnyOrderLeaveNoStreamBehind) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  std::vector<Stream> streams;
  for (int i = 0; i < 4; ++i)
    streams.emplace_back(Device::host());
  std::vector<std::pair<std::unique_ptr<StreamScope>, StreamRef>> open;
  for (int i = 0; i < 200; ++i) {
    if (open.empty() || random() % 2 == 0) {
      const StreamRef stream = streams[random() % streams.size()];
      open.emplace_back(std::make_unique<StreamScope>(stream), stream);
    } else {
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(random() % open.size()));
    }
    EXPECT_EQ(current_stream_or_none(), open.empty() ? StreamRef() : open.back().second)
        << "seed " << seed;
  }
  while (!open.empty())
    open.erase(open.begin());
  EXPECT_FALSE(current_stream_or_none()) << "seed " << seed;
}

// TVM: alloc_errors.
TEST(DeviceMemoryTest, RefusesDevicesThatDoNotExist) {
  EXPECT_THAT(refusal([] { allocate_device_memory(Device::host(9), 64); }),
              HasSubstr("host:9 cannot be used: there is no device of this number"));
}

TEST(DeviceMemoryTest, GivesMemoryOfTheDevicesAlignment) {
  void* const data = allocate_device_memory(Device::host(1), 3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kDataSpaceAlignment, 0u);
  free_device_memory(Device::host(1), data);
}

// TVM: allocnd_free_cpu, alloc_scalar.
TEST(DeviceMemoryTest, ShapedMemoryMayHaveManyDimensionsOrNone) {
  EXPECT_EQ(empty({2, 3, 4}, DType::kFloat16, Device::host()).bytes(), 48u);
  EXPECT_EQ(empty(Shape{}, DType::kFloat64, Device::host()).bytes(), 8u);
}

// TVM: allocnd_erros.
TEST(DeviceMemoryTest, ShapedMemoryOfNegativeSizeIsRefused) {
  EXPECT_THROW((void)empty({2, -3}, DType::kInt8, Device::host()), InvalidArgument);
  EXPECT_THROW((void)empty({2}, DType::kInt8, Device::host(9)), InvalidArgument);
  EXPECT_THROW((void)empty({2}, DType::kInt8), InvalidArgument);  // without a device
}

}  // namespace
}  // namespace cgtree
