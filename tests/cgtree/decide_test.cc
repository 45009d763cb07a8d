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
  DecideTest() : memory_(new ContextMemory(Device::host(), {})) {
    node_.function = &function_;
    node_.parent = &root_;
    node_.recording.device = Device::host();
    recorded_with(Treatment::kCopied, 0);
  }
  ~DecideTest() override { memory_->unretain(); }

  // How the input was treated when node_ was recorded.
  void recorded_with(Treatment treatment, std::uintptr_t address) {
    node_.recording.set_inputs({{input_.shape(), input_.dtype(), treatment, address}});
  }
  // The key of the present input, as after a warm-up.
  KeyState& warmed() {
    KeyState& key = function_.find_or_add(list());
    key.warmed_up = true;
    return key;
  }
  InputList list() const { return InputList(std::span<const Tensor>(&input_, 1)); }
  Decision decision() {
    return decide(
        {function_, root_, list(), *memory_, nodes_, limits_, depth_, has_graphs_, wish_});
  }
  SkipReason skipped() {
    const Decision decided = decision();
    EXPECT_EQ(decided.action, Action::kSkip);
    return decided.reason;
  }

  ContextMemory* memory_;
  FunctionState function_;
  Node root_;
  Node node_;
  Tensor input_ = empty({4}, DType::kFloat32, Device::host());
  std::vector<std::unique_ptr<Node>> nodes_;  // of the context
  Limits limits_{.recordings = 10, .depth = 10};
  std::size_t depth_ = 0;
  bool has_graphs_ = true;
  GraphWish wish_ = GraphWish::kNone;

  // Other recordings of this function, made at `place`; the first was used longest ago.
  void add_nodes(int count, Node& place) {
    for (int i = 0; i < count; ++i) {
      Node& node = *nodes_.emplace_back(std::make_unique<Node>());
      node.function = &function_;
      node.parent = &place;
      node.last_used = nodes_.size();
    }
  }
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
  other.recording.set_inputs(node_.recording.inputs);
  warmed().nodes = {&other, &node_};

  EXPECT_EQ(decision().node, &node_);
}

TEST_F(DecideTest, WhatFollowedLastTimeIsPredictedWithoutAKey) {
  root_.follow(&node_);

  EXPECT_EQ(decision().node, &node_);
}

TEST_F(DecideTest, AnotherStaticAddressIsRecordedAndSaysWhy) {
  function_.options.inputs = {{.is_static = true}};
  recorded_with(Treatment::kStatic, 0x1000);
  warmed().nodes = {&node_};

  const Decision decided = decision();
  EXPECT_EQ(decided.action, Action::kRecord);
  EXPECT_EQ(decided.mismatch.kind, Mismatch::Kind::kStaticAddress);
  EXPECT_EQ(decided.mismatch.recorded, 0x1000u);
  EXPECT_EQ(decided.mismatch.given, input_.address());
}

TEST_F(DecideTest, AnAddressThatIsNoOutputOfThisContextIsNotManaged) {
  recorded_with(Treatment::kManaged, input_.address());
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
  wish_ = GraphWish::kNoGraph;
  EXPECT_EQ(skipped(), SkipReason::kNoGraphScope);

  wish_ = GraphWish::kForceGraph;
  function_.options.enabled = false;
  EXPECT_EQ(decision().action, Action::kWarmUp);
}

TEST_F(DecideTest, NothingIsPredictedWhereGraphsAreOff) {
  root_.follow(&node_);
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

  function_.options.max_recordings_per_place = 3;
  Node elsewhere;
  add_nodes(3, elsewhere);
  EXPECT_EQ(decision().action, Action::kRecord);
  add_nodes(3, root_);
  EXPECT_EQ(skipped(), SkipReason::kPlaceLimit);
  nodes_.clear();

  depth_ = 10;
  EXPECT_EQ(skipped(), SkipReason::kDepthLimit);
  depth_ = 9;
  EXPECT_EQ(decision().action, Action::kRecord);

  limits_.recordings = 4;
  add_nodes(4, elsewhere);
  EXPECT_EQ(skipped(), SkipReason::kContextLimit);
}

TEST_F(DecideTest, AtALimitTheOldestThatCountsIsEvicted) {
  warmed();
  Node elsewhere;
  add_nodes(2, elsewhere);
  add_nodes(2, root_);
  function_.options.at_limit = AtLimit::kEvict;
  limits_.at_limit = AtLimit::kEvict;

  function_.options.max_recordings_per_place = 2;
  EXPECT_EQ(decision().action, Action::kRecord);
  EXPECT_EQ(decision().evict, nodes_[2].get());
  EXPECT_EQ(decision().reason, SkipReason::kPlaceLimit);
  function_.options.max_recordings_per_place = 10;

  limits_.recordings = 4;
  EXPECT_EQ(decision().evict, nodes_[0].get());
  EXPECT_EQ(decision().reason, SkipReason::kContextLimit);
  limits_.recordings = 10;

  function_.recordings = function_.options.max_recordings;
  EXPECT_EQ(decision().evict, nodes_[0].get());
  EXPECT_EQ(decision().reason, SkipReason::kFunctionLimit);
  function_.recordings = 0;

  depth_ = 10;
  EXPECT_EQ(skipped(), SkipReason::kDepthLimit);
}

TEST_F(DecideTest, WhereNothingCanBeEvictedTheCallRunsEagerly) {
  warmed();
  limits_ = {.recordings = 0, .depth = 10, .at_limit = AtLimit::kEvict};

  EXPECT_EQ(skipped(), SkipReason::kContextLimit);
}

TEST_F(DecideTest, AtALimitACallIsRefusedWhereOptionsSaySo) {
  warmed();
  limits_ = {.recordings = 0, .depth = 10, .at_limit = AtLimit::kThrow};

  EXPECT_EQ(decision().action, Action::kThrow);
  EXPECT_EQ(decision().reason, SkipReason::kContextLimit);
}

TEST_F(DecideTest, AtALimitARecordingThatFitsIsStillReplayed) {
  warmed().nodes = {&node_};
  function_.recordings = function_.options.max_recordings;
  limits_.recordings = 0;
  depth_ = 10;

  EXPECT_EQ(decision().action, Action::kReplay);
}

}  // namespace
}  // namespace cgtree::testing
