// Branches and loops through C: handles in bodies, and bodies that fail without a trace.
// cpp_control_flow_test.cc checks the results.
#include <stdexcept>
#include <utility>

#include "tests/c_api/flow_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;

class CControlFlowTest : public CStepTest {
 protected:
  cgt_status call(cgt_function function, cgt_tensor x, cgt_tensor flag, OwnedTensor& y) {
    const cgt_tensor inputs[] = {x, flag};
    y = OwnedTensor();
    return cgt_call(function, inputs, 2, y.out(), 1);
  }
  OwnedTensor flag(std::int32_t value) const { return make_flags(device(), {value}); }
};
CGTREE_ON_ALL_DEVICES(CControlFlowTest);

// A body is not a call: a handle that it destroys is not an input of a call, and is destroyed
// immediately.
TEST_P(CControlFlowTest, ABodyMayDestroyHandlesThatWereMadeAroundIt) {
  const OwnedFunction function = compile([](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
    const cgt_tensor y = out[0] = copy_of(in[0]);
    const cgt_tensor predicate = copy_of(in[1]);
    const Enqueue then = [&](auto...) {
      const cgt_tensor scratch = copy_of(in[0]);
      bool is_there = true;
      add_to(y, 1, scratch);
      const Enqueue frees = [&](auto...) {
        // A capture calls the body twice.
        if (std::exchange(is_there, false)) {
          EXPECT_DONE(cgt_tensor_destroy(scratch));
        }
        add_to(y, 1, in[0]);
        return CGT_OK;
      };
      const cgt_body body = body_of(frees);
      return cgt_branch(in[1], &body, nullptr, nullptr, 0, nullptr, 0);
    };
    const cgt_body body = body_of(then);
    return cgt_branch(predicate, &body, nullptr, nullptr, 0, nullptr, 0);
  });
  OwnedTensor y;
  for (int i = 0; i < 6; ++i) {
    const OwnedTensor x = make_tensor_of(device(), {1, 2}), taken = flag(1 - i / 4);
    EXPECT_DONE(call(function, x, taken, y));
    EXPECT_THAT(values_of(y), i < 4 ? ElementsAre(3, 6) : ElementsAre(1, 2)) << i;
  }
  EXPECT_EQ(stats(function)["replays"], 4);
}

TEST_P(CControlFlowTest, HandlesThatABodyMakesEndWithIt) {
  const OwnedFunction function = compile([](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
    out[0] = copy_of(in[0]);
    cgt_tensor scratch = nullptr;
    const Enqueue then = [&](auto...) { return scratch = copy_of(in[0]), CGT_OK; };
    const cgt_body body = body_of(then);
    const cgt_status status = cgt_branch(in[1], &body, nullptr, nullptr, 0, nullptr, 0);
    EXPECT_FAILS(cgt_tensor_destroy(scratch), CGT_INVALID_HANDLE, "was destroyed");
    return status;
  });
  const OwnedTensor x = make_tensor_of(device(), {1}), taken = flag(1);
  OwnedTensor y;
  EXPECT_DONE(call(function, x, taken, y));
  EXPECT_DONE(call(function, x, taken, y));
}

TEST_P(CControlFlowTest, ABodyThatFailsFailsTheCallAndLeavesNoTrace) {
  cgt_status answer = CGT_OK;
  bool throws = false;
  const OwnedFunction function = compile([&](const cgt_tensor* in, auto, cgt_tensor* out, auto) {
    const Enqueue then = [&](cgt_tensor* results, auto) -> cgt_status {
      results[0] = copy_of(in[0]);
      if (throws) throw std::runtime_error("no such token");
      if (answer != CGT_OK) cgt_set_error("told to fail");
      add_to(results[0], 1, in[0]);
      return answer;
    };
    const cgt_body body = body_of(then);
    cgt_tensor result = nullptr;
    const cgt_status status = cgt_branch(in[1], &body, &body, nullptr, 0, &result, 1);
    EXPECT_EQ(result == nullptr, status != CGT_OK);
    out[0] = result;
    return status;
  });
  const OwnedTensor x = make_tensor_of(device(), {1, 2}), taken = flag(1);
  OwnedTensor y;
  for (int call_number = 0; call_number < 2; ++call_number) {  // warm-up, and recording
    answer = CGT_USER_STATUS + 7;
    EXPECT_FAILS(call(function, x, taken, y), CGT_USER_STATUS + 7,
                 "'decode': then() of branch(): told to fail");
    answer = CGT_OK;
    throws = true;
    EXPECT_FAILS(call(function, x, taken, y), CGT_STEP_THREW,
                 "then() of branch() threw: no such token");
    throws = false;
    EXPECT_DONE(call(function, x, taken, y));
    EXPECT_THAT(values_of(y), ElementsAre(2, 4));
    y = OwnedTensor();
  }
  EXPECT_EQ(stats(function)["failures"], 4);
  EXPECT_DONE(call(function, x, taken, y));
  EXPECT_EQ(stats(function)["replays"], 1);
}

