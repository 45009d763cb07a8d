// Tensors exported and imported through the CUDA Array Interface, on every device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "base/error.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/device/stream.h"
#include "interop/exchange/cuda_array_interface.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/stream_synchronization.h"
#include "tests/support/devices.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// T-CAI 10.
// Acceptance: cai 10.
TEST(TypeStringTest, EveryTypeStringIsReadOrRefused) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const TypeString written = type_string_of(static_cast<DType>(i));
    const TypeString read = parse_type_string(written.text);
    EXPECT_EQ(read.dtype, written.dtype) << written.text;
    EXPECT_EQ(read.bytes, static_cast<std::int64_t>(size_of(static_cast<DType>(i))));
    const bool has_letter = written.text[1] != 'V';
    EXPECT_EQ(written.dtype, has_letter ? std::optional(static_cast<DType>(i)) : std::nullopt);
  }
  for (const auto& [text, bytes] : {std::pair("<f16", 16),
                                    {"<c32", 32},
                                    {"<M8[ns]", 8},
                                    {"<m8", 8},
                                    {"|V8", 8},
                                    {"|S5", 5},
                                    {"<U3", 12},
                                    {"|t8", 1},
                                    {"|t24", 3},
                                    {"|t4", 0},
                                    {"|t12", 0}}) {
    EXPECT_EQ(parse_type_string(text).dtype, std::nullopt) << text;
    EXPECT_EQ(parse_type_string(text).bytes, bytes) << text;
  }
  for (const char* text : {"", "f4", "<f", "<f4 ", "<x4", "?f4", "<f-4", "<f3", "<i16", "|b8",
                           "<V0", "<M8ns", "<f4[ns]", "<V99999999999", "<M8[]", "|V-8", "<c4"}) {
    try {
      (void)parse_type_string(text);
      ADD_FAILURE() << text;
    } catch (const BoundaryError& error) {
      EXPECT_EQ(error.fault(), BoundaryFault::kWrongValue) << text;
      EXPECT_THAT(std::string(error.message()), HasSubstr("'typestr' is"));
    }
  }
}

// T-CAI 8.
// Acceptance: cai 8.
TEST(TypeStringTest, SwappedBytesAndPythonObjectsAreNotSupported) {
  for (const auto& [text, why] : {std::pair(">f4", "its bytes are in the other order"),
                                  {">U1", "its bytes are in the other order"},
                                  {"|O8", "Python objects"}}) {
    EXPECT_THAT([text = text] { (void)parse_type_string(text); },
                ThrowsMessage<BoundaryError>(HasSubstr(why)));
  }
  EXPECT_EQ(parse_type_string(">u1").dtype, DType::kUInt8) << "one byte has no order";
}

class CaiTensorsTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    stream_.emplace(device());
  }

  Device device() const { return GetParam().device; }
  ImportOptions here() const { return {.consumer = stream_->ref()}; }
  // 0, 1, 2, ... row by row.
  Tensor counted(const Shape& shape) const {
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    std::iota(values.begin(), values.end(), 0.0f);
    return from_host<float>(shape, values, device());
  }
  // Describes the first elements at `address` as another library would.
  static CudaArrayInterface floats_at(std::uintptr_t address, std::vector<std::int64_t> shape) {
    return {.shape = std::move(shape), .type = type_string_of(DType::kFloat32), .data = address};
  }
  Tensor through(const Tensor& tensor) const {
    return from_cuda_array_interface(to_cuda_array_interface(tensor),
                                     std::make_shared<Tensor>(tensor), here());
  }

  std::optional<Stream> stream_;
};

