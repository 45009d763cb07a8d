// decide() as a table: every action and every reason, without running anything.
#include "cgtree/tree/decide.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/devices.h"

namespace cgtree::testing {
namespace {

using Action = Decision::Action;

// A function with one recording of one float input, and all that a decision looks at.
class DecideTest : public ::testing::Test {
 protected:
  DecideTest() : memory_(new LaneMemory(Device::host(), {})) {
    node_.function = &function_;
    node_.parent = &root_;
    node_.recording.device = Device::host();
    node_.recording.inputs = {{input_.shape(), input_.dtype(), Treatment::kCopied, 0}};
  }
  ~DecideTest() override { memory_->unretain(); }

  // The key of the present input, as after a warm-up.
  KeyState& warmed() {
    KeyState& key = function_.find_or_add(list());
    key.warmed_up = true;
    return key;
  }
  InputList list() const { return InputList(std::span<const Tensor>(&input_, 1)); }
  Decision decision() {
    return decide({function_, root_, list(), *memory_, has_graphs_, recordings_, 10});
  }
  SkipReason skipped() {
    const Decision decided = decision();
    EXPECT_EQ(decided.action, Action::kSkip);
    return decided.reason;
  }

  LaneMemory* memory_;
  FunctionState function_;
  Node root_;
  Node node_;
  Tensor input_ = empty({4}, DType::kFloat32, Device::host());
  bool has_graphs_ = true;
  std::size_t recordings_ = 0;
};

TEST_F(DecideTest, AnUnknownSignatureIsWarmedUp) {
  EXPECT_EQ(decision().action, Action::kWarmUp);
}

TEST_F(DecideTest, AWarmSignatureIsRecorded) {
  warmed();

  EXPECT_EQ(decision().action, Action::kRecord);
}

TEST_F(DecideTest, ARecordingThatFitsIsReplayedWhereverItWasMade) {
  Node elsewhere;
  node_.parent = &elsewhere;
  warmed().nodes = {&node_};

  const Decision decided = decision();
  EXPECT_EQ(decided.action, Action::kReplay);
  EXPECT_EQ(decided.node, &node_);
}

TEST_F(DecideTest, AChildOfTheCurrentNodeComesFirst) {
  Node elsewhere;
  Node other;
  other.function = &function_;
  other.parent = &elsewhere;
  other.recording.device = Device::host();
  other.recording.inputs = node_.recording.inputs;
  warmed().nodes = {&other, &node_};

  EXPECT_EQ(decision().node, &node_);
}

TEST_F(DecideTest, WhatFollowedLastTimeIsPredictedWithoutAKey) {
  root_.follow(&node_);

  EXPECT_EQ(decision().node, &node_);
}

TEST_F(DecideTest, AnotherStaticAddressIsRecordedAndSaysWhy) {
  function_.options.inputs = {{.is_static = true}};
  node_.recording.inputs[0].treatment = Treatment::kStatic;
  node_.recording.inputs[0].address = 0x1000;
  warmed().nodes = {&node_};

  const Decision decided = decision();
  EXPECT_EQ(decided.action, Action::kRecord);
  EXPECT_EQ(decided.mismatch.kind, Mismatch::Kind::kStaticAddress);
  EXPECT_EQ(decided.mismatch.recorded, 0x1000u);
  EXPECT_EQ(decided.mismatch.given, input_.address());
}

TEST_F(DecideTest, AnAddressThatIsNoOutputOfThisContextIsNotManaged) {
  node_.recording.inputs[0].treatment = Treatment::kManaged;
  node_.recording.inputs[0].address = input_.address();
  warmed().nodes = {&node_};

  EXPECT_EQ(decision().mismatch.kind, Mismatch::Kind::kManagedAddress);
}

TEST_F(DecideTest, ReasonsToSkipAreNamed) {
  function_.options.enabled = false;
  EXPECT_EQ(skipped(), SkipReason::kDisabled);
  function_.options.enabled = true;

  has_graphs_ = false;
  EXPECT_EQ(skipped(), SkipReason::kNoGraphs);
  has_graphs_ = true;

  function_.options.inputs = {{.is_mutated = true}};
  EXPECT_EQ(skipped(), SkipReason::kMutatedInput);
  function_.options.inputs = {{.is_static = true, .is_mutated = true}};
  EXPECT_EQ(decision().action, Action::kWarmUp);
  function_.options.inputs.clear();

  function_.capture_failure = "synchronize stream";
  EXPECT_EQ(skipped(), SkipReason::kCaptureFailed);
  function_.capture_failure.clear();

  input_ = empty({4}, DType::kFloat32, Device::host(1));
  EXPECT_EQ(skipped(), SkipReason::kOtherDevice);
}

TEST_F(DecideTest, LimitsAreOfTheFunctionAndOfTheContext) {
  warmed();
  function_.recordings = function_.options.max_recordings;
  EXPECT_EQ(skipped(), SkipReason::kFunctionLimit);
  function_.recordings = 0;

  recordings_ = 10;
  EXPECT_EQ(skipped(), SkipReason::kContextLimit);
}

TEST_F(DecideTest, AtALimitARecordingThatFitsIsStillReplayed) {
  warmed().nodes = {&node_};
  function_.recordings = function_.options.max_recordings;
  recordings_ = 10;

  EXPECT_EQ(decision().action, Action::kReplay);
}

}  // namespace
}  // namespace cgtree::testing
