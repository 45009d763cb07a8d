// Step functions through C: what they may do, and everything they may do wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csetjmp>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <thread>

#include "tests/c_api/c_tools.h"
#include "tests/support/devices.h"
#include "tests/support/test_kernels.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Body = std::function<cgt_status(const cgt_tensor*, std::size_t, cgt_tensor*, std::size_t)>;

cgt_status run_body(void* user, const cgt_tensor* inputs, std::size_t input_count,
                    cgt_tensor* outputs, std::size_t output_count) {
  return (*static_cast<Body*>(user))(inputs, input_count, outputs, output_count);
}
void drop_body(void* user) {
  delete static_cast<Body*>(user);
}

StreamRef current() {
  cgt_stream stream = {};
  EXPECT_DONE(cgt_current_stream(&stream));
  return StreamRef({static_cast<DeviceType>(stream.device.type), stream.device.id},
                   static_cast<StreamHandle>(stream.native));
}

// y = 2x + 1, through handles alone.
cgt_status affine_step(const cgt_tensor* inputs, std::size_t, cgt_tensor* outputs, std::size_t) {
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

class StepsTest : public ::testing::TestWithParam<DeviceUnderTest> {
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
    char text[2048];
    EXPECT_DONE(cgt_function_stats_json(function, text, sizeof(text), nullptr));
    return nlohmann::json::parse(text);
  }
  // Whether the function, told to behave, warms up, records and replays as if nothing had been.
  void expect_to_work(cgt_function function) {
    for (int i = 0; i < 4; ++i) {
      OwnedTensor x = make_tensor_of(device(), {1.0f * i, 2}), y;
      EXPECT_DONE(cgt_context_mark_step(context_));
      EXPECT_DONE(call(function, x, y));
      EXPECT_THAT(values_of(y), ElementsAre(2.0f * i + 1, 5));
    }
    EXPECT_GE(stats(function)["replays"], 2);
  }

  std::size_t live_ = 0;
  OwnedContext context_;
};