INSTANTIATE_TEST_SUITE_P(Devices, CaiTensorsTest, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(CaiTensorsTest, ARoundTripKeepsTheMemory) {
  const Tensor tensor = counted({4, 3});

  const Tensor back = through(tensor);

  EXPECT_EQ(back.data(), tensor.data());
  EXPECT_EQ(back.shape(), tensor.shape());
  EXPECT_EQ(back.dtype(), DType::kFloat32);
  EXPECT_EQ(back.device(), device());
  tensor.copy_from(std::span<const float>(std::vector<float>(12, 7.0f)));
  EXPECT_THAT(back.to_vector<float>(), ::testing::Each(7.0f));
}

// T-CAI 3 and 7.
// Acceptance: cai 3, 7.
TEST_P(CaiTensorsTest, RowMajorTensorsHaveNoStridesAndOthersHaveThemInBytes) {
  const Tensor tensor = empty({10, 20}, DType::kFloat64, device());
  const Tensor slice = tensor.slice(0, 2, 7).slice(1, 5, 9);

  EXPECT_EQ(to_cuda_array_interface(tensor).strides, std::nullopt);
  const CudaArrayInterface array = to_cuda_array_interface(slice);
  EXPECT_THAT(*array.strides, ElementsAre(160, 8));
  EXPECT_EQ(array.data, tensor.address() + 2 * 160 + 5 * 8);
  EXPECT_EQ(through(slice).shape(), slice.shape());
  const Shape skipping(std::vector<std::int64_t>{5, 4}, std::vector<std::int64_t>{40, 5});
  const Tensor view(tensor.storage(), 0, skipping, DType::kFloat64);
  EXPECT_THAT(*to_cuda_array_interface(view).strides, ElementsAre(320, 40));
}

// T-CAI 4.
// Acceptance: cai 4.
TEST_P(CaiTensorsTest, TransposedAndBroadcastTensorsComeThrough) {
  const Tensor tensor = counted({4, 3});
  const Tensor turned = tensor.transpose(0, 1);
  EXPECT_THAT(*to_cuda_array_interface(turned).strides, ElementsAre(4, 12));
  EXPECT_EQ(through(turned).shape(), turned.shape());

  const Tensor row = counted({3});
  CudaArrayInterface array = to_cuda_array_interface(row);
  array.shape = {5, 3};
  array.strides = {0, 4};
  EXPECT_EQ(from_cuda_array_interface(array, nullptr, here()).shape().stride(0), 0);
}

// Acceptance: cai 4.
TEST_P(CaiTensorsTest, LayoutsThatTensorsHaveNotAreRefusedByName) {
  const Tensor tensor = counted({4, 4});
  CudaArrayInterface array = to_cuda_array_interface(tensor);
  const auto import = [&] { (void)from_cuda_array_interface(array, nullptr, here()); };

  array.strides = {16, -4};
  array.data += 12;
  EXPECT_THAT(import, ThrowsMessage<BoundaryError>(HasSubstr("strides (16, -4): -4 of axis 1")));
  array = to_cuda_array_interface(tensor);
  array.shape = {2, 2};
  array.strides = {18, 4};
  EXPECT_THAT(import, ThrowsMessage<BoundaryError>(HasSubstr("no multiple of the 4 bytes")));
  array.strides = {4, 2};
  EXPECT_THAT(import, ThrowsMessage<BoundaryError>(HasSubstr("2 of axis 1 is no multiple of")));
  array = floats_at(tensor.address() + 2, {2});
  EXPECT_THAT(import, ThrowsMessage<BoundaryError>(HasSubstr("not aligned to the 4 bytes")));
  array = floats_at(tensor.address(), std::vector<std::int64_t>(9, 1));
  EXPECT_THAT(import, ThrowsMessage<BoundaryError>(HasSubstr("has 9 dimensions: at most 8")));
  array = floats_at(tensor.address(), {1});
  array.type = parse_type_string("<f16");
  EXPECT_THAT(import, ThrowsMessage<BoundaryError>(HasSubstr("'typestr' is '<f16': tensors have")));
  array.stream = 0;
  EXPECT_THAT(import, ThrowsMessage<BoundaryError>(HasSubstr("'stream' is 0")));
}

TEST_P(CaiTensorsTest, FieldsThatContradictEachOtherAreRefusedByName) {
  const Tensor tensor = counted({2, 3});
  const auto refusal = [&](auto change) {
    CudaArrayInterface array = floats_at(tensor.address(), {2, 3});
    change(array);
    try {
      (void)from_cuda_array_interface(array, nullptr, here());
    } catch (const BoundaryError& error) {
      return std::string(error.message());
    }
    return std::string();
  };
  using Array = CudaArrayInterface;
  EXPECT_EQ(refusal([](Array&) {}), "");
  EXPECT_THAT(refusal([](Array& a) { a.version = -1; }), HasSubstr("'version' is -1: expected 0"));
  EXPECT_THAT(refusal([](Array& a) { a.shape = {0, -3}; }), HasSubstr("shape (0, -3): -3 is neg"));
  EXPECT_THAT(refusal([](Array& a) {
                a.shape = {INT64_MAX, INT64_MAX};
              }),
              HasSubstr("more elements than there are"));
  EXPECT_THAT(refusal([](Array& a) { a.shape = {INT64_MAX / 2}; }), HasSubstr("more bytes"));
  EXPECT_THAT(refusal([](Array& a) { a.strides = {12}; }),
              HasSubstr("1 numbers, but 'shape' is (2, 3), 2 dim"));
  EXPECT_THAT(refusal([](Array& a) { a.data = 0; }), HasSubstr("data is null"));
  EXPECT_THAT(refusal([](Array& a) { a.data = UINTPTR_MAX - 19; }),
              HasSubstr("beyond the addresses there are"));
}

TEST_P(CaiTensorsTest, StridesOfAxesWithoutAStepDoNotMatter) {
  const Tensor tensor = counted({4});
  CudaArrayInterface array = floats_at(tensor.address(), {1, 4, 1});
  array.strides = {-7, 4, 13};

  const Tensor back = from_cuda_array_interface(array, nullptr, here());

  EXPECT_TRUE(back.is_contiguous());
  EXPECT_THAT(back.to_vector<float>(), ElementsAre(0, 1, 2, 3));
}

// T-CAI 5 and 6.
// Acceptance: cai 5, 6.
TEST_P(CaiTensorsTest, EmptyTensorsHaveNoAddressAndScalarsOneElement) {
  const Tensor tensor = counted({4, 3});
  const Tensor none = tensor.slice(0, 2, 2);

  const CudaArrayInterface array = to_cuda_array_interface(none);
  EXPECT_EQ(array.data, 0u);
  EXPECT_EQ(array.strides, std::nullopt);
  EXPECT_EQ(array.stream, std::nullopt);
  const Tensor back = through(none);
  EXPECT_EQ(back.elements(), 0);
  EXPECT_EQ(back.shape(), Shape({0, 3}));
  EXPECT_EQ(back.data(), nullptr);

  const Tensor scalar = through(counted(Shape()));
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_THAT(scalar.to_vector<float>(), ElementsAre(0));
}

// T-CAI 9.
// Acceptance: cai 9.
TEST_P(CaiTensorsTest, ReadOnlyMemoryStaysReadOnly) {
  const Tensor tensor = counted({3});
  CudaArrayInterface array = to_cuda_array_interface(tensor);
  EXPECT_FALSE(array.read_only);
  array.read_only = true;

  const Tensor back = from_cuda_array_interface(array, nullptr, here());

  EXPECT_TRUE(is_read_only(back));
  EXPECT_TRUE(is_read_only(back.slice(0, 1, 2)));
  EXPECT_TRUE(to_cuda_array_interface(back).read_only);
  const std::vector<float> values = {7, 8, 9};
  EXPECT_THAT([&] { back.copy_from(std::span<const float>(values)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("is read-only")));
  EXPECT_THAT([&] { copy(back, tensor, stream_->ref()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("the destination is read-only")));
  EXPECT_THAT(back.to_vector<float>(), ElementsAre(0, 1, 2));
}

// T-CAI 10.
// Acceptance: cai 10.
TEST_P(CaiTensorsTest, OpaqueBytesAreReadAsTheCallerSays) {
  const Tensor tensor = empty({4}, DType::kBFloat16, device());
  const CudaArrayInterface array = to_cuda_array_interface(tensor);
  EXPECT_EQ(array.type.text, "<V2");
  ImportOptions options = here();

  EXPECT_THAT([&] { (void)from_cuda_array_interface(array, nullptr, options); },
              ThrowsMessage<BoundaryError>(HasSubstr("ImportOptions::dtype")));
  options.dtype = DType::kFloat32;
  EXPECT_THAT([&] { (void)from_cuda_array_interface(array, nullptr, options); },
              ThrowsMessage<BoundaryError>(HasSubstr("float32, which was asked for, has 4 bytes")));
  options.dtype = DType::kBFloat16;
  EXPECT_EQ(from_cuda_array_interface(array, nullptr, options).dtype(), DType::kBFloat16);
  EXPECT_THAT(
      [&] {
        (void)from_cuda_array_interface(to_cuda_array_interface(counted({1})), nullptr, options);
      },
      ThrowsMessage<BoundaryError>(HasSubstr("is float32, but bfloat16 was asked for")));
}

// T-CAI 15.
// Acceptance: cai 15.
TEST_P(CaiTensorsTest, MemoryThatTheDeviceCannotReachIsRefused) {
  float on_stack = 0;
  const auto address = reinterpret_cast<std::uintptr_t>(&on_stack);
  EXPECT_THAT([&] { (void)from_cuda_array_interface(floats_at(address, {1}), nullptr, here()); },
              ThrowsMessage<BoundaryError>(HasSubstr("ordinary memory of the host, or was freed")));

  void* const freed = allocate_device_memory(device(), 64);
  free_device_memory(device(), freed);
  const CudaArrayInterface gone = floats_at(reinterpret_cast<std::uintptr_t>(freed), {1});
  EXPECT_THROW((void)from_cuda_array_interface(gone, nullptr, here()), BoundaryError);
}

// Acceptance: cai 15.
TEST_P(CaiTensorsTest, PinnedMemoryIsInReach) {
  void* const pinned = allocate_pinned_memory(device(), 64);
  const CudaArrayInterface array = floats_at(reinterpret_cast<std::uintptr_t>(pinned), {2});

  EXPECT_EQ(from_cuda_array_interface(array, nullptr, here()).device(), device());

  free_pinned_memory(device(), pinned);
}

// Acceptance: cai 15.
TEST_P(CaiTensorsTest, MemoryOfAnotherDeviceIsRefusedUnlessNoDeviceWasSaid) {
  const Device other{device().type, 1};
  if (device_api(device()).attribute(1, DeviceAttribute::kExists) !=
      AttributeValue(std::int64_t{1})) {
    EXPECT_THROW((void)Stream(other), Error);  // no device has access to memory of another
    return;
  }
  const Tensor tensor = from_host<float>({1}, std::vector<float>{5}, other);
  const CudaArrayInterface array = floats_at(tensor.address(), {1});

  EXPECT_THAT([&] { (void)from_cuda_array_interface(array, nullptr, here()); },
              ThrowsMessage<BoundaryError>(HasSubstr(to_string(other))));
  if (Device::best().type != device().type) return;
  EXPECT_EQ(from_cuda_array_interface(array).device(), other);
}

// T-CAI 33 and 34.
// Acceptance: cai 33, 34.
TEST_P(CaiTensorsTest, TheOwnerStaysAsLongAsAnyHandle) {
  const Tensor tensor = counted({4});
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = owner;

  Tensor back =
      from_cuda_array_interface(to_cuda_array_interface(tensor), std::move(owner), here());
  Tensor view = back.slice(0, 1, 3);
  back = Tensor();

  EXPECT_FALSE(watched.expired());
  view = Tensor();
  EXPECT_TRUE(watched.expired());
  const long before = tensor.storage()->references();
  (void)from_cuda_array_interface(to_cuda_array_interface(tensor), nullptr, here());
  EXPECT_EQ(tensor.storage()->references(), before);
}

// Acceptance: cai 33.
TEST_P(CaiTensorsTest, AnImportThatIsRefusedDropsTheOwner) {
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = owner;
  CudaArrayInterface array = to_cuda_array_interface(counted({4}));
  array.strides = {-4};
  array.data += 12;

  EXPECT_THROW((void)from_cuda_array_interface(array, std::move(owner), here()), BoundaryError);

  EXPECT_TRUE(watched.expired());
}

// T-CAI 36.
// Acceptance: cai 36.
TEST_P(CaiTensorsTest, ThreadsImportAndExportSideBySide) {
  const Tensor tensor = counted({64});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const Stream own(device());
      for (int round = 0; round < 50; ++round) {
        const Tensor back =
            from_cuda_array_interface(to_cuda_array_interface(tensor),
                                      std::make_shared<Tensor>(tensor), {.consumer = own.ref()});
        EXPECT_EQ(back.data(), tensor.data());
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(tensor.storage()->references(), 1u);
}

// T-CAI 16; the elements are never accessed.
// Acceptance: cai 16.
TEST_P(CaiTensorsTest, ArraysOfMoreThanFourGigabytesKeepTheirSizes) {
  const std::int64_t rows = 500'000'000;
  const Tensor tensor = counted({1});
  CudaArrayInterface array = floats_at(tensor.address(), {rows, 2});

  const Tensor back = from_cuda_array_interface(array, nullptr, here());

  EXPECT_EQ(back.bytes(), 4'000'000'000u);
  const Tensor last = back.slice(0, rows - 1, rows);
  EXPECT_EQ(to_cuda_array_interface(last).data, tensor.address() + 8u * (rows - 1));
}

}  // namespace
}  // namespace cgtree::testing
