// Outcomes of calls, and freezing, keeping and releasing memory through C.
#include "tests/c_api/step_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;

class LifetimeTest : public CStepTest {
 protected:
  using Told = std::pair<cgt_outcome, std::string>;

  Told last(cgt_function function) {
    cgt_outcome outcome = -1;
    const char* reason = "not written";
    EXPECT_DONE(cgt_function_last_outcome(function, &outcome, &reason));
    return {outcome, reason};
  }
};
CGTREE_ON_ALL_DEVICES(LifetimeTest);

TEST_P(LifetimeTest, ACallTellsWhatItDid) {
  const OwnedFunction function = compile(affine_step);
  EXPECT_EQ(last(function), Told(CGT_NO_CALL, ""));
  for (const cgt_outcome expected : {CGT_WARMED_UP, CGT_RECORDED, CGT_REPLAYED}) {
    const OwnedTensor x = make_tensor_of(device(), {1, 2});
    OwnedTensor y;
    EXPECT_DONE(call(function, x, y));
    EXPECT_EQ(last(function), Told(expected, ""));
  }
  cgt_outcome outcome = -1;
  EXPECT_DONE(cgt_function_last_outcome(function, &outcome, nullptr));
  EXPECT_EQ(cgt_function_last_outcome(function, nullptr, nullptr), CGT_INVALID_ARGUMENT);
}

TEST_P(LifetimeTest, AFrozenFunctionRunsEagerlyOrRefuses) {
  const OwnedFunction function = compile(affine_step);
  const OwnedTensor x = make_tensor_of(device(), {1, 2}), other = make_tensor_of(device(), {1});
  OwnedTensor y;
  for (int i = 0; i < 2; ++i)
    EXPECT_DONE(call(function, x, y));
  EXPECT_DONE(cgt_function_freeze(function, CGT_FROZEN_RUN_EAGERLY));
  EXPECT_DONE(call(function, x, y));
  EXPECT_EQ(last(function), Told(CGT_REPLAYED, ""));
  EXPECT_DONE(call(function, other, y));
  EXPECT_THAT(values_of(y), ElementsAre(3));
  EXPECT_EQ(last(function), Told(CGT_RAN_EAGERLY, "frozen"));
  EXPECT_EQ(stats(function)["frozen"], 1);
  EXPECT_DONE(cgt_function_freeze(function, CGT_FROZEN_REFUSE));
  EXPECT_EQ(call(function, other, y), CGT_CAPTURE_FAILED);
  EXPECT_EQ(last(function).first, CGT_FAILED);
  EXPECT_DONE(cgt_function_unfreeze(function));
  EXPECT_DONE(call(function, other, y));
  EXPECT_EQ(last(function).first, CGT_WARMED_UP);
  EXPECT_EQ(cgt_function_freeze(function, 2), CGT_INVALID_ARGUMENT);
}

TEST_P(LifetimeTest, AnOutputIsKeptAcrossAMark) {
  const OwnedFunction function = compile(affine_step);
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  OwnedTensor kept, lost, y;
  for (int i = 0; i < 2; ++i)
    EXPECT_DONE(call(function, x, y));
  EXPECT_DONE(call(function, x, kept));
  EXPECT_DONE(call(function, x, lost));
  EXPECT_DONE(cgt_tensor_keep(kept, context_));
  EXPECT_DONE(cgt_context_mark_step(context_));
  EXPECT_THAT(values_of(kept), ElementsAre(3, 5));
  EXPECT_EQ(cgt_tensor_keep(lost, context_), CGT_STALE_TENSOR);
}

TEST_P(LifetimeTest, MemoryIsReleasedAndTheNextCallRecordsAtOnce) {
  const OwnedFunction function = compile(affine_step);
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  OwnedTensor y;
  for (int i = 0; i < 3; ++i)
    EXPECT_DONE(call(function, x, y));
  std::size_t bytes = 0;
  EXPECT_DONE(cgt_context_release_memory(context_, &bytes));
  EXPECT_GT(bytes, 0u);
  EXPECT_THAT(values_of(y), ElementsAre(3, 5));
  EXPECT_DONE(call(function, x, y));
  EXPECT_EQ(last(function).first, CGT_RECORDED);
  EXPECT_DONE(cgt_context_release_memory(context_, nullptr));
}

}  // namespace
}  // namespace cgtree::testing
