// DLPack through C: tensors in and out, and every way in which a tensor can be wrong.
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
  // What the import of such a tensor answers; it is deleted once.
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

// T-DL 1.
// Acceptance: c dl_1.
TEST_P(CApiDlpackTest, BothFormsComeThrough) {
  DLManagedTensorVersioned* versioned = nullptr;
  OwnedTensor tensor;
  EXPECT_DONE(cgt_tensor_to_dlpack(data_, nullptr, &versioned));
  EXPECT_EQ(reinterpret_cast<dlpack::ManagedVersioned*>(versioned)->version.major, 1u);
  EXPECT_DONE(cgt_tensor_from_dlpack(versioned, nullptr, tensor.out()));
  EXPECT_EQ(info_of(tensor).data, address_);
  EXPECT_THAT(values_of(tensor), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

// T-DL 2 and 3.
// Acceptance: c dl_2.
TEST_P(CApiDlpackTest, OfAnotherMajorOnlyTheDeleterIsTouchedAndLaterMinorsAreTaken) {
  struct Start {  // what lies behind the deleter is not even there
    dlpack::Version version;
    void* context;
    void (*deleter)(dlpack::ManagedVersioned*);
  };
  int deleted = 0;
  const auto start = std::make_unique<Start>();
  *start = {{2, 0}, &deleted, [](dlpack::ManagedVersioned* self) {
              ++*static_cast<int*>(self->context);
            }};
  OwnedTensor tensor;
  EXPECT_FAILS(cgt_tensor_from_dlpack(reinterpret_cast<DLManagedTensorVersioned*>(start.get()),
                                      nullptr, tensor.out()),
               CGT_NOT_SUPPORTED, "DLPack 2.0: expected 1.x");
  EXPECT_EQ(deleted, 1);

  ForeignVersioned foreign(address_, place(), {8}, {1});
  foreign.managed.version.minor = 99;
  foreign.managed.flags = ~std::uint64_t{0} & ~dlpack::kReadOnly;
  EXPECT_DONE(import(foreign, tensor));
}

// T-DL 4, 5 and 6.
// Acceptance: c dl_4.
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

// T-DL 7.
// Acceptance: c dl_7.
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

// T-DL 8, 9 and 11.
// Acceptance: c dl_8.
TEST_P(CApiDlpackTest, StridesOffsetsAndEmptyTensors) {
  OwnedTensor tensor;
  ForeignVersioned offset(address_, place(), {2, 3}, {0, 1});
  offset.managed.tensor.byte_offset = 8;
  EXPECT_DONE(import(offset, tensor));
  EXPECT_EQ(info_of(tensor).data, address_ + 2);
  EXPECT_EQ(info_of(tensor).strides[0], 0);
  ForeignVersioned none(nullptr, place(), {0, 3}, {3, 1});
  EXPECT_DONE(import(none, tensor));
  EXPECT_EQ(info_of(tensor).elements, 0);
  ForeignVersioned scalar(address_, place(), {}, {});
  scalar.managed.tensor.shape = nullptr;
  scalar.managed.tensor.strides = nullptr;
  EXPECT_DONE(import(scalar, tensor));
  EXPECT_EQ(info_of(tensor).elements, 1);
}

// T-DL 10.
// Acceptance: c dl_10.
TEST_P(CApiDlpackTest, TypesThatTensorsHaveNotAreRefused) {
  for (const dlpack::DataType type :
       {dlpack::DataType{dlpack::kComplex, 32, 1}, dlpack::DataType{dlpack::kFloat, 32, 4},
        dlpack::DataType{17, 4, 1}, dlpack::DataType{99, 8, 1}}) {
    EXPECT_FAILS(refused([&](auto& managed) { managed.tensor.dtype = type; }), CGT_NOT_SUPPORTED,
                 "");
  }
  ForeignVersioned foreign(address_, place(), {4}, {1});
  foreign.managed.tensor.dtype = {dlpack::kBfloat, 16, 1};
  OwnedTensor tensor;
  EXPECT_DONE(import(foreign, tensor));
  EXPECT_EQ(info_of(tensor).dtype, CGT_BFLOAT16);
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

// T-DL 12.
// Acceptance: c dl_12.
TEST_P(CApiDlpackTest, DevicesThatAreNotThereAreRefused) {
  EXPECT_NE(refused([](auto& managed) { managed.tensor.device = {12, 0}; }), CGT_OK);
  if (device().type != DeviceType::kHost) {  // whose memory has no number
    EXPECT_NE(refused([&](auto& managed) { managed.tensor.device.id = 99; }), CGT_OK);
  }
  float pageable[8] = {};
  ForeignVersioned foreign(pageable, {dlpack::kCuda, 0}, {8}, {1});
  OwnedTensor none;
  EXPECT_NE(import(foreign, none), CGT_OK);
  EXPECT_EQ(foreign.deleted, 1);
}

// T-DL 13.
// Acceptance: c dl_13.
TEST_P(CApiDlpackTest, StreamNumbersMeanWhatTheStandardSays) {
  const bool is_host = device().type == DeviceType::kHost;
  for (const std::int64_t number : {0, 1, -1, -2}) {
    const cgt_dlpack_export_options options = {
        .struct_size = sizeof(options), .flags = CGT_DLPACK_HAS_STREAM, .stream = number};
    DLManagedTensorVersioned* out = nullptr;
    const cgt_status status = cgt_tensor_to_dlpack(data_, &options, &out);
    const bool is_taken = !is_host && (number == 1 || number == -1);
    EXPECT_EQ(status == CGT_OK, is_taken) << number;
    auto* const managed = reinterpret_cast<dlpack::ManagedVersioned*>(out);
    if (status == CGT_OK) managed->deleter(managed);
  }
}

// T-DL 14.
// Acceptance: c dl_14.
TEST_P(CApiDlpackTest, CopiesAreMadeWhereTheyAreAskedForAndFlagged) {
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
}

// T-DL 15: with a producer's stream both directions are ordered; work of the host is seen.
// Acceptance: c dl_15.
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

// T-DL 16.
// Acceptance: c dl_16.
TEST_P(CApiDlpackTest, InACaptureOnlyTheCapturesOwnStreamIsTaken) {
  if (device().type == DeviceType::kHost) return;  // its memory has no streams
  const Stream capturing(device()), other(device());
  GraphAPI& graphs = capturing.ref().graphs();
  check(graphs.begin_capture(capturing.ref().handle(), CaptureMode::kThreadLocal), "begin");
  {
    const StreamScope scope(capturing);
    cgt_dlpack_export_options options = {.struct_size = sizeof(options),
                                         .flags = CGT_DLPACK_HAS_STREAM,
                                         .stream = static_cast<std::int64_t>(other.ref().handle())};
    DLManagedTensorVersioned* out = nullptr;
    EXPECT_FAILS(cgt_tensor_to_dlpack(data_, &options, &out), CGT_CAPTURE_FAILED, "");
    options.stream = -1;
    dlpack::ManagedVersioned* const sent = exported(data_, options);
    sent->deleter(sent);
  }
  GraphHandle graph = GraphHandle::kNull;
  EXPECT_EQ(graphs.end_capture(capturing.ref().handle(), &graph), Code::kSuccess);
  check(graphs.destroy_graph(graph), "destroy");
}

// T-DL 18.
// Acceptance: c dl_18.
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

// T-DL 19.
// Acceptance: c dl_19.
TEST_P(CApiDlpackTest, BothProtocolsSayTheSame) {
  OwnedTensor view;
  EXPECT_DONE(cgt_tensor_slice(data_, 0, 2, 6, view.out()));
  cgt_cai array = {};
  array.struct_size = sizeof(array);
  EXPECT_DONE(cgt_tensor_to_cai(view, nullptr, &array));
  dlpack::ManagedVersioned* const out = exported(view);
  EXPECT_EQ(array.data,
            reinterpret_cast<std::uintptr_t>(out->tensor.data) + out->tensor.byte_offset);
  EXPECT_EQ(array.shape[0], out->tensor.shape[0]);
  out->deleter(out);
}

// T-DL 20.
// Acceptance: c dl_20.
TEST_P(CApiDlpackTest, LayoutsThatTensorsHaveNotAreRefusedAndDeletedOnce) {
  for (const int ndim : {9, INT32_MAX}) {  // the arrays are shorter, and are not read
    EXPECT_FAILS(refused([&](auto& managed) { managed.tensor.ndim = ndim; }), CGT_NOT_SUPPORTED,
                 "dimensions: at most 8");
  }
  EXPECT_NE(refused([](auto& managed) { managed.tensor.ndim = -1; }), CGT_OK);
  EXPECT_NE(refused([](auto& managed) { managed.tensor.shape = nullptr; }), CGT_OK);
  EXPECT_NE(refused([](auto& managed) { managed.tensor.strides = nullptr; }), CGT_OK);
  EXPECT_NE(refused([](auto& managed) { managed.tensor.data = nullptr; }), CGT_OK);
  EXPECT_NE(refused([](auto& managed) { managed.tensor.shape[0] = -4; }), CGT_OK);
  EXPECT_NE(refused([](auto& managed) { managed.tensor.strides[0] = -2; }), CGT_OK);
  EXPECT_NE(refused([](auto& managed) { managed.tensor.byte_offset = 3; }), CGT_OK);
  EXPECT_NE(refused([](auto& managed) { managed.tensor.shape[0] = INT64_MAX / 2; }), CGT_OK);
}

}  // namespace
}  // namespace cgtree::testing
