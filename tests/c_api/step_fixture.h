// CStepTest: a fixture for C step functions on each device; checks at the end that no handle is
// left.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "interop/device/graph_api.h"
#include "tests/c_api/c_tools.h"
#include "tests/support/devices.h"
#include "tests/support/test_kernels.h"

namespace cgtree::testing {

using Body = std::function<cgt_status(const cgt_tensor*, std::size_t, cgt_tensor*, std::size_t)>;

inline cgt_status run_body(void* user, const cgt_tensor* inputs, std::size_t input_count,
                           cgt_tensor* outputs, std::size_t output_count) {
  return (*static_cast<Body*>(user))(inputs, input_count, outputs, output_count);
}
inline void drop_body(void* user) {
  delete static_cast<Body*>(user);
}

inline StreamRef current() {
  cgt_stream stream = {};
  EXPECT_DONE(cgt_current_stream(&stream));
  return StreamRef({static_cast<DeviceType>(stream.device.type), stream.device.id},
                   static_cast<StreamHandle>(stream.native));
}

// y = 2x + 1, with handles only.
inline cgt_status affine_step(const cgt_tensor* inputs, std::size_t, cgt_tensor* outputs,
                              std::size_t) {
  const cgt_tensor_info x = info_of(inputs[0]);
  if (const cgt_status status =
          cgt_tensor_empty(CGT_FLOAT32, x.ndim, x.shape, nullptr, &outputs[0])) {
    return status;
  }
  const cgt_tensor_info y = info_of(outputs[0]);
  const StreamRef stream = current();
  const float one = 1, two = 2;
  check(stream.graphs().launch_kernel(stream.handle(), fill_kernel(), dims_for(x.elements),
                                      arguments_of(y.data, one, x.elements)),
        "fill");
  check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(x.elements),
                                      arguments_of(two, x.data, y.data, x.elements)),
        "axpy");
  return CGT_OK;
}

class CStepTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    live_ = cgt_live_handles();
    EXPECT_DONE(cgt_context_create(c_device(device()), nullptr, context_.out()));
  }
  void TearDown() override {
    if (!GetParam().missing.empty()) return;
    context_ = OwnedContext();
    EXPECT_EQ(cgt_live_handles(), live_) << "handles were left behind";
  }

  Device device() const { return GetParam().device; }
  OwnedFunction compile(Body body, std::uint32_t outputs = 1,
                        const cgt_function_options* options = nullptr) {
    const cgt_step step = {sizeof(step), outputs, run_body, new Body(std::move(body)), drop_body};
    OwnedFunction function;
    EXPECT_DONE(cgt_compile(context_, "decode", &step, options, function.out()));
    return function;
  }
  cgt_status call(cgt_function function, cgt_tensor input, OwnedTensor& output) {
    output = OwnedTensor();
    return cgt_call(function, &input, 1, output.out(), 1);
  }
  nlohmann::json stats(cgt_function function) {
    return nlohmann::json::parse(text_of(cgt_function_stats_json, function));
  }
  // Expects that the function, whose faults are switched off, warms up, records and replays.
  void expect_to_work(cgt_function function) {
    for (int i = 0; i < 4; ++i) {
      OwnedTensor x = make_tensor_of(device(), {1.0f * i, 2}), y;
      EXPECT_DONE(cgt_context_mark_step(context_));
      EXPECT_DONE(call(function, x, y));
      EXPECT_THAT(values_of(y), ::testing::ElementsAre(2.0f * i + 1, 5));
    }
    EXPECT_GE(stats(function)["replays"], 2);
  }

  std::size_t live_ = 0;
  OwnedContext context_;
};

}  // namespace cgtree::testing

#define CGTREE_ON_ALL_DEVICES(suite)                                                     \
  INSTANTIATE_TEST_SUITE_P(Devices, suite,                                               \
                           ::testing::ValuesIn(::cgtree::testing::devices_under_test()), \
                           [](const auto& info) { return info.param.name; })
