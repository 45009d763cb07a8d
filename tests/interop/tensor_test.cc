// Tensors on every device: views, host copies, printing, refusals.
#include "interop/tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "interop/device/code.h"
#include "interop/device/device.h"
#include "interop/tensor/empty.h"
#include "tests/support/devices.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TensorTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }

  Device device() const { return GetParam().device; }
  // 0, 1, 2, ... row by row.
  Tensor counted(const Shape& shape) const {
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    std::iota(values.begin(), values.end(), 0.0f);
    return from_host<float>(shape, values, device());
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, TensorTest, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(TensorTest, CopiedValuesAreReadBack) {
  const std::vector<std::int32_t> values = {7, -1, 2147483647};

  const Tensor tensor = from_host<std::int32_t>({3}, values, device());

  EXPECT_EQ(tensor.to_vector<std::int32_t>(), values);
  EXPECT_EQ(tensor.dtype(), DType::kInt32);
  EXPECT_EQ(tensor.device(), device());
  EXPECT_EQ(tensor.bytes(), 12u);
}

TEST_P(TensorTest, CopiesOfATensorAreHandlesOfOneStorage) {
  const Tensor tensor = counted({4});
  const Tensor other = tensor;

  other.copy_from(std::span<const float>(std::vector<float>{9, 8, 7, 6}));

  EXPECT_EQ(tensor.storage(), other.storage());
  EXPECT_THAT(tensor.to_vector<float>(), ElementsAre(9, 8, 7, 6));
}

TEST_P(TensorTest, ASliceIsAViewAtItsOffset) {
  const Tensor tensor = counted({4, 3});
  const Tensor rows = tensor.slice(0, 1, 3);
  const Tensor column = tensor.slice(-1, 2, 3);

  EXPECT_THAT(rows.to_vector<float>(), ElementsAre(3, 4, 5, 6, 7, 8));
  EXPECT_EQ(rows.address(), tensor.address() + 12);
  EXPECT_EQ(rows.storage(), tensor.storage());
  EXPECT_EQ(column.shape().stride(0), 3);
  EXPECT_FALSE(column.is_contiguous());
  EXPECT_EQ(tensor.slice(0, 4, 4).elements(), 0);
  EXPECT_EQ(tensor.slice(1, 1, 2).slice(0, 4, 4).elements(), 0);
}

TEST_P(TensorTest, ReshapeAndTransposeMoveNoData) {
  const Tensor tensor = counted({2, 3});

  EXPECT_THAT(tensor.reshape({6}).to_vector<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
  const Tensor transposed = tensor.transpose(0, 1);
  EXPECT_EQ(transposed.dim(0), 3);
  EXPECT_EQ(transposed.address(), tensor.address());
  EXPECT_THAT(to_string(transposed), HasSubstr("[[0, 3], [1, 4], [2, 5]]"));
}

TEST_P(TensorTest, PrintsShapeDeviceAndValues) {
  EXPECT_EQ(to_string(counted({2, 2})),
            fmt::format("float32 {{2, 2}} on {} [[0, 1], [2, 3]]", to_string(device())));
  EXPECT_THAT(to_string(counted({100})), HasSubstr("[0, 1, 2, ..., 97, 98, 99]"));
  EXPECT_EQ(to_string(Tensor()), "no tensor");
  const std::vector<std::uint8_t> flags = {1, 0};
  EXPECT_THAT(to_string(from_host<std::uint8_t>({2}, flags, device())), HasSubstr("[1, 0]"));
}

TEST_P(TensorTest, AnEmptyTensorNeedsNoMemory) {
  const Tensor tensor = empty({0, 5}, DType::kFloat64, device());

  EXPECT_EQ(tensor.bytes(), 0u);
  EXPECT_TRUE(tensor.to_vector<double>().empty());
}

TEST_P(TensorTest, WrongSizesAreRefusedWithBothSides) {
  const Tensor tensor = counted({4, 3});

  EXPECT_THROW((void)tensor.reshape({5}), InvalidArgument);
  EXPECT_THROW((void)tensor.slice(0, 2, 5), InvalidArgument);
  EXPECT_THROW((void)tensor.slice(0, 0, 2).slice(0, 0, 3), InvalidArgument);  // inside the storage
  EXPECT_THROW((void)tensor.slice(2, 0, 1), InvalidArgument);
  EXPECT_THROW((void)tensor.dim(-3), InvalidArgument);
  EXPECT_THROW((void)tensor.data<double>(), InvalidArgument);
  EXPECT_THROW((void)tensor.transpose(0, 1).to_vector<float>(), InvalidArgument);
  EXPECT_THROW(tensor.copy_from_host(nullptr, tensor.bytes()), InvalidArgument);
  EXPECT_THROW(Tensor(tensor.storage(), 4, Shape{4, 3}, DType::kFloat32), InvalidArgument);
  EXPECT_THROW((void)Tensor().data(), InvalidArgument);
  try {
    tensor.copy_from(std::span<const float>(std::vector<float>(11)));
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(std::string(error.message()), HasSubstr("holds 48 bytes, 44 given"));
  }
}

TEST_P(TensorTest, MoreThanThereIsIsOutOfMemoryAndNamesTheDevice) {
  try {
    (void)empty({std::int64_t{1} << 50}, DType::kFloat32, device());
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(std::string(error.message()), HasSubstr(to_string(device())));
    EXPECT_THAT(std::string(error.message()), HasSubstr("4503599627370496 bytes"));
  }
  EXPECT_THAT(counted({2}).to_vector<float>(), ElementsAre(0, 1));
}

TEST_P(TensorTest, HandlesAreCountedAcrossThreads) {
  Tensor tensor = counted({8});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([tensor] {
      for (int i = 0; i < 1000; ++i) {
        const Tensor view = Tensor(tensor).slice(0, i % 8, 8);
        ASSERT_EQ(view.elements(), 8 - i % 8);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_EQ(tensor.storage()->references(), 1u);
}

TEST_P(TensorTest, AssigningReleasesAtOnceWhatWasThereBefore) {
  Tensor tensor = counted({8});
  const Tensor before = tensor;
  Tensor other = counted({2, 3});
  const Tensor same = other;

  tensor = std::move(other);
  EXPECT_EQ(before.storage()->references(), 1u);
  EXPECT_EQ(tensor.storage(), same.storage());
  EXPECT_EQ(tensor.shape(), Shape({2, 3}));
  EXPECT_EQ(same.storage()->references(), 2u);

  Tensor& itself = tensor;
  tensor = itself;
  tensor = std::move(itself);
  EXPECT_EQ(tensor.shape(), Shape({2, 3}));
  EXPECT_EQ(same.storage()->references(), 2u);

  tensor = before;
  EXPECT_EQ(tensor.shape(), Shape({8}));
  EXPECT_EQ(same.storage()->references(), 1u);
  EXPECT_EQ(same.shape(), Shape({2, 3}));
}

TEST(EmptyTest, OutsideOfAStepFunctionADeviceMustBeGiven) {
  EXPECT_THROW((void)empty({2}, DType::kFloat32), InvalidArgument);
}

TEST(RegistryTest, DevicesAreNamedAndUnknownOnesRefused) {
  EXPECT_EQ(parse_device("host"), Device::host());
  EXPECT_EQ(parse_device("cuda:1"), Device::cuda(1));
  EXPECT_EQ(parse_device("auto"), Device::best());
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "host:1x"}) {
    EXPECT_THROW((void)parse_device(text), InvalidArgument) << text;
  }
  EXPECT_THROW((void)device_api(Device::host(99)), InvalidArgument);
  EXPECT_THROW((void)device_api({DeviceType::kFirstUserType, 0}), InvalidArgument);
}

TEST(CodeTest, NumbersHaveCudasNamesAndBecomeTheirExceptions) {
  EXPECT_EQ(name(Code::kStreamCaptureUnjoined), "cudaErrorStreamCaptureUnjoined");
  EXPECT_THROW(check(Code::kMemoryAllocation, "allocate"), OutOfMemory);
  EXPECT_THROW(check(Code::kStreamCaptureIsolation, "wait"), CaptureError);
  try {
    check(Code::kIllegalAddress, "launch 'f'");
    FAIL() << "nothing was thrown";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), 700);
    EXPECT_THAT(std::string(error.message()), HasSubstr("launch 'f': cudaErrorIllegalAddress"));
  }
}

}  // namespace
}  // namespace cgtree::testing
