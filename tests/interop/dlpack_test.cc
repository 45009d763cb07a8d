// Tensors through DLPack, in and out, on every device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "interop/exchange/cuda_array_interface.h"
#include "interop/exchange/dlpack.h"
#include "interop/exchange/dlpack_tensor.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/stream_synchronization.h"
#include "tests/interop/foreign_dlpack.h"
#include "tests/support/devices.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class DlpackTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }

  Device device() const { return GetParam().device; }
  dlpack::DeviceRef place() const { return to_dlpack_device(device()); }
  Tensor counted(const Shape& shape) const {
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    std::iota(values.begin(), values.end(), 0.0f);
    return from_host<float>(shape, values, device());
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, DlpackTest, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

// T-DL 1.
// Acceptance: dlpack 1.
TEST(DlpackVersionTest, AConsumerThatUnderstandsVersionsGetsOne) {
  EXPECT_FALSE(wants_versioned({}));
  EXPECT_FALSE(wants_versioned(dlpack::Version{0, 8}));
  EXPECT_TRUE(wants_versioned(dlpack::Version{1, 0}));
  EXPECT_TRUE(wants_versioned(dlpack::Version{10, 10}));
}

TEST_P(DlpackTest, ARoundTripKeepsTheMemoryEitherWay) {
  const Tensor tensor = counted({4, 3});

  const Tensor versioned = from_dlpack(to_dlpack(tensor).release());
  const Tensor unversioned = from_dlpack(to_unversioned_dlpack(tensor).release());

  for (const Tensor& back : {versioned, unversioned}) {
    EXPECT_EQ(back.data(), tensor.data());
    EXPECT_EQ(back.shape(), tensor.shape());
    EXPECT_EQ(back.dtype(), tensor.dtype());
    EXPECT_EQ(back.device(), device());
    EXPECT_EQ(back.to_vector<float>(), tensor.to_vector<float>());
  }
}

// T-DL 2. The memory after the deleter does not exist.
// Acceptance: dlpack 2.
TEST(DlpackVersionTest, AnotherMajorVersionIsReadOnlyForItsDeleter) {
  struct Start {
    dlpack::Version version;
    void* context;
    void (*deleter)(dlpack::ManagedVersioned*);
  };
  int deleted = 0;
  auto start = std::make_unique<Start>();  // a sanitizer reports reads after its end
  *start = {{2, 0}, &deleted, [](dlpack::ManagedVersioned* self) {
              ++*static_cast<int*>(self->context);
            }};

  EXPECT_THAT([&] { (void)from_dlpack(reinterpret_cast<dlpack::ManagedVersioned*>(start.get())); },
              ThrowsMessage<BoundaryError>(HasSubstr("DLPack 2.0: expected 1.x")));

  EXPECT_EQ(deleted, 1);
}

// T-DL 3.
// Acceptance: dlpack 3.
TEST_P(DlpackTest, LaterMinorsAndUnknownFlagsAreTaken) {
  const Tensor tensor = counted({2});
  ForeignVersioned foreign(tensor.data(), place(), {2}, {1});
  foreign.managed.version.minor = 99;
  foreign.managed.flags = ~std::uint64_t{0} & ~dlpack::kReadOnly;

  EXPECT_FALSE(is_read_only(from_dlpack(&foreign.managed)));
  EXPECT_EQ(foreign.deleted, 1);
}

// T-DL 4 and 6.
// Acceptance: dlpack 4, 6.
TEST_P(DlpackTest, TheDeleterIsCalledOnceByTheLastHandleOnWhateverThread) {
  const Tensor tensor = counted({4});
  ForeignVersioned foreign(tensor.data(), place(), {4}, {1});
  Tensor back = from_dlpack(&foreign.managed);
  Tensor view = back.slice(0, 1, 3);

  back = Tensor();
  EXPECT_EQ(foreign.deleted, 0);
  std::thread([&] { view = Tensor(); }).join();

  EXPECT_EQ(foreign.deleted, 1);
}

// Acceptance: dlpack 4.
TEST_P(DlpackTest, AnUnconsumedExportDeletesItself) {
  const Tensor tensor = counted({4});
  {
    const DlpackTensor exported = to_dlpack(tensor);
    EXPECT_EQ(tensor.storage()->references(), 2u);
  }
  EXPECT_EQ(tensor.storage()->references(), 1u);
}

// T-DL 5.
// Acceptance: dlpack 5.
TEST_P(DlpackTest, ThereMayBeNoDeleter) {
  const Tensor tensor = counted({4});
  ForeignVersioned versioned(tensor.data(), place(), {4}, {1});
  ForeignUnversioned unversioned(tensor.data(), place(), {4}, {1});
  versioned.managed.deleter = nullptr;
  unversioned.managed.deleter = nullptr;

  EXPECT_EQ(from_dlpack(&versioned.managed).elements(), 4);
  EXPECT_EQ(from_dlpack(&unversioned.managed).elements(), 4);
  EXPECT_THROW((void)from_dlpack(static_cast<dlpack::Managed*>(nullptr)), BoundaryError);
}

// T-DL 7.
// Acceptance: dlpack 7.
TEST_P(DlpackTest, ReadOnlyIsToldBothWaysAndNotHidden) {
  const Tensor tensor = counted({4});
  ForeignVersioned foreign(tensor.data(), place(), {4}, {1});
  foreign.managed.flags = dlpack::kReadOnly;
  const Tensor back = from_dlpack(&foreign.managed);

  EXPECT_TRUE(is_read_only(back));
  EXPECT_THROW(back.copy_from(std::span<const float>(std::vector<float>(4))), InvalidArgument);
  EXPECT_EQ(to_dlpack(back)->flags, dlpack::kReadOnly);
  EXPECT_EQ(to_dlpack(tensor)->flags, 0u);
  EXPECT_THAT([&] { (void)to_unversioned_dlpack(back); },
              ThrowsMessage<BoundaryError>(HasSubstr("is read-only, which DLPack before 1.0")));
  EXPECT_NE(to_unversioned_dlpack(back, {.copy = true}), nullptr);
}

// T-DL 8.
// Acceptance: dlpack 8.
TEST_P(DlpackTest, StridesMayBeMissingOnlyBeforeOneTwo) {
  const Tensor tensor = counted({2, 3});
  const auto import = [&](std::uint32_t minor) {
    ForeignVersioned foreign(tensor.data(), place(), {2, 3}, {3, 1});
    foreign.managed.version.minor = minor;
    foreign.managed.tensor.strides = nullptr;
    const Shape shape = from_dlpack(&foreign.managed).shape();
    EXPECT_EQ(foreign.deleted, 1);
    return shape;
  };
  EXPECT_EQ(import(1), Shape({2, 3}));
  EXPECT_THAT([&] { (void)import(2); },
              ThrowsMessage<BoundaryError>(HasSubstr("strides are null")));
  ForeignUnversioned old(tensor.data(), place(), {2, 3}, {});
  old.managed.tensor.strides = nullptr;
  EXPECT_EQ(from_dlpack(&old.managed).shape(), Shape({2, 3}));
}

// Acceptance: dlpack 8.
TEST_P(DlpackTest, WithoutDimensionsNeitherShapeNorStridesAreNeeded) {
  const Tensor tensor = counted({1});
  ForeignVersioned foreign(tensor.data(), place(), {}, {});
  foreign.managed.tensor.shape = nullptr;
  foreign.managed.tensor.strides = nullptr;

  const Tensor back = from_dlpack(&foreign.managed);

  EXPECT_EQ(back.rank(), 0);
  EXPECT_THAT(back.to_vector<float>(), ElementsAre(0));
}

// Acceptance: dlpack 8.
TEST_P(DlpackTest, StridesOfAxesWithoutAStepDoNotMatter) {
  const Tensor tensor = counted({4});
  ForeignVersioned foreign(tensor.data(), place(), {1, 4, 1}, {INT64_MIN, 1, 4711});

  EXPECT_TRUE(from_dlpack(&foreign.managed).is_contiguous());
}

// T-DL 8 and 20.
// Acceptance: dlpack 20.
TEST_P(DlpackTest, LayoutsThatTensorsHaveNotAreRefusedByNameAndDeletedOnce) {
  const Tensor tensor = counted({4, 4});
  const auto refusal = [&](auto change) {
    ForeignVersioned foreign(tensor.data(), place(), {2, 3}, {3, 1});
    change(foreign.managed);
    std::string message;
    try {
      (void)from_dlpack(&foreign.managed);
    } catch (const BoundaryError& error) {
      message = error.message();
    }
    EXPECT_EQ(foreign.deleted, 1) << message;
    return message;
  };
  using Managed = dlpack::ManagedVersioned;
  EXPECT_EQ(refusal([](Managed&) {}), "");
  EXPECT_THAT(refusal([](Managed& m) { m.tensor.strides[1] = -1; }), HasSubstr("-1 of axis 1"));
  EXPECT_THAT(refusal([](Managed& m) { m.tensor.shape[0] = -2; }), HasSubstr("-2 is negative"));
  EXPECT_THAT(refusal([](Managed& m) { m.tensor.shape[0] = INT64_MAX; }),
              HasSubstr("more elements than there are"));
  EXPECT_THAT(refusal([](Managed& m) { m.tensor.shape[0] = INT64_MAX / 4; }),
              HasSubstr("more bytes"));
  EXPECT_THAT(refusal([](Managed& m) { m.tensor.strides[0] = INT64_MAX; }),
              HasSubstr("more bytes"));
  EXPECT_THAT(refusal([](Managed& m) { m.tensor.shape = nullptr; }), HasSubstr("shape is null"));
  EXPECT_THAT(refusal([](Managed& m) { m.tensor.data = nullptr; }), HasSubstr("data is null"));
  EXPECT_THAT(refusal([](Managed& m) { m.tensor.ndim = -1; }), HasSubstr("ndim is -1"));
  EXPECT_THAT(refusal([](Managed& m) { m.tensor.byte_offset = 2; }), HasSubstr("not aligned to"));
  EXPECT_THAT(refusal([](Managed& m) { m.tensor.byte_offset = UINT64_MAX - 3; }),
              HasSubstr("beyond the addresses"));
  EXPECT_THAT(refusal([](Managed& m) { m.tensor.dtype.lanes = 4; }),
              AllOf(HasSubstr("in 4 lanes"), HasSubstr("float8_e8m0fnu")));
}

// Acceptance: dlpack 8.
TEST_P(DlpackTest, BroadcastAndTransposedTensorsComeThrough) {
  const Tensor tensor = counted({4, 3});
  const Tensor turned = tensor.transpose(0, 1);
  EXPECT_EQ(from_dlpack(to_dlpack(turned).release()).shape(), turned.shape());
  ForeignVersioned foreign(tensor.data(), place(), {5, 3}, {0, 1});
  EXPECT_EQ(from_dlpack(&foreign.managed).shape().stride(0), 0);
}

// T-DL 9.
// Acceptance: dlpack 9.
TEST_P(DlpackTest, TheByteOffsetIsAdded) {
  const Tensor tensor = counted({8});
  ForeignVersioned foreign(tensor.data(), place(), {2}, {1});
  foreign.managed.tensor.byte_offset = 12;

  const Tensor back = from_dlpack(&foreign.managed);

  EXPECT_EQ(back.address(), tensor.address() + 12);
  EXPECT_THAT(back.to_vector<float>(), ElementsAre(3, 4));
}

// T-DL 10.
// Acceptance: dlpack 10.
TEST(DlpackTypeTest, EveryTypeOfOursComesBackAndNoOtherIsTaken) {
  int taken = 0;
  for (int code = 0; code < 24; ++code) {
    for (int bits = 0; bits < 256; ++bits) {
      for (const int lanes : {0, 1, 2, 4}) {
        const dlpack::DataType type{static_cast<std::uint8_t>(code),
                                    static_cast<std::uint8_t>(bits),
                                    static_cast<std::uint16_t>(lanes)};
        try {
          const dlpack::DataType back = to_dlpack_type(from_dlpack_type(type));
          EXPECT_EQ(std::memcmp(&back, &type, sizeof(type)), 0) << to_string(type);
          ++taken;
        } catch (const BoundaryError& error) {
          EXPECT_THAT(std::string(error.message()), HasSubstr("elements are " + to_string(type)));
        }
      }
    }
  }
  EXPECT_EQ(taken, kDTypeCount);
  EXPECT_EQ(to_string(dlpack::DataType{17, 8, 1}), "float4_e2m1fn of 8 bits");
  EXPECT_EQ(to_string(dlpack::DataType{5, 64, 2}), "complex64 in 2 lanes");
}

// T-DL 11.
// Acceptance: dlpack 11.
TEST_P(DlpackTest, EmptyTensorsHaveNoData) {
  const Tensor tensor = counted({4, 3});
  const DlpackTensor exported = to_dlpack(tensor.slice(0, 2, 2));
  EXPECT_EQ(exported->tensor.data, nullptr);
  EXPECT_EQ(exported->tensor.ndim, 2);
  for (void* const data : {static_cast<void*>(nullptr), tensor.data()}) {
    ForeignVersioned foreign(data, place(), {0, 3}, {-1, INT64_MAX});
    const Tensor back = from_dlpack(&foreign.managed);
    EXPECT_EQ(back.elements(), 0);
    EXPECT_EQ(back.data(), nullptr);
  }
}

// T-DL 12.
// Acceptance: dlpack 12.
TEST(DlpackDeviceTest, MemoryOfTheHostIsTheHostsAndOtherDevicesAreRefusedByName) {
  std::vector<float> values = {1, 2, 3};
  for (const std::int32_t type : {dlpack::kCpu, dlpack::kCudaHost}) {
    ForeignVersioned foreign(values.data(), {type, 0}, {3}, {1});
    const Tensor tensor = from_dlpack(&foreign.managed);
    EXPECT_EQ(tensor.device(), Device::host());
    EXPECT_EQ(tensor.data(), values.data());
  }
  const std::pair<std::int32_t, const char*> others[] = {
      {12, "data is on extension 0"}, {10, "ROCm"},           {5, "device type 5"},
      {0, "device type 0"},           {-1, "device type -1"}, {99, "device type 99"},
  };
  for (const auto& [type, text] : others) {
    ForeignVersioned foreign(values.data(), {type, 0}, {3}, {1});
    EXPECT_THAT([&] { (void)from_dlpack(&foreign.managed); },
                ThrowsMessage<BoundaryError>(HasSubstr(text)));
    EXPECT_EQ(foreign.deleted, 1);
  }
}

// Acceptance: dlpack 12.
TEST_P(DlpackTest, MemoryOutOfTheDevicesReachIsRefused) {
  float on_stack = 5;
  ForeignVersioned foreign(&on_stack, place(), {1}, {1});
  if (device().type == DeviceType::kHost) {  // the device has access to all memory
    EXPECT_EQ(from_dlpack(&foreign.managed).to_vector<float>(), std::vector<float>{5});
    return;
  }
  EXPECT_THROW((void)from_dlpack(&foreign.managed), BoundaryError);
  ForeignVersioned nowhere(&on_stack, {place().type, 4711}, {1}, {1});
  EXPECT_THROW((void)from_dlpack(&nowhere.managed), InvalidArgument);
}

// T-DL 14.
// Acceptance: dlpack 14.
TEST_P(DlpackTest, CopiesAreMadeWhereTheyAreAskedForAndFlagged) {
  const Tensor tensor = counted({4, 3});
  const Tensor turned = tensor.transpose(0, 1);

  const Tensor same = from_dlpack(to_dlpack(turned, {.copy = false}).release());
  EXPECT_EQ(same.data(), turned.data());
  DlpackTensor exported = to_dlpack(turned, {.copy = true});
  EXPECT_EQ(exported->flags, dlpack::kIsCopied);
  const Tensor copy = from_dlpack(exported.release());
  tensor.copy_from(std::span<const float>(std::vector<float>(12, -1)));

  EXPECT_NE(copy.data(), tensor.data());
  EXPECT_THAT(copy.to_vector<float>(), ElementsAre(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11));
}

// Acceptance: dlpack 14.
TEST_P(DlpackTest, TheHostGetsACopyUnlessItIsForbidden) {
  const Tensor tensor = counted({4, 3});
  const Tensor turned = tensor.transpose(0, 1);
  const bool is_host = device().type == DeviceType::kHost;

  DlpackTensor exported = to_dlpack(turned, {.device = Device::host()});
  EXPECT_EQ(exported->tensor.device.type, dlpack::kCpu);
  EXPECT_EQ(exported->flags, is_host ? 0u : dlpack::kIsCopied);
  EXPECT_THAT(from_dlpack(exported.release()).shape(),
              is_host ? turned.shape() : Shape(turned.shape().dims()));
  EXPECT_THROW((void)to_dlpack(turned, {.device = Device{device().type, 3}}), BoundaryError);
  EXPECT_THROW((void)to_dlpack(turned, {.stream = 1, .device = Device::host()}), BoundaryError);
  if (is_host) return;
  EXPECT_THAT([&] { (void)to_dlpack(turned, {.device = Device::host(), .copy = false}); },
              ThrowsMessage<BoundaryError>(HasSubstr("without a copy")));
}

// T-DL 18.
// Acceptance: dlpack 18.
TEST_P(DlpackTest, AViewThatWasExportedKeepsTheRoot) {
  Tensor tensor = counted({8});
  const Storage* const storage = tensor.storage().get();
  DlpackTensor first = to_dlpack(tensor.slice(0, 2, 4));
  DlpackTensor second = to_dlpack(tensor);
  EXPECT_EQ(storage->references(), 3u);
  tensor = Tensor();
  second.reset();

  const Tensor back = from_dlpack(first.release());

  EXPECT_EQ(storage->references(), 1u);
  EXPECT_THAT(back.to_vector<float>(), ElementsAre(2, 3));
}

// T-DL 19.
// Acceptance: dlpack 19.
TEST_P(DlpackTest, BothProtocolsSayTheSame) {
  const Tensor tensor = counted({6, 4});
  const Tensor view = tensor.slice(0, 1, 5).transpose(0, 1);
  const CudaArrayInterface array = to_cuda_array_interface(view);
  const DlpackTensor exported = to_dlpack(view);
  const dlpack::TensorView& other = exported->tensor;

  EXPECT_EQ(array.data, reinterpret_cast<std::uintptr_t>(other.data) + other.byte_offset);
  for (std::size_t axis = 0; axis < 2; ++axis) {
    EXPECT_EQ(array.shape[axis], other.shape[axis]);
    EXPECT_EQ((*array.strides)[axis], other.strides[axis] * 4);
  }
}

}  // namespace
}  // namespace cgtree::testing
