// A device of a C program's own: its verbs, what is refused, and what happens when a verb fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "tests/c_api/c_tools.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;

// A device whose memory is the heap's and whose work is done at once.
struct HeapDevice {
  int blocks = 0;
  int streams = 0;
  bool is_full = false;
  bool is_askew = false;
  bool throws = false;
};

HeapDevice& of(void* user) {
  return *static_cast<HeapDevice*>(user);
}

cgt_device_api heap_api(HeapDevice& device, const char* name) {
  cgt_device_api api = {};
  api.struct_size = sizeof(api);
  api.name = name;
  api.user = &device;
  api.exists = [](void*, std::int32_t id, std::int32_t* exists) -> std::int32_t {
    *exists = id == 0;
    return 0;
  };
  api.alloc = [](void* user, std::int32_t, std::size_t bytes, void** data) -> std::int32_t {
    if (of(user).is_full) return 2;
    ++of(user).blocks;
    *data = static_cast<char*>(std::aligned_alloc(512, (bytes / 512 + 2) * 512)) +
            (of(user).is_askew ? 8 : 0);
    return 0;
  };
  api.free = [](void* user, std::int32_t, void* data) -> std::int32_t {
    --of(user).blocks;
    std::free(static_cast<char*>(data) - (of(user).is_askew ? 8 : 0));
    return 0;
  };
  api.copy = [](void* user, std::uintptr_t, void* to, const void* from,
                std::size_t bytes) -> std::int32_t {
    if (of(user).throws) throw std::runtime_error("broken");
    std::memcpy(to, from, bytes);
    return 0;
  };
  api.create_stream = [](void* user, std::int32_t, std::uintptr_t* stream) -> std::int32_t {
    *stream = static_cast<std::uintptr_t>(16 + ++of(user).streams);
    return 0;
  };
  api.destroy_stream = [](void* user, std::uintptr_t) -> std::int32_t {
    --of(user).streams;
    return 0;
  };
  api.synchronize_stream = [](void*, std::uintptr_t) -> std::int32_t { return 0; };
  api.query_stream = [](void*, std::uintptr_t) -> std::int32_t { return 0; };
  api.synchronize_device = [](void*, std::int32_t) -> std::int32_t { return 0; };
  return api;
}

constexpr std::int32_t kType = CGT_DEVICE_FIRST_USER_TYPE + 7;

HeapDevice& heap() {
  static HeapDevice device;  // served until the process is gone
  static const cgt_status registered = [] {
    const cgt_device_api api = heap_api(device, "heap");
    return cgt_device_register(kType, &api);
  }();
  EXPECT_EQ(registered, CGT_OK);
  return device;
}

const Device kHeap{static_cast<DeviceType>(kType), 0};

TEST(CApiDeviceTest, ItServesTensorsAndRunsStepsEagerly) {
  HeapDevice& device = heap();
  const int blocks = device.blocks;
  {
    cgt_device parsed = {};
    EXPECT_DONE(cgt_device_parse("heap:0", &parsed));
    EXPECT_EQ(parsed.type, kType);
    OwnedContext context;
    OwnedFunction function;
    EXPECT_DONE(cgt_context_create(parsed, nullptr, context.out()));
    int runs = 0;
    const cgt_step step = {
        sizeof(step), 1,
        [](void* user, const cgt_tensor* inputs, std::size_t, cgt_tensor* outputs,
           std::size_t) -> cgt_status {
          ++*static_cast<int*>(user);
          const std::int64_t size = 3;
          EXPECT_DONE(cgt_tensor_empty(CGT_FLOAT32, 1, &size, nullptr, &outputs[0]));
          return cgt_tensor_copy(outputs[0], inputs[0], nullptr);
        },
        &runs, nullptr};
    EXPECT_DONE(cgt_compile(context, "copy", &step, nullptr, function.out()));
    for (int i = 1; i <= 3; ++i) {
      const OwnedTensor x = make_tensor_of(kHeap, {1.0f * i, 2, 3});
      const cgt_tensor input = x;
      OwnedTensor y;
      EXPECT_DONE(cgt_call(function, &input, 1, y.out(), 1));
      EXPECT_THAT(values_of(y), ElementsAre(1.0f * i, 2, 3));
      EXPECT_EQ(runs, i) << "without graphs every call runs";
    }
    char why[512];
    const OwnedTensor x = make_tensor_of(kHeap, {1, 2, 3});
    const cgt_tensor input = x;
    EXPECT_DONE(cgt_function_explain(function, &input, 1, why, sizeof(why), nullptr));
    EXPECT_THAT(why, ::testing::HasSubstr("no_graphs"));
  }
  EXPECT_EQ(device.streams, 0);
  EXPECT_GE(device.blocks, blocks) << "pools' segments stay with the device";
}

