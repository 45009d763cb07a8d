// decide() as a table: every action and every reason, without running anything.
#include "cgtree/tree/decide.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/devices.h"

namespace cgtree::testing {
namespace {

using Action = Decision::Action;

// A function with one recording of one float input, and all that a decision looks at.
class DecideTest : public ::testing::Test {
 protected:
  DecideTest() : memory_(new ContextMemory(Device::host(), {})) {
    node_.function = &function_;
    node_.recording.device = Device::host();
    recorded_with(Treatment::kCopied, 0);
  }
  ~DecideTest() override { memory_->unretain(); }

  // How the input was treated when node_ was recorded.
  void recorded_with(Treatment treatment, std::uintptr_t address) {
    node_.recording.inputs = {{input_.shape(), input_.dtype(), treatment, address}};
  }
  // The key of the present input, as after a warm-up.
  KeyState& warmed() {
    KeyState& key = function_.find_or_add(Call(function_, *memory_, list()));
    key.warmed_up = true;
    return key;
  }
  InputList list() const { return InputList(std::span<const Tensor>(&input_, 1)); }
  Decision decision() {
    Call call(function_, *memory_, list());
    return decide({tree_, function_, *memory_, limits_, has_graphs_, graph_override_}, call);
  }
  SkipReason skipped() {
    const Decision decided = decision();
    EXPECT_EQ(decided.action, Action::kSkip);
    return decided.reason;
  }
  // Other recordings of the function; the first was used longest ago. They fit nothing.
  void add_recordings(int count) {
    for (int i = 0; i < count; ++i)
      tree_.add(function_, other_key_, Recording(), Explanation(), *memory_);
  }