INSTANTIATE_TEST_SUITE_P(Devices, StepsTest, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(StepsTest, CallsReplayWhatTheFirstTwoRan) {
  int runs = 0;
  const OwnedFunction function = compile([&](auto... arguments) {
    ++runs;
    return affine_step(arguments...);
  });

  expect_to_work(function);

  EXPECT_EQ(runs, 2);
}

TEST_P(StepsTest, OutputsGoIntoBuffersOfTheCaller) {
  const OwnedFunction function = compile(affine_step);
  const OwnedTensor buffer = make_tensor(device(), {2});
  for (int i = 0; i < 3; ++i) {
    const OwnedTensor x = make_tensor_of(device(), {1.0f * i, 2});
    const cgt_tensor input = x, into = buffer;
    OwnedTensor y;
    EXPECT_DONE(cgt_call_into(function, &input, 1, &into, 1, y.out(), 1));
    EXPECT_EQ(info_of(y).data, info_of(buffer).data);
    EXPECT_THAT(values_of(buffer), ElementsAre(2.0f * i + 1, 5));
  }
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  const cgt_tensor input = x, none = nullptr;
  OwnedTensor y;
  EXPECT_DONE(cgt_call_into(function, &input, 1, &none, 1, y.out(), 1));
  EXPECT_NE(info_of(y).data, info_of(buffer).data);
}

TEST_P(StepsTest, AStaleOutputIsNamed) {
  const OwnedFunction function = compile(affine_step);
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  OwnedTensor y;
  EXPECT_DONE(call(function, x, y));
  EXPECT_DONE(cgt_context_mark_step(context_));

  float values[2];
  EXPECT_FAILS(cgt_tensor_copy_to_host(y, values, sizeof(values)), CGT_STALE_TENSOR, "decode");
}

TEST_P(StepsTest, AnExceptionThatLeavesItIsAnErrorAndLeavesNoTrace) {
  bool throws = true;
  const OwnedFunction function = compile([&](auto... arguments) -> cgt_status {
    const cgt_status status = affine_step(arguments...);
    if (throws) throw std::runtime_error("no such token");
    return status;
  });
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  OwnedTensor y;

  EXPECT_FAILS(call(function, x, y), CGT_STEP_THREW, "'decode' threw: no such token");

  throws = false;
  EXPECT_DONE(call(function, x, y));
  throws = true;  // while recording
  EXPECT_FAILS(call(function, x, y), CGT_STEP_THREW, "'decode' threw: no such token");
  y = OwnedTensor();
  throws = false;
  expect_to_work(function);
  EXPECT_EQ(stats(function)["failures"], 2);
}

TEST_P(StepsTest, WhatFailedInsideComesOutWithItsCodeAndTheCapturesState) {
  cgt_error inside = {};
  bool synchronizes = false;
  const cgt_function_options options = {.struct_size = sizeof(options),
                                        .flags = CGT_FUNCTION_REQUIRE_GRAPH};
  const OwnedFunction function = compile(
      [&](const cgt_tensor* inputs, auto... rest) -> cgt_status {
        if (synchronizes) {
          const cgt_status status = cgt_stream_synchronize(c_stream(current()));
          inside = last_error();
          return status;
        }
        return affine_step(inputs, rest...);
      },
      1, &options);
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  OwnedTensor y;
  EXPECT_DONE(call(function, x, y));
  synchronizes = true;

  EXPECT_FAILS(call(function, x, y), CGT_CAPTURE_FAILED, "decode");

  EXPECT_EQ(inside.cuda_code, 900);
  EXPECT_EQ(inside.capture, CGT_CAPTURE_INVALIDATED);
  EXPECT_EQ(last_error().cuda_code, 901);
  EXPECT_EQ(last_error().capture, CGT_CAPTURE_INVALIDATED);
}

TEST_P(StepsTest, AStatusWithoutATextIsNamed) {
  const OwnedFunction own = compile([](auto...) { return CGT_USER_STATUS + 3; });
  const OwnedFunction strange = compile([](auto...) { return 77; });
  const OwnedTensor x = make_tensor_of(device(), {1});
  OwnedTensor y;

  EXPECT_FAILS(call(own, x, y), CGT_USER_STATUS + 3, "'decode': returned status 1003");
  EXPECT_FAILS(call(strange, x, y), CGT_STEP_FAILED, "'decode': returned status 77");
}

TEST_P(StepsTest, AnOutputThatIsMissingOrGoneIsNamed) {
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  OwnedTensor y;
  const OwnedFunction missing = compile([](auto...) { return CGT_OK; });
  EXPECT_FAILS(call(missing, x, y), CGT_INVALID_HANDLE, "output 0 of 'decode' is NULL");

  const OwnedFunction gone =
      compile([](const cgt_tensor* inputs, std::size_t n, cgt_tensor* outputs, std::size_t m) {
        const cgt_status status = affine_step(inputs, n, outputs, m);
        EXPECT_DONE(cgt_tensor_destroy(outputs[0]));
        return status;
      });
  EXPECT_FAILS(call(gone, x, y), CGT_INVALID_HANDLE, "output 0 of 'decode' is 0x");
}

TEST_P(StepsTest, WhatAStepMakesDiesWithItAndItsInputsHandlesToo) {
  std::vector<cgt_tensor> made;
  const OwnedFunction function = compile([&](const cgt_tensor* inputs, auto... rest) {
    cgt_tensor scratch = nullptr;
    const std::int64_t size = 128;
    EXPECT_DONE(cgt_tensor_empty(CGT_FLOAT32, 1, &size, nullptr, &scratch));
    made = {scratch, inputs[0]};
    return affine_step(inputs, rest...);
  });

  expect_to_work(function);

  for (const cgt_tensor tensor : made)
    EXPECT_FAILS(cgt_tensor_destroy(tensor), CGT_INVALID_HANDLE, "destroyed");
}

TEST_P(StepsTest, AnInputThatTheStepDestroysStaysUntilTheCallIsOver) {
  cgt_tensor victim = nullptr;
  const OwnedFunction function = compile([&](const cgt_tensor* inputs, auto... rest) {
    EXPECT_DONE(cgt_tensor_destroy(victim));  // the caller's own handle of the input
    EXPECT_FAILS(cgt_tensor_destroy(victim), CGT_INVALID_HANDLE, "destroyed");
    return affine_step(inputs, rest...);
  });
  for (int i = 0; i < 2; ++i) {
    victim = make_tensor_of(device(), {1, 2}).release();
    OwnedTensor y;
    EXPECT_DONE(call(function, victim, y));
    EXPECT_THAT(values_of(y), ElementsAre(3, 5));
  }
}

TEST_P(StepsTest, AStepMayDestroyItsFunctionAndItsContext) {
  OwnedContext context;
  OwnedFunction function;
  EXPECT_DONE(cgt_context_create(c_device(device()), nullptr, context.out()));
  Body body = [&](auto... arguments) {
    function.reset();
    context.reset();
    return affine_step(arguments...);
  };
  const cgt_step step = {sizeof(step), 1, run_body, &body, nullptr};
  EXPECT_DONE(cgt_compile(context, "last", &step, nullptr, function.out()));
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  OwnedTensor y;

  EXPECT_DONE(call(function, x, y));

  EXPECT_THAT(values_of(y), ElementsAre(3, 5));
}

TEST_P(StepsTest, FunctionsCallFunctions) {
  const OwnedFunction inner = compile(affine_step);
  const OwnedFunction outer =
      compile([&](const cgt_tensor* inputs, std::size_t, cgt_tensor* outputs, std::size_t) {
        cgt_tensor between = nullptr;
        EXPECT_DONE(cgt_call(inner, inputs, 1, &between, 1));
        return cgt_call(inner, &between, 1, outputs, 1);
      });
  for (int i = 0; i < 3; ++i) {
    const OwnedTensor x = make_tensor_of(device(), {1, 2});
    OwnedTensor y;
    EXPECT_DONE(call(outer, x, y));
    EXPECT_THAT(values_of(y), ElementsAre(7, 11));
  }
}

TEST_P(StepsTest, WhatNeedsTheContextForItselfIsRefusedInsideAStep) {
  const OwnedFunction function = compile([&](auto... arguments) {
    EXPECT_FAILS(cgt_context_mark_step(context_), CGT_CONCURRENT_USE, "this context is busy");
    return affine_step(arguments...);
  });
  expect_to_work(function);
}

TEST_P(StepsTest, ASecondThreadIsRefusedAndTheFirstGoesOn) {
  cgt_function self = nullptr;
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  const OwnedFunction function = compile([&](auto... arguments) {
    std::thread([&] {
      OwnedTensor y;
      EXPECT_FAILS(call(self, x, y), CGT_CONCURRENT_USE, "another thread is inside it");
    }).join();
    return affine_step(arguments...);
  });
  self = function;
  expect_to_work(function);
}

TEST_P(StepsTest, CallsWithWrongArgumentsAreRefused) {
  const OwnedFunction function = compile(affine_step);
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  cgt_tensor inputs[] = {x, nullptr};
  cgt_tensor outputs[2] = {};
  EXPECT_FAILS(cgt_call(function, inputs, 1, outputs, 2), CGT_INVALID_ARGUMENT,
               "'decode' has 1 outputs, but there is room for 2");
  EXPECT_FAILS(cgt_call(function, inputs, 2, outputs, 1), CGT_INVALID_HANDLE, "input 1 is NULL");
  EXPECT_FAILS(cgt_call(function, nullptr, 1, outputs, 1), CGT_INVALID_ARGUMENT,
               "the array of inputs is NULL");
  EXPECT_FAILS(cgt_call(function, inputs, 1, nullptr, 1), CGT_INVALID_ARGUMENT,
               "the array of outputs is NULL");
  EXPECT_FAILS(cgt_call(nullptr, inputs, 1, outputs, 1), CGT_INVALID_HANDLE,
               "the function is NULL");
  std::vector<cgt_tensor> many(700, x);
  many.back() = nullptr;
  EXPECT_FAILS(cgt_call(function, many.data(), many.size(), outputs, 1), CGT_INVALID_HANDLE,
               "input 699 is NULL");
}

TEST_P(StepsTest, TheUserDataIsReleasedOnceAlsoWhereNothingWasCompiled) {
  int released = 0;
  const auto count = [](void* user) { ++*static_cast<int*>(user); };
  const cgt_step step = {sizeof(step), 1, run_body, &released, count};
  OwnedFunction function;
  const auto compile_with = [&](cgt_context context, const char* name) {
    return cgt_compile(context, name, &step, nullptr, function.out());
  };
  EXPECT_FAILS(compile_with(nullptr, "f"), CGT_INVALID_HANDLE, "the context is NULL");
  EXPECT_FAILS(compile_with(context_, nullptr), CGT_INVALID_ARGUMENT, "name is NULL");
  EXPECT_FAILS(compile_with(context_, ""), CGT_INVALID_ARGUMENT, "name");
  EXPECT_EQ(released, 3);
  EXPECT_DONE(compile_with(context_, "f"));
  EXPECT_EQ(released, 3);
  function.reset();
  EXPECT_EQ(released, 4);
}

TEST_P(StepsTest, StatisticsAndSnapshotsAreJsonInBuffersOfTheCaller) {
  const OwnedFunction function = compile(affine_step);
  expect_to_work(function);
  std::size_t length = 0;
  EXPECT_DONE(cgt_context_snapshot_json(context_, nullptr, 0, &length));
  std::string text(length + 1, '?');
  EXPECT_FAILS(cgt_context_snapshot_json(context_, text.data(), length, nullptr),
               CGT_BUFFER_TOO_SMALL, "and a final 0, the buffer");
  EXPECT_EQ(text[0], '?');
  EXPECT_DONE(cgt_context_snapshot_json(context_, text.data(), text.size(), &length));
  EXPECT_TRUE(nlohmann::json::parse(text.c_str()).is_object());
  EXPECT_DONE(cgt_context_stats_json(context_, text.data(), text.size(), &length));
  EXPECT_EQ(nlohmann::json::parse(text.c_str())["calls"], 4);
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  const cgt_tensor input = x;
  EXPECT_DONE(cgt_function_explain(function, &input, 1, text.data(), text.size(), &length));
  EXPECT_THAT(text, HasSubstr("replay"));
}

// What was on the stack of a step function that is left so is lost, by nature.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:AbandonedStepTest";
}