TEST(CApiDeviceTest, WhatItsVerbsAnswerIsNamed) {
  HeapDevice& device = heap();
  const cgt_device where = c_device(kHeap);
  const std::int64_t size = 4;
  OwnedTensor none;
  device.is_full = true;
  EXPECT_FAILS(cgt_tensor_empty(CGT_FLOAT32, 1, &size, &where, none.out()), CGT_OUT_OF_MEMORY, "");
  EXPECT_EQ(last_error().cuda_code, 2);
  device.is_full = false;
  device.is_askew = true;
  const int blocks = device.blocks;
  EXPECT_FAILS(cgt_tensor_empty(CGT_FLOAT32, 1, &size, &where, none.out()), CGT_DEVICE_FAILED,
               "cudaErrorInvalidValue");
  EXPECT_EQ(device.blocks, blocks) << "memory that is not aligned goes back";
  device.is_askew = false;
  const OwnedTensor tensor = make_tensor(kHeap, {4});
  float values[4] = {};
  device.throws = true;
  EXPECT_FAILS(cgt_tensor_copy_from_host(tensor, values, sizeof(values)), CGT_DEVICE_FAILED, "999");
  device.throws = false;
  const cgt_device absent = {kType, 1};
  EXPECT_FAILS(cgt_tensor_empty(CGT_FLOAT32, 1, &size, &absent, none.out()), CGT_INVALID_ARGUMENT,
               "does not exist");
}

TEST(CApiDeviceTest, WhatCannotBeRegisteredIsRefusedByName) {
  static HeapDevice device;
  cgt_device_api api = heap_api(device, "other");
  EXPECT_FAILS(cgt_device_register(CGT_DEVICE_CUDA, &api), CGT_INVALID_ARGUMENT, "2");
  heap();
  EXPECT_FAILS(cgt_device_register(kType, &api), CGT_INVALID_ARGUMENT, "heap");
  api.copy = nullptr;
  EXPECT_FAILS(cgt_device_register(kType + 1, &api), CGT_INVALID_ARGUMENT, "copy is NULL");
  api.name = nullptr;
  EXPECT_FAILS(cgt_device_register(kType + 1, &api), CGT_INVALID_ARGUMENT, "name is NULL");
  api.struct_size = 12;
  EXPECT_FAILS(cgt_device_register(kType + 1, &api), CGT_INVALID_ARGUMENT, "struct_size is 12");
  EXPECT_FAILS(cgt_device_register(kType + 1, nullptr), CGT_INVALID_ARGUMENT, "is NULL");
}

TEST(CApiDeviceTest, AttributesAreText) {
  const cgt_device host = {CGT_DEVICE_HOST, 0};
  char text[128];
  std::size_t length = 0;
  EXPECT_DONE(cgt_device_attribute(host, 0, text, sizeof(text), &length));
  EXPECT_STREQ(text, "1");
  EXPECT_DONE(cgt_device_attribute(host, 5, text, sizeof(text), &length));
  EXPECT_GT(length, 0u);
  EXPECT_DONE(cgt_device_attribute(host, 4711, text, sizeof(text), &length));
  EXPECT_STREQ(text, "");
  EXPECT_DONE(cgt_device_attribute({CGT_DEVICE_HOST, 999}, 0, text, sizeof(text), &length));
  EXPECT_STREQ(text, "0");
  EXPECT_FAILS(cgt_device_attribute({99, 0}, 0, text, sizeof(text), &length), CGT_INVALID_ARGUMENT,
               "device type 99:0 is not enabled");
}

TEST(CApiDeviceTest, OptionsAndLaunchesThatAreWrongAreRefused) {
  const cgt_device host = {CGT_DEVICE_HOST, 0};
  OwnedContext none;
  cgt_context_options options = {};
  EXPECT_FAILS(cgt_context_create(host, &options, none.out()), CGT_INVALID_ARGUMENT,
               "cgt_context_options: struct_size is 0");
  options.struct_size = sizeof(options);
  options.flags = 64;
  EXPECT_FAILS(cgt_context_create(host, &options, none.out()), CGT_INVALID_ARGUMENT, "flags are");
  heap();
  options.flags = CGT_CONTEXT_POOLS_GROW_IN_PLACE;
  EXPECT_FAILS(cgt_context_create(c_device(kHeap), &options, none.out()), CGT_INVALID_ARGUMENT,
               "cannot map memory");
  options.flags = 0;
  options.at_limit = 5;
  EXPECT_FAILS(cgt_context_create(host, &options, none.out()), CGT_INVALID_ARGUMENT,
               "at_limit is 5");
  EXPECT_FAILS(cgt_context_create({CGT_DEVICE_HOST, 77}, nullptr, none.out()), CGT_INVALID_ARGUMENT,
               "does not exist");
  EXPECT_FAILS(cgt_context_create(host, nullptr, nullptr), CGT_INVALID_ARGUMENT, "is NULL");
  const cgt_dims dims = {{1, 1, 1}, {1, 1, 1}, 0};
  const cgt_stream elsewhere = {c_device(kHeap), 17};
  heap();
  const cgt_host_body body = [](const cgt_dims*, const void* const*) {};
  EXPECT_FAILS(cgt_launch_host(elsewhere, "f", body, &dims, nullptr, 0), CGT_INVALID_ARGUMENT,
               "the stream is one of heap:0");
  EXPECT_FAILS(cgt_launch_host({host, 1}, "f", nullptr, &dims, nullptr, 0), CGT_INVALID_ARGUMENT,
               "the body is NULL");
  const std::vector<cgt_argument> many(64, {&dims, 4});
  EXPECT_FAILS(cgt_launch_host({host, 1}, "f", body, &dims, many.data(), many.size()),
               CGT_INVALID_ARGUMENT, "64 arguments: expected at most 63");
  cgt_stream stream = {};
  EXPECT_FAILS(cgt_current_stream(&stream), CGT_INVALID_ARGUMENT, "");
}

}  // namespace
}  // namespace cgtree::testing
