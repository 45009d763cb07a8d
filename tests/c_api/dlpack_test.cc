// DLPack through C: tensors in and out, and every wrong field of a tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>

#include "interop/device/stream.h"
#include "interop/exchange/dlpack.h"
#include "tests/c_api/c_tools.h"
#include "tests/interop/foreign_dlpack.h"
#include "tests/support/devices.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;

class CApiDlpackTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    live_ = cgt_live_handles();
    data_ = make_tensor_of(device(), {0, 1, 2, 3, 4, 5, 6, 7});
    address_ = static_cast<float*>(info_of(data_).data);
  }
  void TearDown() override {
    if (!GetParam().missing.empty()) return;
    data_ = OwnedTensor();
    EXPECT_EQ(cgt_live_handles(), live_);
  }

  Device device() const { return GetParam().device; }
  dlpack::DeviceRef place() const { return {static_cast<std::int32_t>(device().type), 0}; }
  cgt_status import(ForeignVersioned& foreign, OwnedTensor& out,
                    const cgt_dlpack_import_options* options = nullptr) {
    out = OwnedTensor();
    return cgt_tensor_from_dlpack(reinterpret_cast<DLManagedTensorVersioned*>(&foreign.managed),
                                  options, out.out());
  }
  // Returns the status of the import of a changed tensor, which must be deleted once.
  template <typename Change>
  cgt_status refused(Change change) {
    ForeignVersioned foreign(address_, place(), {4, 2}, {2, 1});
    change(foreign.managed);
    OwnedTensor none;
    const cgt_status status = import(foreign, none);
    EXPECT_EQ(foreign.deleted, 1);
    return status;
  }
  dlpack::ManagedVersioned* exported(cgt_tensor tensor, cgt_dlpack_export_options options = {}) {
    DLManagedTensorVersioned* out = nullptr;
    options.struct_size = sizeof(options);
    EXPECT_DONE(cgt_tensor_to_dlpack(tensor, &options, &out));
    return reinterpret_cast<dlpack::ManagedVersioned*>(out);
  }

  std::size_t live_ = 0;
  OwnedTensor data_;
  float* address_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Devices, CApiDlpackTest, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(CApiDlpackTest, ATensorGoesOutAndComesBack) {
  DLManagedTensorVersioned* versioned = nullptr;
  OwnedTensor tensor;
  EXPECT_DONE(cgt_tensor_to_dlpack(data_, nullptr, &versioned));
  EXPECT_EQ(reinterpret_cast<dlpack::ManagedVersioned*>(versioned)->version.major, 1u);
  EXPECT_DONE(cgt_tensor_from_dlpack(versioned, nullptr, tensor.out()));
  EXPECT_EQ(info_of(tensor).data, address_);
  EXPECT_THAT(values_of(tensor), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_P(CApiDlpackTest, TheDeleterIsCalledOnceOnWhateverThreadAndMayBeMissing) {
  ForeignVersioned foreign(address_, place(), {8}, {1});
  OwnedTensor tensor, view;
  EXPECT_DONE(import(foreign, tensor));
  EXPECT_DONE(cgt_tensor_slice(tensor, 0, 1, 3, view.out()));
  tensor.reset();
  EXPECT_EQ(foreign.deleted, 0);
  std::thread([&] { view.reset(); }).join();
  EXPECT_EQ(foreign.deleted, 1);

  ForeignVersioned bare(address_, place(), {8}, {1});
  bare.managed.deleter = nullptr;
  EXPECT_DONE(import(bare, tensor));
  bare.managed.tensor.ndim = -1;
  EXPECT_FAILS(import(bare, tensor), CGT_WRONG_VALUE, "-1");
  EXPECT_FAILS(cgt_tensor_from_dlpack(nullptr, nullptr, tensor.out()), CGT_INVALID_ARGUMENT,
               "the DLPack tensor is NULL");
  ForeignVersioned kept(address_, place(), {8}, {1});
  EXPECT_FAILS(cgt_tensor_from_dlpack(reinterpret_cast<DLManagedTensorVersioned*>(&kept.managed),
                                      nullptr, nullptr),
               CGT_INVALID_ARGUMENT, "the place for the result is NULL");
  EXPECT_EQ(kept.deleted, 1) << "handed over is handed over";
}

TEST_P(CApiDlpackTest, ReadOnlyIsToldBothWays) {
  ForeignVersioned foreign(address_, place(), {8}, {1});
  foreign.managed.flags = dlpack::kReadOnly;
  OwnedTensor tensor;
  EXPECT_DONE(import(foreign, tensor));
  EXPECT_EQ(info_of(tensor).is_read_only, 1);
  dlpack::ManagedVersioned* const out = exported(tensor);
  EXPECT_NE(out->flags & dlpack::kReadOnly, 0u);
  out->deleter(out);
}

TEST(CApiScalarTest, NumbersOfAnySizeAndStructsArePassedByValue) {
  const double value[3] = {1, 2, 3};
  OwnedTensor number, block, none;
  EXPECT_DONE(cgt_tensor_by_value(CGT_COMPLEX128, 0, nullptr, value, number.out()));
  EXPECT_EQ(std::memcmp(info_of(number).data, value, 16), 0);
  const std::int64_t bytes = sizeof(value);
  EXPECT_DONE(cgt_tensor_by_value(CGT_UINT8, 1, &bytes, value, block.out()));
  EXPECT_EQ(std::memcmp(info_of(block).data, value, sizeof(value)), 0);
  EXPECT_EQ(info_of(block).dtype, CGT_UINT8);
  EXPECT_FAILS(cgt_tensor_by_value(CGT_UINT8, 1, &bytes, nullptr, none.out()), CGT_INVALID_ARGUMENT,
               "the values");
}

TEST_P(CApiDlpackTest, OptionsOfAnExportAreRead) {
  dlpack::ManagedVersioned* const copy = exported(data_, {.flags = CGT_DLPACK_COPY});
  EXPECT_NE(copy->tensor.data, address_);
  EXPECT_NE(copy->flags & dlpack::kIsCopied, 0u);
  copy->deleter(copy);
  dlpack::ManagedVersioned* const host =
      exported(data_, {.flags = CGT_DLPACK_HAS_DEVICE, .device = {CGT_DEVICE_HOST, 0}});
  EXPECT_EQ(host->tensor.device.type, dlpack::kCpu);
  EXPECT_EQ(static_cast<const float*>(host->tensor.data)[7], 7);
  host->deleter(host);
  cgt_dlpack_export_options both = {.struct_size = sizeof(both),
                                    .flags = CGT_DLPACK_COPY | CGT_DLPACK_NO_COPY};
  DLManagedTensorVersioned* out = nullptr;
  EXPECT_FAILS(cgt_tensor_to_dlpack(data_, &both, &out), CGT_INVALID_ARGUMENT,
               "asked for and forbidden");
  both.flags = 1u << 9;
  EXPECT_FAILS(cgt_tensor_to_dlpack(data_, &both, &out), CGT_INVALID_ARGUMENT, "flags are 0x200");
  both.flags = CGT_DLPACK_HAS_STREAM;
  both.stream = -2;
  EXPECT_NE(cgt_tensor_to_dlpack(data_, &both, &out), CGT_OK);
}

TEST_P(CApiDlpackTest, AProducersStreamMayBeNamed) {
  const Stream consumer(device()), producer(device());
  const cgt_stream ours = c_stream(consumer), theirs = c_stream(producer);
  const cgt_dlpack_import_options options = {.struct_size = sizeof(options),
                                             .sync = CGT_SYNC_EVENT_WAIT,
                                             .consumer = &ours,
                                             .producer = &theirs};
  ForeignVersioned foreign(address_, place(), {8}, {1});
  OwnedTensor tensor;
  EXPECT_DONE(import(foreign, tensor, &options));
  EXPECT_EQ(info_of(tensor).stream.native, ours.native);
}

TEST_P(CApiDlpackTest, AnExportKeepsTheMemoryBeyondEveryHandle) {
  OwnedTensor root = make_tensor_of(device(), {1, 2, 3}), view, back;
  EXPECT_DONE(cgt_tensor_slice(root, 0, 1, 3, view.out()));
  dlpack::ManagedVersioned* const out = exported(view);
  root.reset();
  view.reset();
  EXPECT_DONE(cgt_tensor_from_dlpack(reinterpret_cast<DLManagedTensorVersioned*>(out), nullptr,
                                     back.out()));
  EXPECT_THAT(values_of(back), ElementsAre(2, 3));
}

}  // namespace
}  // namespace cgtree::testing