// It cannot be caught, but it is told of: on its thread at once, and on others by its context.
TEST(AbandonedStepTest, ALongjmpOutOfAStepIsNamedAndNothingGoesOn) {
  static std::jmp_buf away;
  OwnedContext context;
  OwnedFunction function;
  EXPECT_DONE(cgt_context_create(c_device(Device::host()), nullptr, context.out()));
  const cgt_step step = {sizeof(step), 0,
                         [](void*, const cgt_tensor*, std::size_t, cgt_tensor*,
                            std::size_t) -> cgt_status { std::longjmp(away, 1); },
                         nullptr, nullptr};
  EXPECT_DONE(cgt_compile(context, "escape", &step, nullptr, function.out()));
  std::thread([&] {
    if (setjmp(away) == 0) {
      (void)cgt_call(function, nullptr, 0, nullptr, 0);
      FAIL() << "it jumps";
    }
    EXPECT_FAILS(cgt_call(function, nullptr, 0, nullptr, 0), CGT_STEP_ABANDONED,
                 "step function 'escape' never returned");
    EXPECT_FAILS(cgt_context_mark_step(context), CGT_STEP_ABANDONED, "never returned");
    EXPECT_FAILS(cgt_tensor_destroy(nullptr), CGT_STEP_ABANDONED, "never returned");
  }).join();
  EXPECT_FAILS(cgt_call(function, nullptr, 0, nullptr, 0), CGT_STEP_ABANDONED, "make another");
  EXPECT_FAILS(cgt_context_mark_step(context), CGT_STEP_ABANDONED, "make another context");
  // Other contexts are as they were.
  OwnedContext other;
  EXPECT_DONE(cgt_context_create(c_device(Device::host()), nullptr, other.out()));
  EXPECT_DONE(cgt_context_mark_step(other));
}

}  // namespace
}  // namespace cgtree::testing