  ContextMemory* memory_;
  KeyState other_key_{Signature(InputList())};
  Tree tree_;
  FunctionState& function_ =
      tree_.add_function("f", [](std::span<const Tensor>) { return std::vector<Tensor>(); }, {});
  Node node_;
  Tensor input_ = empty({4}, DType::kFloat32, Device::host());
  Limits limits_{.recordings = 10};
  bool has_graphs_ = true;
  GraphOverride graph_override_ = GraphOverride::kNone;
};

TEST_F(DecideTest, AnUnknownSignatureIsWarmedUp) {
  EXPECT_EQ(decision().action, Action::kWarmUp);
}

TEST_F(DecideTest, AWarmSignatureIsRecorded) {
  warmed();

  EXPECT_EQ(decision().action, Action::kRecord);
}

TEST_F(DecideTest, ARecordingThatFitsIsReplayedWhateverRanBefore) {
  add_recordings(1);
  warmed().nodes = {&node_};

  const Decision decided = decision();
  EXPECT_EQ(decided.action, Action::kReplay);
  EXPECT_EQ(decided.node, &node_);
}

TEST_F(DecideTest, TheOldestRecordingThatFitsIsReplayed) {
  Node other;
  other.function = &function_;
  other.recording.device = Device::host();
  other.recording.inputs = node_.recording.inputs;
  warmed().nodes = {&node_, &other};

  EXPECT_EQ(decision().node, &node_);
}

TEST_F(DecideTest, WhatFollowedLastTimeIsPredictedWithoutAKey) {
  tree_.current().follow(&node_);

  EXPECT_EQ(decision().node, &node_);
}

TEST_F(DecideTest, AnotherStaticAddressIsRecordedAndSaysWhy) {
  function_.options.inputs = {{.is_static = true}};
  recorded_with(Treatment::kStatic, 0x1000);
  warmed().nodes = {&node_};

  const Decision decided = decision();
  EXPECT_EQ(decided.action, Action::kRecord);
  EXPECT_EQ(decided.mismatch, Mismatch::Kind::kStaticAddress);
  const Call call(function_, *memory_, list());
  const Explanation why = explain(decided, function_, call, *memory_);
  ASSERT_EQ(why.mismatches.size(), 1u);
  EXPECT_EQ(why.mismatches[0].kind, Mismatch::Kind::kStaticAddress);
  EXPECT_EQ(why.mismatches[0].recorded, "0x1000");
  EXPECT_EQ(why.mismatches[0].given, fmt::format("{:#x}", input_.address()));
}

TEST_F(DecideTest, AnAddressThatIsNoOutputOfThisContextIsNotManaged) {
  recorded_with(Treatment::kManaged, input_.address());
  warmed().nodes = {&node_};

  EXPECT_EQ(decision().mismatch, Mismatch::Kind::kManagedAddress);
}

TEST_F(DecideTest, ReasonsToSkipAreNamed) {
  function_.options.enabled = false;
  EXPECT_EQ(skipped(), SkipReason::kDisabled);
  function_.options.enabled = true;

  has_graphs_ = false;
  EXPECT_EQ(skipped(), SkipReason::kNoGraphs);
  has_graphs_ = true;

  function_.options.inputs = {{.is_mutated = true}};
  EXPECT_EQ(decision().action, Action::kWarmUp);
  function_.options.on_mutated_input = OnMutatedInput::kSkip;
  EXPECT_EQ(skipped(), SkipReason::kMutatedInput);
  function_.options.on_mutated_input = OnMutatedInput::kReject;
  EXPECT_EQ(decision().action, Action::kThrow);
  EXPECT_EQ(decision().reason, SkipReason::kMutatedInput);
  function_.options.inputs = {{.is_static = true, .is_mutated = true}};
  EXPECT_EQ(decision().action, Action::kWarmUp);
  function_.options.inputs.clear();

  function_.captures_to_try = 0;
  EXPECT_EQ(skipped(), SkipReason::kCaptureFailed);
  function_.captures_to_try = 1;

  input_ = empty({4}, DType::kFloat32, Device::host(1));
  EXPECT_EQ(skipped(), SkipReason::kOtherDevice);
}

TEST_F(DecideTest, AScopeOfTheThreadOverridesWhatTheFunctionWasCompiledWith) {
  graph_override_ = GraphOverride::kNoGraph;
  EXPECT_EQ(skipped(), SkipReason::kNoGraphScope);

  graph_override_ = GraphOverride::kForceGraph;
  function_.options.enabled = false;
  EXPECT_EQ(decision().action, Action::kWarmUp);
}

TEST_F(DecideTest, NothingIsPredictedWhereGraphsAreOff) {
  tree_.current().follow(&node_);
  function_.options.enabled = false;

  EXPECT_EQ(skipped(), SkipReason::kDisabled);
}

TEST_F(DecideTest, AGraphThatWasTooSmallIsNotRecordedAgain) {
  warmed().is_too_small = true;

  EXPECT_EQ(skipped(), SkipReason::kTooSmall);
}

TEST_F(DecideTest, AStaticInputThatMovedIsRefusedWhereOptionsSaySo) {
  function_.options.inputs = {{.is_static = true}};
  function_.options.on_static_change = OnStaticChange::kThrow;
  recorded_with(Treatment::kStatic, 0x1000);
  warmed().nodes = {&node_};

  const Decision decided = decision();
  EXPECT_EQ(decided.action, Action::kThrow);
  EXPECT_EQ(decided.reason, SkipReason::kStaticChanged);
}

TEST_F(DecideTest, EachLimitIsNamed) {
  warmed();
  function_.recordings = function_.options.max_recordings;
  EXPECT_EQ(skipped(), SkipReason::kFunctionLimit);
  function_.recordings = 0;

  limits_.recordings = 4;
  add_recordings(3);
  EXPECT_EQ(decision().action, Action::kRecord);
  add_recordings(1);
  EXPECT_EQ(skipped(), SkipReason::kContextLimit);
  limits_.recordings = 10;

  tree_.spent.graph_bytes = limits_.graph_bytes = 100;
  EXPECT_EQ(skipped(), SkipReason::kGraphBytesLimit);
  tree_.spent.graph_bytes = 0;

  tree_.spent.recording_time = limits_.recording_time = std::chrono::microseconds(5);
  EXPECT_EQ(skipped(), SkipReason::kTimeLimit);
}

TEST_F(DecideTest, AtALimitTheLeastRecentlyUsedThatCountsIsEvicted) {
  warmed();
  FunctionState& other = tree_.add_function("g", function_.step, {});
  Node& oldest = tree_.add(other, other_key_, Recording(), Explanation(), *memory_);
  add_recordings(3);
  Node& ours = *tree_.nodes()[1];
  function_.options.at_limit = AtLimit::kEvict;
  limits_.at_limit = AtLimit::kEvict;

  limits_.recordings = 4;
  EXPECT_EQ(decision().action, Action::kRecord);
  EXPECT_EQ(decision().evict, &oldest);
  EXPECT_EQ(decision().reason, SkipReason::kContextLimit);
  limits_.recordings = 10;

  function_.options.max_recordings = 3;
  EXPECT_EQ(decision().evict, &ours);
  EXPECT_EQ(decision().reason, SkipReason::kFunctionLimit);
  tree_.go_to(ours);
  EXPECT_EQ(decision().evict, tree_.nodes()[2].get());
}

TEST_F(DecideTest, WhereNothingCanBeEvictedTheCallRunsEagerly) {
  warmed();
  limits_ = {.recordings = 0, .at_limit = AtLimit::kEvict};

  EXPECT_EQ(skipped(), SkipReason::kContextLimit);
}

TEST_F(DecideTest, AtALimitACallIsRefusedWhereOptionsSaySo) {
  warmed();
  limits_ = {.recordings = 0, .at_limit = AtLimit::kThrow};

  EXPECT_EQ(decision().action, Action::kThrow);
  EXPECT_EQ(decision().reason, SkipReason::kContextLimit);
}

TEST_F(DecideTest, AtALimitARecordingThatFitsIsStillReplayed) {
  warmed().nodes = {&node_};
  function_.recordings = function_.options.max_recordings;
  limits_.recordings = 0;

  EXPECT_EQ(decision().action, Action::kReplay);
}

}  // namespace
}  // namespace cgtree::testing
