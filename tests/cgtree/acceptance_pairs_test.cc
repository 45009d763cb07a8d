// Pairs of forward and backward: a forward saves outputs for its backward, which may come late or
// never. There is no warning of pending backwards, since held outputs are never lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "extensions/watch/monitor.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class AcceptancePairsTest : public TreeTest {
 protected:
  using Pair = std::pair<Tensor, Tensor>;
  static Pair forward_step(const Tensor& x) { return {affine(x, 2, 0), affine(x, 3, 1)}; }
  // The gradient of a call is the sum of its saved outputs.
  CompiledFunction<Pair(Tensor)> make_forward() {
    return compile(context(), "forward", [](Tensor x) { return forward_step(x); });
  }
  CompiledFunction<Tensor(Tensor, Tensor)> make_backward(CompileOptions options = {}) {
    return compile(
        context(), "backward", [](Tensor a, Tensor b) { return add(a, b); }, std::move(options));
  }
  static std::vector<float> gradient_of(const std::vector<float>& x) {
    std::vector<float> sum = affine_of(x, 2, 0);
    for (std::size_t i = 0; i < x.size(); ++i)
      sum[i] += 3 * x[i] + 1;
    return sum;
  }
};
CGTREE_ON_ALL_DEVICES(AcceptancePairsTest);

// Row 60 forward_backward: a root and its child; the saved outputs are live before the backward and
// dead after it.
// Acceptance: trees 60.
TEST_P(AcceptancePairsTest, SavedOutputsAreLiveUntilTheBackwardEnds) {
  CompiledFunction forward = make_forward();
  CompiledFunction backward = make_backward();

  for (int step = 0; step < 4; ++step) {
    const std::vector<float> x = random_floats(4);
    auto [a, b] = forward(tensor({4}, x));
    EXPECT_EQ(stats().live_outputs, 2u);
    const Tensor gradient = backward(a, b);
    EXPECT_EQ(stats().live_outputs, 3u);
    a = b = Tensor();
    EXPECT_EQ(stats().live_outputs, 1u);
    EXPECT_EQ(values(gradient), gradient_of(x));
  }

  const auto nodes = nlohmann::json::parse(snapshot_json(context()))["nodes"];
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0]["parent"], 0);
  EXPECT_EQ(nodes[1]["parent"], nodes[0]["id"]);
  EXPECT_EQ(backward.stats().replays, 2u);
}

// Row 73 forward_generation: two live forwards keep their outputs (L == 2 pairs), and later rounds
// replay the same children.
// Acceptance: trees 73.
TEST_P(AcceptancePairsTest, TwoLiveForwardsKeepTheirOutputsAndChildrenAreReused) {
  CompiledFunction forward = make_forward();
  CompiledFunction backward = make_backward();
  std::uint64_t settled = 0;

  for (int step = 0; step < 10; ++step) {
    const std::vector<float> x = random_floats(4), y = random_floats(4);
    const Pair first = forward(tensor({4}, x));
    const Pair second = forward(tensor({4}, y));
    EXPECT_EQ(stats().live_outputs, 4u);
    EXPECT_EQ(values(backward(second.first, second.second)), gradient_of(y));
    EXPECT_EQ(values(backward(first.first, first.second)), gradient_of(x));
    if (step == 3) settled = recording_count();
  }

  EXPECT_EQ(recording_count(), settled);
  EXPECT_LE(settled, 4u);
}

// Row 24 forward_backward_not_called, and the purpose of row 74 warn_on_pending_backward: a forward
// without its backward hinders no call, and needs no warning.
// Acceptance: trees 24, 74, 135.
TEST_P(AcceptancePairsTest, AForwardWhoseBackwardIsNeverCalledIsInNobodysWay) {
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel level, const std::string& line) {
    if (level >= LogLevel::kWarn) warnings.push_back(line);
  });
  CompiledFunction forward = make_forward();
  CompiledFunction backward = make_backward();

  for (int step = 0; step < 6; ++step) {
    std::vector<Pair> pending;
    std::vector<std::vector<float>> inputs;
    for (int i = 0; i < 3; ++i) {
      inputs.push_back(random_floats(4));
      pending.push_back(forward(tensor({4}, inputs.back())));
    }
    EXPECT_EQ(values(backward(pending[1].first, pending[1].second)), gradient_of(inputs[1]));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(values(pending[i].first), affine_of(inputs[i], 2, 0));
      EXPECT_EQ(values(pending[i].second), affine_of(inputs[i], 3, 1));
    }
  }
  set_log_sink(nullptr);

  EXPECT_EQ(recording_count(), 4u);  // three forwards and one backward
  EXPECT_TRUE(warnings.empty());
}

