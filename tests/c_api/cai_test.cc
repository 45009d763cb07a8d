// The CUDA Array Interface through C: the fields of the struct, and every wrong field.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <thread>

#include "interop/device/device.h"
#include "tests/c_api/c_tools.h"
#include "tests/support/devices.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CApiCaiTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    live_ = cgt_live_handles();
    stream_.emplace(device());
    consumer_ = c_stream(*stream_);
    import_ = {.struct_size = sizeof(import_), .consumer = &consumer_};
    data_ = make_tensor_of(device(), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    array_.shape = shape_.data();
    array_.strides = strides_.data();
    array_.data = reinterpret_cast<std::uintptr_t>(info_of(data_).data);
  }
  void TearDown() override {
    if (!GetParam().missing.empty()) return;
    data_ = OwnedTensor();
    EXPECT_EQ(cgt_live_handles(), live_);
  }

  Device device() const { return GetParam().device; }
  cgt_status import(OwnedTensor& out, void* owner = nullptr, void (*release)(void*) = nullptr) {
    out = OwnedTensor();
    return cgt_tensor_from_cai(&array_, owner, release, &import_, out.out());
  }
  // Returns the status of the import of `array_`.
  cgt_status refused() {
    OwnedTensor none;
    return import(none);
  }
  cgt_cai exported(cgt_tensor tensor, const cgt_cai_export_options* options = nullptr) {
    cgt_cai array = {};
    array.struct_size = sizeof(array);
    EXPECT_DONE(cgt_tensor_to_cai(tensor, options, &array));
    return array;
  }

  std::size_t live_ = 0;
  std::optional<Stream> stream_;
  cgt_stream consumer_ = {};
  cgt_cai_import_options import_ = {};
  OwnedTensor data_;
  std::array<std::int64_t, 2> shape_ = {4, 3};
  std::array<std::int64_t, 2> strides_ = {12, 4};
  cgt_cai array_ = {.struct_size = sizeof(array_),
                    .flags = 0,
                    .version = 3,
                    .ndim = 2,
                    .shape = nullptr,
                    .strides = nullptr,
                    .data = 0,
                    .stream = 0,
                    .typestr = "<f4"};
};

