// Tensors in memory that the caller has allocated.
#include "interop/exchange/from_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/error.h"
#include "interop/device/device.h"
#include "interop/device/stream.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "tests/support/devices.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class FromMemoryTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    memory_ = allocate_device_memory(device(), 64);
  }
  void TearDown() override {
    if (memory_ != nullptr) free_device_memory(device(), memory_);
  }
  Device device() const { return GetParam().device; }

  void* memory_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Devices, FromMemoryTest, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(FromMemoryTest, ATensorIsThatMemoryAndKeepsItsOwner) {
  const auto owner = std::make_shared<int>(0);
  {
    const Tensor x = from_memory(device(), memory_, {2, 2}, DType::kFloat32, owner);
    EXPECT_EQ(x.data(), memory_);
    EXPECT_EQ(x.device(), device());
    EXPECT_EQ(owner.use_count(), 2);
    x.copy_from<float>(std::vector<float>{1, 2, 3, 4});
    const Tensor column = from_memory(
        device(), memory_, Shape(std::vector<std::int64_t>{2}, std::vector<std::int64_t>{2}),
        DType::kFloat32);
    const Tensor dense = empty({2}, DType::kFloat32, device());
    const Stream stream(device(), StreamKind::kBlocking);
    copy_elements(stream, dense, column);
    stream.synchronize();
    EXPECT_THAT(dense.to_vector<float>(), ElementsAre(1, 3));
  }
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_P(FromMemoryTest, MemoryThatCannotBeATensorIsRefused) {
  const auto refused = [&](void* data, StreamRef stream = {}) {
    return [=, this] { (void)from_memory(device(), data, {2}, DType::kFloat32, nullptr, stream); };
  };
  EXPECT_THAT(refused(nullptr),
              ThrowsMessage<BoundaryError>(HasSubstr("data is null, but the shape is {2}")));
  EXPECT_THAT(refused(static_cast<char*>(memory_) + 2),
              ThrowsMessage<BoundaryError>(HasSubstr("not aligned to the 4 bytes of float32")));
  std::vector<float> host(2);
  EXPECT_THAT(refused(host.data()),
              ThrowsMessage<BoundaryError>(HasSubstr("it is ordinary memory of the host")));
  const Stream elsewhere(Device::host(1));
  EXPECT_THAT(refused(memory_, elsewhere), ThrowsMessage<BoundaryError>(HasSubstr("a stream of")));
  EXPECT_EQ(from_memory(device(), nullptr, {0}, DType::kFloat32).elements(), 0);
}

}  // namespace
}  // namespace cgtree::testing