// Row 19 forward_with_skipped_cudagraphed_backward: one recording, and the forward keeps replaying.
// Acceptance: trees 19, 135.
TEST_P(AcceptancePairsTest, ASkippedBackwardDoesNotKeepTheForwardFromReplaying) {
  CompiledFunction forward = make_forward();
  CompiledFunction backward = make_backward({.enabled = false});

  for (int step = 0; step < 5; ++step) {
    const std::vector<float> x = random_floats(4);
    const auto [a, b] = forward(tensor({4}, x));
    EXPECT_EQ(values(backward(a, b)), gradient_of(x));
  }

  EXPECT_EQ(recording_count(), 1u);
  EXPECT_EQ(forward.stats().replays, 3u);
}

// Row 129 graph_partition_forward_backward: a forward in two parts and its backward.
// Acceptance: trees 129.
TEST_P(AcceptancePairsTest, AForwardInTwoPartsAndItsBackwardAreThreeRecordings) {
  CompiledFunction one = compile(context(), "one", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction two = compile(context(), "two", [](Tensor x) { return forward_step(x); });
  CompiledFunction backward = make_backward();

  for (int step = 0; step < 5; ++step) {
    const std::vector<float> x = random_floats(4);
    const Tensor made = one(tensor({4}, x));
    const Tensor between = context().eager([&] { return affine(made, 1, 5); });
    const auto [a, b] = two(between);
    EXPECT_EQ(values(backward(a, b)), gradient_of(affine_of(affine_of(x, 2, 0), 1, 5)));
  }

  EXPECT_EQ(recording_count(), 3u);
  EXPECT_EQ(backward.stats().replays, 3u);
}

// Row 71 dynamic_backward: the shape of forward and backward varies from step to step.
// Acceptance: trees 71.
TEST_P(AcceptancePairsTest, PairsOfVaryingShapeAreWhatEagerPairsAre) {
  CompiledFunction forward = make_forward();
  CompiledFunction backward = make_backward();

  for (int step = 0; step < 24; ++step) {
    const std::int64_t size = 1 + static_cast<std::int64_t>(random_() % 4);
    const std::vector<float> x = random_floats(size);
    const auto [a, b] = forward(tensor({size}, x));
    EXPECT_EQ(values(backward(a, b)), gradient_of(x)) << "seed " << seed_;
  }

  EXPECT_LE(forward.stats().recordings, 4u);
  EXPECT_EQ(forward.stats().skipped() + backward.stats().skipped(), 0u);
}

// Records the streams for which segments are requested.
class StreamsOfSegments final : public SegmentSource {
 public:
  explicit StreamsOfSegments(Device device) : device_(device) {}

  void* allocate(std::size_t bytes, StreamId stream) override {
    seen_.insert(stream);
    return device_.allocate(bytes, stream);
  }
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override {
    device_.free(segment, bytes, stream);
  }
  const std::set<StreamId>& seen() const { return seen_; }

 private:
  DeviceSegmentSource device_;
  std::set<StreamId> seen_;
};

// Row 70 single_stream_use: all segments of the pools are of one stream, over four iterations.
// Acceptance: trees 70.
TEST_P(AcceptancePairsTest, AllMemoryOfAContextIsOfOneStream) {
  StreamsOfSegments segments(device());
  {
    Context mine(device(), {.segments = &segments});
    CompiledFunction forward =
        compile(mine, "forward", [](Tensor x) { return forward_step(affine(x, 1, 0)); });
    CompiledFunction backward =
        compile(mine, "backward", [](Tensor a, Tensor b) { return add(affine(a, 1, 0), b); });
    for (int iteration = 0; iteration < 4; ++iteration) {
      const std::vector<float> x = random_floats(1 << 20);
      const auto [a, b] = forward(tensor({1 << 20}, x));
      EXPECT_EQ(values(backward(a, b)), gradient_of(x));
    }
    EXPECT_EQ(backward.stats().replays, 2u);
  }

  EXPECT_EQ(segments.seen().size(), 1u);
}

// Row 82 storage_access_error: the error for the storage of a stale output names that output.
// Acceptance: trees 82.
TEST_P(AcceptancePairsTest, TheStorageOfAStaleOutputSaysWhatItHeld) {
  CompiledFunction f = compile(context(), "decode", [](Tensor x) { return affine(x, 2, 0); });
  for (int call = 0; call < 3; ++call) {
    const StorageRef storage = f(random_tensor({3})).storage();
    EXPECT_NO_THROW((void)storage->data());
    context().mark_step();
    try {
      (void)storage->data();
      FAIL() << "nothing was thrown";
    } catch (const StaleTensor& error) {
      EXPECT_THAT(std::string(error.message()), HasSubstr("output 0 of 'decode'"));
    }
  }
}

}  // namespace
}  // namespace cgtree::testing
