// Step functions through C: all possible faults.
#include <stdexcept>
#include <thread>

#include "tests/c_api/step_fixture.h"

namespace cgtree::testing {
namespace {

class StepFaultsTest : public CStepTest {};
CGTREE_ON_ALL_DEVICES(StepFaultsTest);

TEST_P(StepFaultsTest, AnExceptionThatLeavesItIsAnErrorAndLeavesNoTrace) {
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
  throws = true;  // in the recording
  EXPECT_FAILS(call(function, x, y), CGT_STEP_THREW, "'decode' threw: no such token");
  y = OwnedTensor();
  throws = false;
  expect_to_work(function);
  EXPECT_EQ(stats(function)["failures"], 2);
}

TEST_P(StepFaultsTest, FailuresInsideReachTheCallerWithCodeAndStateOfTheCapture) {
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
  EXPECT_EQ(last_error().cuda_code, 900);
  EXPECT_EQ(last_error().capture, CGT_CAPTURE_INVALIDATED);
}

TEST_P(StepFaultsTest, AStatusWithoutATextIsNamed) {
  const OwnedFunction own = compile([](auto...) { return CGT_USER_STATUS + 3; });
  const OwnedFunction strange = compile([](auto...) { return 77; });
  const OwnedTensor x = make_tensor_of(device(), {1});
  OwnedTensor y;

  EXPECT_FAILS(call(own, x, y), CGT_USER_STATUS + 3, "'decode': returned status 1003");
  EXPECT_FAILS(call(strange, x, y), CGT_STEP_FAILED, "'decode': returned status 77");
}

TEST_P(StepFaultsTest, AnOutputThatIsMissingOrGoneIsNamed) {
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

TEST_P(StepFaultsTest, MarkStepIsRefusedInsideAStep) {
  const OwnedFunction function = compile([&](auto... arguments) {
    EXPECT_FAILS(cgt_context_mark_step(context_), CGT_CONCURRENT_USE, "this context is busy");
    return affine_step(arguments...);
  });
  expect_to_work(function);
}

TEST_P(StepFaultsTest, CallsWithWrongArgumentsAreRefused) {
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

TEST_P(StepFaultsTest, TheUserDataIsReleasedOnceAlsoWhereNothingWasCompiled) {
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

}  // namespace
}  // namespace cgtree::testing