INSTANTIATE_TEST_SUITE_P(Devices, CApiCaiTest, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(CApiCaiTest, TheStructSaysWhatTheProtocolSays) {
  OwnedTensor matrix;
  const std::int64_t shape[] = {4, 3};
  EXPECT_DONE(cgt_tensor_reshape(data_, 2, shape, matrix.out()));
  const cgt_cai array = exported(matrix);
  EXPECT_EQ(array.version, 3);
  EXPECT_EQ(array.ndim, 2);
  EXPECT_EQ(array.shape[0], 4);
  EXPECT_EQ(array.shape[1], 3);
  EXPECT_EQ(array.strides, nullptr);
  EXPECT_STREQ(array.typestr, "<f4");
  EXPECT_EQ(array.flags, std::uint32_t{CGT_CAI_HAS_STREAM});
  EXPECT_NE(array.stream, 0u);
  EXPECT_EQ(array.data, array_.data);
}

TEST_P(CApiCaiTest, EachMandatoryFieldIsMissed) {
  array_.shape = nullptr;
  EXPECT_FAILS(refused(), CGT_MISSING_FIELD, "'shape' is NULL: expected 2 numbers");
  array_.shape = shape_.data();
  array_.typestr[0] = '\0';
  EXPECT_FAILS(refused(), CGT_MISSING_FIELD, "'typestr' is empty");
  std::strcpy(array_.typestr, "<f4");
  array_.strides = nullptr;
  array_.flags = CGT_CAI_HAS_STRIDES;
  EXPECT_FAILS(refused(), CGT_MISSING_FIELD, "'strides' is NULL");
  array_.flags = 0;
  array_.data = 0;
  EXPECT_FAILS(refused(), CGT_WRONG_VALUE, "data is null, but the shape is {4, 3}");
}

TEST_P(CApiCaiTest, SlicesHaveStridesInBytesAndTheirOwnAddress) {
  OwnedTensor matrix, rows, part;
  const std::int64_t shape[] = {4, 3};
  EXPECT_DONE(cgt_tensor_reshape(data_, 2, shape, matrix.out()));
  EXPECT_DONE(cgt_tensor_slice(matrix, 0, 1, 3, rows.out()));
  EXPECT_DONE(cgt_tensor_slice(rows, 1, 1, 3, part.out()));
  const cgt_cai array = exported(part);
  EXPECT_EQ(array.flags & CGT_CAI_HAS_STRIDES, std::uint32_t{CGT_CAI_HAS_STRIDES});
  EXPECT_EQ(array.strides[0], 12);
  EXPECT_EQ(array.strides[1], 4);
  EXPECT_EQ(array.data, array_.data + 16);
  const cgt_cai again = exported(part);
  EXPECT_EQ(again.strides, array.strides) << "valid until the handle is destroyed";
}

TEST_P(CApiCaiTest, TypeStringsEndWithA0AndATypeMayBeNamed) {
  shape_ = {2, 1};
  std::memset(array_.typestr, '4', sizeof(array_.typestr));
  EXPECT_FAILS(refused(), CGT_WRONG_VALUE, "no final 0 within 16 bytes");
  std::memcpy(array_.typestr, "<V2", 4);
  import_.dtype = CGT_BFLOAT16;
  OwnedTensor tensor;
  EXPECT_DONE(import(tensor));
  array_.typestr[0] = '\0';
  EXPECT_DONE(import(tensor));
  EXPECT_EQ(info_of(tensor).dtype, CGT_BFLOAT16);
  EXPECT_STREQ(exported(tensor).typestr, "<V2");
}

TEST_P(CApiCaiTest, ReadOnlyMemoryStaysReadOnly) {
  array_.flags = CGT_CAI_READ_ONLY;
  OwnedTensor tensor;
  EXPECT_DONE(import(tensor));
  EXPECT_EQ(info_of(tensor).is_read_only, 1);
  EXPECT_NE(exported(tensor).flags & CGT_CAI_READ_ONLY, 0u);
  const std::array<float, 12> zeros = {};
  EXPECT_FAILS(cgt_tensor_copy_from_host(tensor, zeros.data(), sizeof(zeros)), CGT_INVALID_ARGUMENT,
               "read-only");
}

TEST_P(CApiCaiTest, FieldsThatCannotBeAreRefusedByName) {
  array_.flags = CGT_CAI_HAS_MASK;
  EXPECT_FAILS(refused(), CGT_NOT_SUPPORTED, "masked arrays are not supported");
  array_.flags = 0;
  array_.stream = 1;
  EXPECT_FAILS(refused(), CGT_WRONG_VALUE, "CGT_CAI_HAS_STREAM is not set");
  array_.ndim = -1;
  EXPECT_FAILS(refused(), CGT_WRONG_VALUE, "'ndim' is -1");
  for (const int ndim : {9, 65, INT32_MAX}) {  // the arrays are shorter, and must not be read
    array_.ndim = ndim;
    EXPECT_FAILS(refused(), CGT_NOT_SUPPORTED, fmt::format("'ndim' is {}: expected 0 to 8", ndim));
  }
}

TEST_P(CApiCaiTest, StridesAreReadWhereTheFlagSaysSo) {
  array_.flags = CGT_CAI_HAS_STRIDES;
  shape_ = {3, 4};
  strides_ = {4, 12};
  OwnedTensor tensor;
  EXPECT_DONE(import(tensor));
  EXPECT_EQ(info_of(tensor).strides[1], 3);
}

TEST_P(CApiCaiTest, AnExportMayHaveAnotherVersion) {
  cgt_cai_export_options options = {
      .struct_size = sizeof(options), .flags = CGT_CAI_EXPORT_HAS_VERSION, .version = 2};
  EXPECT_EQ(exported(data_, &options).flags, 0u);
  options.version = 4;
  cgt_cai array = {};
  array.struct_size = sizeof(array);
  EXPECT_FAILS(cgt_tensor_to_cai(data_, &options, &array), CGT_WRONG_VALUE, "version 4");
}

void count_release(void* owner) {
  ++*static_cast<int*>(owner);
}

TEST_P(CApiCaiTest, TheOwnerIsReleasedOnceByTheLastHandleAndIfTheImportFails) {
  int released = 0;
  OwnedTensor tensor, shared;
  EXPECT_DONE(import(tensor, &released, count_release));
  EXPECT_DONE(cgt_tensor_share(tensor, shared.out()));
  tensor.reset();
  EXPECT_EQ(released, 0);
  std::thread([&] { shared.reset(); }).join();
  EXPECT_EQ(released, 1);

  array_.version = -1;
  EXPECT_FAILS(import(tensor, &released, count_release), CGT_WRONG_VALUE, "'version'");
  EXPECT_EQ(released, 2);
  EXPECT_FAILS(cgt_tensor_from_cai(nullptr, &released, count_release, nullptr, tensor.out()),
               CGT_INVALID_ARGUMENT, "the array is NULL");
  EXPECT_EQ(released, 3);
}

TEST_P(CApiCaiTest, StructsOfWrongSizesAreRefused) {
  struct Longer {
    cgt_cai array;
    std::uint64_t later;
  } longer = {array_, 0};
  longer.array.struct_size = sizeof(longer);
  OwnedTensor tensor;
  EXPECT_DONE(cgt_tensor_from_cai(&longer.array, nullptr, nullptr, &import_, tensor.out()));
  tensor.reset();
  longer.later = 1;
  EXPECT_FAILS(cgt_tensor_from_cai(&longer.array, nullptr, nullptr, &import_, tensor.out()),
               CGT_INVALID_ARGUMENT, "and byte 64 is set");
  for (const std::uint32_t size : {0u, 8u, 63u, 0xffffffffu}) {
    array_.struct_size = size;
    EXPECT_FAILS(refused(), CGT_INVALID_ARGUMENT, "cgt_cai: struct_size is");
  }
  array_.struct_size = sizeof(array_);
  array_.flags = 1u << 20;
  EXPECT_FAILS(refused(), CGT_INVALID_ARGUMENT, "flags are 0x100000");
  array_.flags = 0;
  import_.sync = 9;
  EXPECT_FAILS(refused(), CGT_INVALID_ARGUMENT, "sync is 9");
  import_.sync = 0;
  import_.dtype = 99;
  EXPECT_FAILS(refused(), CGT_INVALID_ARGUMENT, "dtype is 99");
  import_.dtype = 0;
  consumer_.device = {99, 0};
  EXPECT_FAILS(refused(), CGT_INVALID_ARGUMENT, "device type 99:0 is not enabled");
  cgt_cai out = {};
  EXPECT_FAILS(cgt_tensor_to_cai(data_, nullptr, &out), CGT_INVALID_ARGUMENT, "struct_size is 0");
}

}  // namespace
}  // namespace cgtree::testing
