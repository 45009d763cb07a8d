// Fuzzes the C structs of the CUDA Array Interface and DLPack: whatever their fields say, they are
// taken or refused by name, what is handed over is released once, and no handle is left behind.
//
// Pointers cannot be made up: which arrays are there is drawn, and how long the memory is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "cgtree/c_api.h"
#include "interop/dlpack_abi.h"

namespace {

using namespace cgtree;

// Reads fields from the input; zeros behind its end.
struct Input {
  const std::uint8_t* data;
  std::size_t size;

  template <typename T>
  T take() {
    T value = {};
    const std::size_t bytes = std::min(size, sizeof(T));
    std::memcpy(&value, data, bytes);
    data += bytes;
    size -= bytes;
    return value;
  }
};

// Numbers for shapes and strides, as many as the largest count that is read without a refusal.
struct Numbers {
  std::int64_t values[64];

  explicit Numbers(Input& input) {
    for (std::int64_t& value : values) {
      const auto wide = input.take<std::int8_t>();
      value = wide == 127 ? input.take<std::int64_t>() : wide;
    }
  }
};

// 4 KiB that the host device knows; for the whole run.
unsigned char* memory() {
  static unsigned char* const data = [] {
    const cgt_device host = {CGT_DEVICE_HOST, 0};
    const std::int64_t size = 4096;
    cgt_tensor tensor = nullptr;
    cgt_tensor_info info = {};
    info.struct_size = sizeof(info);
    CGTREE_CHECK(cgt_tensor_empty(CGT_UINT8, 1, &size, &host, &tensor) == CGT_OK);
    CGTREE_CHECK(cgt_tensor_describe(tensor, &info) == CGT_OK);
    return static_cast<unsigned char*>(info.data);
  }();
  return data;
}

void expect_named(cgt_status status) {
  cgt_error error = {};
  error.struct_size = sizeof(error);
  CGTREE_CHECK(cgt_last_error(&error) == CGT_OK);
  CGTREE_CHECK(error.status == status && error.message[0] != '\0');
}

void expect_consistent(cgt_status status, cgt_tensor tensor) {
  if (status != CGT_OK) {
    CGTREE_CHECK(tensor == nullptr);
    return expect_named(status);
  }
  cgt_tensor_info info = {};
  info.struct_size = sizeof(info);
  CGTREE_CHECK(cgt_tensor_describe(tensor, &info) == CGT_OK);
  CGTREE_CHECK(info.elements >= 0 && info.ndim >= 0 && info.ndim <= 8);
  cgt_cai array = {};
  array.struct_size = sizeof(array);
  CGTREE_CHECK(cgt_tensor_to_cai(tensor, nullptr, &array) == CGT_OK);
  CGTREE_CHECK(cgt_tensor_destroy(tensor) == CGT_OK);
}

void count(void* counter) {
  ++*static_cast<int*>(counter);
}

void fuzz_cai(Input& input) {
  cgt_cai array = {};
  const auto has = input.take<std::uint8_t>();
  array.struct_size = (has & 1) != 0 ? input.take<std::uint32_t>() % sizeof(array) : sizeof(array);
  array.flags = (has & 2) != 0 ? input.take<std::uint32_t>() : input.take<std::uint8_t>() & 15u;
  array.version = input.take<std::int8_t>();
  array.ndim = input.take<std::int8_t>();
  array.stream = (has & 4) != 0 ? input.take<std::uint8_t>() % 3 : 0;
  array.data = (has & 8) != 0
                   ? input.take<std::uint64_t>()
                   : reinterpret_cast<std::uint64_t>(memory()) + input.take<std::uint8_t>();
  for (char& letter : array.typestr)
    letter = static_cast<char>(input.take<std::uint8_t>());
  const Numbers shape(input), strides(input);
  array.shape = (has & 16) != 0 ? nullptr : shape.values;
  array.strides = (has & 32) != 0 ? nullptr : strides.values;
  cgt_cai_import_options options = {};
  options.struct_size = sizeof(options);
  options.sync = input.take<std::int8_t>() % 6;
  options.dtype = input.take<std::int8_t>() % 15;
  const cgt_stream consumer = {{CGT_DEVICE_HOST, 0}, 1};
  options.consumer = &consumer;
  int released = 0;
  cgt_tensor tensor = nullptr;
  const cgt_status status = cgt_tensor_from_cai(&array, &released, count, &options, &tensor);
  expect_consistent(status, tensor);
  CGTREE_CHECK(released == 1);
}

template <typename Managed>
void fuzz_dlpack(Input& input) {
  Managed managed = {};
  int released = 0;
  const auto has = input.take<std::uint8_t>();
  const Numbers shape(input), strides(input);
  if constexpr (requires { managed.version; }) {
    managed.version = {1u + (input.take<std::uint8_t>() % 8 == 7), input.take<std::uint8_t>() % 5u};
    managed.flags = input.take<std::uint8_t>();
  }
  managed.context = &released;
  managed.deleter = [](Managed* self) { count(self->context); };
  dlpack::TensorView& view = managed.tensor;
  view.data = (has & 1) != 0 ? nullptr : memory() + input.take<std::uint8_t>();
  view.device = {(has & 2) != 0 ? input.take<std::int8_t>() : 1, input.take<std::int8_t>()};
  if (view.device.type == dlpack::kCuda) view.device.type = 1;  // what is made up may be anywhere
  view.ndim = input.take<std::int8_t>();
  view.dtype = {input.take<std::uint8_t>(), input.take<std::uint8_t>(),
                static_cast<std::uint16_t>((has & 4) != 0 ? input.take<std::uint16_t>() : 1)};
  view.shape = (has & 8) != 0 ? nullptr : const_cast<std::int64_t*>(shape.values);
  view.strides = (has & 16) != 0 ? nullptr : const_cast<std::int64_t*>(strides.values);
  view.byte_offset = (has & 32) != 0 ? input.take<std::uint64_t>() : input.take<std::uint8_t>();
  cgt_tensor tensor = nullptr;
  cgt_status status;
  if constexpr (requires { managed.version; }) {
    status = cgt_tensor_from_dlpack(reinterpret_cast<DLManagedTensorVersioned*>(&managed), nullptr,
                                    &tensor);
  } else {
    status = cgt_tensor_from_unversioned_dlpack(reinterpret_cast<DLManagedTensor*>(&managed),
                                                nullptr, &tensor);
  }
  expect_consistent(status, tensor);
  CGTREE_CHECK(released == 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input{data, size};
  (void)memory();
  switch (input.take<std::uint8_t>() % 3) {
    case 0:
      fuzz_cai(input);
      break;
    case 1:
      fuzz_dlpack<dlpack::ManagedVersioned>(input);
      break;
    default:
      fuzz_dlpack<dlpack::Managed>(input);
  }
  CGTREE_CHECK(cgt_live_handles() == 1);
  return 0;
}
