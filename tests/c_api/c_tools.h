// Tools for tests of the C ABI: statuses with their text, and handles that are destroyed with their
// scope.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bindings/c/c_api.h"
#include "interop/device/device.h"
#include "interop/device/stream.h"

namespace cgtree::testing {

inline cgt_error last_error() {
  cgt_error error = {};
  error.struct_size = sizeof(error);
  EXPECT_EQ(cgt_last_error(&error), CGT_OK);
  return error;
}

// "CGT_OK", or the status with the text of the last error.
inline std::string outcome(cgt_status status) {
  if (status == CGT_OK) return "CGT_OK";
  EXPECT_EQ(last_error().status, status);
  return std::string(cgt_status_name(status)) + ": " + last_error().message;
}

// Returns the text that a function returns by its last parameter.
template <typename... Parameters, typename... Arguments>
std::string text_of(cgt_status (*function)(Parameters...), const Arguments&... arguments) {
  const char* text = "";
  EXPECT_EQ(outcome(function(arguments..., &text)), "CGT_OK");
  return text;
}

inline cgt_device c_device(Device device) {
  return {static_cast<std::int32_t>(device.type), device.id};
}
inline cgt_stream c_stream(StreamRef stream) {
  return {c_device(stream.device()), static_cast<std::uintptr_t>(stream.handle())};
}

// Destroys its handle; move-only.
template <typename Handle, cgt_status (*Destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() { EXPECT_EQ(outcome(Destroy(handle_)), "CGT_OK"); }

  operator Handle() const { return handle_; }
  Handle* out() {
    EXPECT_EQ(handle_, nullptr);
    return &handle_;
  }
  Handle release() { return std::exchange(handle_, nullptr); }
  void reset() { EXPECT_EQ(outcome(Destroy(std::exchange(handle_, nullptr))), "CGT_OK"); }

 private:
  Handle handle_ = nullptr;
};

using OwnedTensor = Owned<cgt_tensor, cgt_tensor_destroy>;
using OwnedContext = Owned<cgt_context, cgt_context_destroy>;
using OwnedFunction = Owned<cgt_function, cgt_function_destroy>;
using OwnedGenerator = Owned<cgt_generator, cgt_generator_destroy>;

inline OwnedTensor make_tensor(Device device, const std::vector<std::int64_t>& shape,
                               cgt_dtype dtype = CGT_FLOAT32) {
  const cgt_device where = c_device(device);
  OwnedTensor tensor;
  EXPECT_EQ(outcome(cgt_tensor_empty(dtype, static_cast<std::int32_t>(shape.size()), shape.data(),
                                     &where, tensor.out())),
            "CGT_OK");
  return tensor;
}

inline OwnedTensor make_tensor_of(Device device, const std::vector<float>& values) {
  OwnedTensor tensor = make_tensor(device, {static_cast<std::int64_t>(values.size())});
  EXPECT_EQ(
      outcome(cgt_tensor_copy_from_host(tensor, values.data(), values.size() * sizeof(float))),
      "CGT_OK");
  return tensor;
}

inline cgt_tensor_info info_of(cgt_tensor tensor) {
  cgt_tensor_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_EQ(outcome(cgt_tensor_describe(tensor, &info)), "CGT_OK");
  return info;
}

inline std::vector<float> values_of(cgt_tensor tensor) {
  std::vector<float> values(static_cast<std::size_t>(info_of(tensor).elements), -1e30f);
  EXPECT_EQ(outcome(cgt_tensor_copy_to_host(tensor, values.data(), values.size() * sizeof(float))),
            "CGT_OK");
  return values;
}

}  // namespace cgtree::testing

// Expects that a call fails with this status and a text that contains `says`.
#define EXPECT_FAILS(call, status, says)                                                           \
  EXPECT_THAT(::cgtree::testing::outcome(call),                                                    \
              ::testing::AllOf(::testing::StartsWith(std::string(cgt_status_name(status)) + ": "), \
                               ::testing::HasSubstr(says)))
#define EXPECT_DONE(call) EXPECT_EQ(::cgtree::testing::outcome(call), "CGT_OK")