TEST_P(CControlFlowTest, WrongArgumentsAreNamed) {
  cgt_stream stream = {};
  EXPECT_DONE(cgt_stream_create(c_device(device()), 0, &stream));
  EXPECT_DONE(cgt_stream_push(stream));
  const OwnedTensor yes = flag(1), number = make_tensor_of(device(), {1});
  const Enqueue none = [](auto...) { return CGT_OK; };
  const cgt_body body = body_of(none), missing = {nullptr, nullptr};
  cgt_tensor result = nullptr;
  const auto branch = [&](cgt_tensor predicate, const cgt_body* then, std::size_t results = 0) {
    return cgt_branch(predicate, then, nullptr, nullptr, 0, results > 0 ? &result : nullptr,
                      results);
  };
  EXPECT_FAILS(branch(nullptr, &body), CGT_INVALID_HANDLE, "the predicate is NULL");
  EXPECT_FAILS(branch(number, &body), CGT_INVALID_ARGUMENT, "predicate of branch() is float32");
  EXPECT_FAILS(branch(yes, nullptr), CGT_INVALID_ARGUMENT, "then() of branch() is missing");
  EXPECT_FAILS(branch(yes, &missing), CGT_INVALID_ARGUMENT, "then() of branch() is missing");
  EXPECT_FAILS(branch(yes, &body, 1), CGT_INVALID_ARGUMENT, "otherwise() of branch() is missing");
  EXPECT_FAILS(cgt_branch(yes, &body, &body, nullptr, 0, nullptr, 1), CGT_INVALID_ARGUMENT,
               "results is NULL");
  EXPECT_FAILS(cgt_branch(yes, &body, &body, nullptr, 0, &result, 1), CGT_INVALID_HANDLE,
               "result 0 of 'then() of branch()' is NULL");
  EXPECT_FAILS(cgt_choose(nullptr, &body, 1, nullptr, 0, nullptr, 0), CGT_INVALID_HANDLE,
               "index is NULL");
  EXPECT_FAILS(cgt_choose(yes, nullptr, 0, nullptr, 0, nullptr, 0), CGT_INVALID_ARGUMENT,
               "without bodies");
  EXPECT_FAILS(cgt_choose(yes, nullptr, 1, nullptr, 0, nullptr, 0), CGT_INVALID_ARGUMENT,
               "bodies is NULL");
  EXPECT_FAILS(cgt_choose(yes, &missing, 1, nullptr, 0, nullptr, 0), CGT_INVALID_ARGUMENT,
               "body 0 of choose() is missing");
  EXPECT_FAILS(cgt_loop(0, &body, nullptr, 0, nullptr), CGT_INVALID_ARGUMENT, "at most 0 rounds");
  EXPECT_FAILS(cgt_loop(3, nullptr, nullptr, 0, nullptr), CGT_INVALID_ARGUMENT,
               "body of loop() is missing");
  EXPECT_FAILS(cgt_loop(3, &body, nullptr, 0, nullptr), CGT_INVALID_HANDLE,
               "result 0 of 'the body of loop()'");
  EXPECT_FAILS(cgt_branch(yes, &body, nullptr, nullptr, 1, nullptr, 0), CGT_INVALID_ARGUMENT,
               "the array of generators is NULL");
  OwnedGenerator generator;
  EXPECT_DONE(cgt_generator_create(1, generator.out()));
  const cgt_generator wrong[] = {generator, nullptr};
  EXPECT_FAILS(cgt_loop(3, &body, wrong, 2, nullptr), CGT_INVALID_HANDLE, "generator 1 is NULL");
  EXPECT_EQ(result, nullptr);
  EXPECT_DONE(cgt_stream_pop());
  EXPECT_DONE(cgt_stream_destroy(stream));
}

}  // namespace
}  // namespace cgtree::testing
