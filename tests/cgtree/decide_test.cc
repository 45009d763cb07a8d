// decide() as a table: every outcome and every reason, without running anything.
#include "cgtree/tree/decide.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/devices.h"

namespace cgtree::testing {
namespace {

// A function with one recording of one float input, and the arguments of decide().
class DecideTest : public ::testing::Test {
 protected:
  DecideTest() : memory_(new ContextMemory(Device::host(), {})) {
    node_.function = &function_;
    node_.recording.device = Device::host();
    recorded_with(Treatment::kCopied, 0);
  }
  ~DecideTest() override { memory_->end(); }

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
  DecisionInput situation() const {
    return {tree_, function_, *memory_, limits_, has_graphs_, graph_override_};
  }
  Decision decision() {
    Call call(function_, *memory_, list());
    return decide(situation(), call);
  }
  SkipReason skipped() {
    const Decision decided = decision();
    EXPECT_EQ(decided.outcome, Outcome::kRunEagerly);
    return decided.reason;
  }
  // Other recordings of the function, which fit no call; the first was used longest ago.
  void add_recordings(int count) {
    for (int i = 0; i < count; ++i)
      add_recording(function_);
  }
  Node& add_recording(FunctionState& function) {
    Recording recording;
    return tree_.add(tree_.make_node(function, other_key_, recording, Explanation(), *memory_));
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
  EXPECT_EQ(decision().outcome, Outcome::kWarmUp);
}

TEST_F(DecideTest, AWarmSignatureIsRecorded) {
  warmed();

  EXPECT_EQ(decision().outcome, Outcome::kRecord);
}

TEST_F(DecideTest, ARecordingThatFitsIsReplayedWhateverRanBefore) {
  add_recordings(1);
  warmed().nodes = {&node_};

  const Decision decided = decision();
  EXPECT_EQ(decided.outcome, Outcome::kReplay);
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

TEST_F(DecideTest, TheLastSuccessorIsPredictedWithoutAKey) {
  tree_.follow(node_);

  EXPECT_EQ(decision().node, &node_);
}

TEST_F(DecideTest, ASiblingIsPredictedThatFitsAndIsNotHeldBack) {
  Node other;
  other.function = &function_;
  other.recording.device = Device::host();
  recorded_with(Treatment::kStatic, input_.address() + 256);
  other.recording.inputs = {{input_.shape(), input_.dtype(), Treatment::kStatic, input_.address()}};
  KeyState& key = warmed();
  node_.key = other.key = &key;
  key.nodes = {&other, &node_};
  const auto sibling = [&] {
    return predict_sibling(tree_.current(), function_, list(), *memory_, graph_override_);
  };
  EXPECT_EQ(sibling(), nullptr) << "nothing has followed";
  tree_.follow(node_);
  EXPECT_EQ(predict(tree_.current(), function_, list(), *memory_, graph_override_), nullptr);

  EXPECT_EQ(sibling(), &other);
  EXPECT_EQ(decision().node, &other);

  int answer = 2;
  other.recording.guards = {
      {.name = "answer",
       .function = std::shared_ptr<void>(&answer, [](void*) {}),
       .call =
           [](void* asked) {
             return Guard::Answer{static_cast<std::uint64_t>(*static_cast<int*>(asked)), 0};
           },
       .answer = {1, 0}}};
  EXPECT_EQ(sibling(), nullptr) << "a guard answers otherwise";
  answer = 1;
  EXPECT_EQ(sibling(), &other);
  other.is_held_back = true;
  EXPECT_EQ(sibling(), nullptr);
  graph_override_ = GraphOverride::kNoGraph;
  other.is_held_back = false;
  EXPECT_EQ(sibling(), nullptr);
}

// predict_memory() finds the same recording: it records nothing, and leaves the hints unchanged.
TEST_F(DecideTest, PrecaptureFindsTheOldestRecordingWhateverFollowedLastTime) {
  Node other;
  other.function = &function_;
  other.recording.device = Device::host();
  other.recording.inputs = node_.recording.inputs;
  warmed().nodes = {&node_, &other};
  tree_.follow(other);
  ASSERT_EQ(decision().node, &other);

  ++function_.precaptures;

  EXPECT_EQ(decision().node, &node_);
  tree_.hold_back(other);
  EXPECT_EQ(decision().node, &node_);
}

TEST_F(DecideTest, AnotherStaticAddressIsRecordedAndSaysWhy) {
  function_.options.inputs = {{.is_static = true}};
  recorded_with(Treatment::kStatic, 0x1000);
  warmed().nodes = {&node_};

  const Decision decided = decision();
  EXPECT_EQ(decided.outcome, Outcome::kRecord);
  EXPECT_EQ(decided.mismatch, Mismatch::Kind::kStaticAddress);
  const Call call(function_, *memory_, list());
  const Explanation why = explain(decided, situation(), call);
  ASSERT_EQ(why.mismatches.size(), 1u);
  EXPECT_EQ(why.mismatches[0].kind, Mismatch::Kind::kStaticAddress);
  EXPECT_EQ(why.mismatches[0].input, 0u);
}

// The first recording differs by a static address, the other one by less, in either order.
TEST_F(DecideTest, WhetherAStaticAddressIsToBlameIsSaidByTheNearestRecording) {
  function_.options.inputs = {{.is_static = true}};
  function_.options.on_static_change = OnStaticChange::kThrow;
  recorded_with(Treatment::kStatic, 0x1000);
  Node nearer;
  nearer.function = &function_;
  nearer.recording.device = Device::host();
  nearer.recording.inputs = {
      {input_.shape(), input_.dtype(), Treatment::kManaged, input_.address()}};

  warmed().nodes = {&node_};
  EXPECT_EQ(decision().outcome, Outcome::kThrow);
  EXPECT_EQ(decision().reason, SkipReason::kStaticChanged);
  for (const std::vector<Node*>& order :
       {std::vector<Node*>{&node_, &nearer}, std::vector<Node*>{&nearer, &node_}}) {
    warmed().nodes = order;
    EXPECT_EQ(decision().outcome, Outcome::kRecord);
    EXPECT_EQ(decision().mismatch, Mismatch::Kind::kManagedAddress);
  }
}

TEST_F(DecideTest, ARecordingDroppedFromTheMiddleOfAChainLeavesItsChildrenToItsParent) {
  add_recordings(4);
  const auto& nodes = tree_.nodes();
  ASSERT_EQ(nodes[2]->parent, nodes[1]->id);
  const std::uint32_t first = nodes[0]->id;

  tree_.drop(*nodes[1]);
  EXPECT_EQ(nodes[1]->parent, first);
  EXPECT_EQ(nodes[2]->parent, nodes[1]->id);
  tree_.drop(*nodes[0]);
  EXPECT_EQ(nodes[0]->parent, 0u);
}

TEST_F(DecideTest, KeysWithoutRecordingsAreForgottenTheOldestFirst) {
  KeyState& recorded = warmed();
  recorded.nodes = {&node_};
  const Tensor longest = empty({5'000}, DType::kFloat32, Device::host());
  std::vector<Tensor> inputs;
  for (std::int64_t size = 5; size < 5'000; ++size) {
    const Tensor input = longest.slice(0, 0, size);
    function_.find_or_add(Call(function_, *memory_, InputList(std::span<const Tensor>(&input, 1))));
    EXPECT_LE(function_.key_count, 1026u);
    if (size == 4'999) inputs.push_back(input);
  }

  EXPECT_EQ(&warmed(), &recorded);
  EXPECT_EQ(decision().outcome, Outcome::kReplay);
  EXPECT_NE(function_.find(Call(function_, *memory_, InputList(std::span<const Tensor>(inputs)))),
            nullptr);
}

// Compared with a check of all pairs.
TEST_F(DecideTest, InputsThatOverlapWhereOneIsWrittenAreFoundAmongMany) {
  std::mt19937 random(::testing::UnitTest::GetInstance()->random_seed());
  const Tensor all = empty({4000}, DType::kFloat32, Device::host());
  int overlapping = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<Tensor> inputs;
    function_.options.inputs.clear();
    for (int i = 0; i < 12; ++i) {
      const auto begin = static_cast<std::int64_t>(random() % 3900);
      const auto length = static_cast<std::int64_t>(random() % (i == 0 ? 90 : 25));
      inputs.push_back(all.slice(0, begin, begin + length));
      function_.options.inputs.push_back(
          {.is_static = random() % 2 == 0, .alignment = 4, .is_mutated = random() % 3 == 0});
    }
    const Call call(function_, *memory_, InputList(std::span<const Tensor>(inputs)));
    const auto tears = [&](std::size_t i, std::size_t j) {
      const auto& options = function_.options.inputs;
      return (options[i].is_mutated || options[j].is_mutated) &&
             (!options[i].is_static || !options[j].is_static) && may_overlap(inputs[i], inputs[j]);
    };
    bool expected = false;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j)
        expected = expected || tears(i, j);
    }
    const Overlap found = call.find_overlap();
    ASSERT_EQ(static_cast<bool>(found), expected) << "round " << round;
    if (!found) continue;
    ++overlapping;
    EXPECT_LT(found.first, found.second);
    EXPECT_TRUE(tears(found.first, found.second));
  }
  EXPECT_GT(overlapping, 20);
  EXPECT_LT(overlapping, 350);
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

  warmed().captures.note_failure(/*for_good=*/true);
  EXPECT_EQ(skipped(), SkipReason::kCaptureFailed);
  warmed().nodes = {&node_};
  EXPECT_EQ(decision().outcome, Outcome::kReplay);
  warmed().nodes.clear();
  warmed().captures.reset();

  input_ = empty({4}, DType::kFloat32, Device::host(1));
  EXPECT_EQ(skipped(), SkipReason::kOtherDevice);
}

TEST_F(DecideTest, RecordingsThatDidNotPayLetTheNextOneWaitUnlessItIsAskedFor) {
  KeyState& key = warmed();
  function_.options.inputs = {{.is_static = true}};
  recorded_with(Treatment::kStatic, 0x1000);
  key.nodes = {&node_};
  while (!key.remakes.waits()) {
    EXPECT_EQ(decision().outcome, Outcome::kRecord);
    key.note_remake();
  }
  EXPECT_EQ(skipped(), SkipReason::kBacksOff);
  function_.options.require_graph = true;
  EXPECT_EQ(decision().outcome, Outcome::kRecord);
  function_.options.require_graph = false;
  ++function_.precaptures;
  EXPECT_EQ(decision().outcome, Outcome::kRecord);
  --function_.precaptures;
  key.released = 1;
  EXPECT_EQ(decision().outcome, Outcome::kRecord);
  key.released = 0;

  Call call(function_, *memory_, list());
  key.note_wait(call.hash_of_places());
  EXPECT_EQ(decision().outcome, Outcome::kRecord);  // the inputs were at these addresses before
  input_ = empty({4}, DType::kFloat32, Device::host());
  EXPECT_EQ(skipped(), SkipReason::kBacksOff);
  node_.recording.costs.replays += KeyState::kPays;
  key.note_remake();
  EXPECT_EQ(decision().outcome, Outcome::kRecord);
}

TEST_F(DecideTest, EvictionsThatDidNotPayLetAllRecordingsOfTheFunctionWait) {
  warmed();
  while (!function_.evictions.waits())
    function_.evictions.note_failure();
  EXPECT_EQ(skipped(), SkipReason::kBacksOff);
}

TEST_F(DecideTest, RecordingsForHeldOutputsCopyTheirOutputsInTheEnd) {
  recorded_with(Treatment::kManaged, 0x1000);
  KeyState& key = warmed();
  key.nodes = {&node_};
  for (unsigned i = 0; i < KeyState::kBeforeCopies; ++i) {
    EXPECT_FALSE(decision().copies);
    key.note_remake();
  }
  EXPECT_TRUE(decision().copies);
  EXPECT_EQ(decision().nearest, &node_);
  ++function_.precaptures;
  EXPECT_FALSE(decision().copies);
  --function_.precaptures;
}

TEST_F(DecideTest, AScopeOfTheThreadOverridesWhatTheFunctionWasCompiledWith) {
  graph_override_ = GraphOverride::kNoGraph;
  EXPECT_EQ(skipped(), SkipReason::kNoGraphScope);

  graph_override_ = GraphOverride::kForceGraph;
  function_.options.enabled = false;
  EXPECT_EQ(decision().outcome, Outcome::kWarmUp);
}

TEST_F(DecideTest, NothingIsPredictedWhereGraphsAreOff) {
  tree_.follow(node_);
  function_.options.enabled = false;

  EXPECT_EQ(skipped(), SkipReason::kDisabled);
}

TEST_F(DecideTest, AStaticInputThatMovedIsRefusedWhereOptionsSaySo) {
  function_.options.inputs = {{.is_static = true}};
  function_.options.on_static_change = OnStaticChange::kThrow;
  recorded_with(Treatment::kStatic, 0x1000);
  warmed().nodes = {&node_};

  const Decision decided = decision();
  EXPECT_EQ(decided.outcome, Outcome::kThrow);
  EXPECT_EQ(decided.reason, SkipReason::kStaticChanged);
}

TEST_F(DecideTest, EachLimitIsNamed) {
  warmed();
  function_.recordings = function_.options.max_recordings;
  EXPECT_EQ(skipped(), SkipReason::kFunctionLimit);
  function_.recordings = 0;

  limits_.recordings = 4;
  add_recordings(3);
  EXPECT_EQ(decision().outcome, Outcome::kRecord);
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
  Node& oldest = add_recording(other);
  add_recordings(3);
  Node& ours = *tree_.nodes()[1];
  function_.options.at_limit = AtLimit::kEvict;
  limits_.at_limit = AtLimit::kEvict;

  limits_.recordings = 4;
  EXPECT_EQ(decision().outcome, Outcome::kRecord);
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

  EXPECT_EQ(decision().outcome, Outcome::kThrow);
  EXPECT_EQ(decision().reason, SkipReason::kContextLimit);
}

TEST_F(DecideTest, AtALimitARecordingThatFitsIsStillReplayed) {
  warmed().nodes = {&node_};
  function_.recordings = function_.options.max_recordings;
  limits_.recordings = 0;

  EXPECT_EQ(decision().outcome, Outcome::kReplay);
}

}  // namespace
}  // namespace cgtree::testing
