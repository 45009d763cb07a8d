// Streams of partitions of a device's processors (green contexts): each call runs in its partition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/error.h"
#include "cgtree/compile.h"
#include "cgtree/context.h"
#include "cgtree/steps.h"
#include "interop/device/code.h"
#include "interop/tensor/tensor.h"
#include "simulator/host_device.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/host_slot.h"
#include "tests/support/steps.h"

namespace cgtree::testing {
namespace {

// A host device whose streams belong to partitions.
class PartitionedDevice : public ForwardingDevice {
 public:
  PartitionedDevice() : ForwardingDevice(host_device_api(), hook_) {}

  void put(StreamRef stream, std::uint64_t partition) { partitions_[stream.handle()] = partition; }
  Code stream_partition(StreamHandle stream, std::uint64_t* partition) override {
    const auto found = partitions_.find(stream);
    *partition = found == partitions_.end() ? 0 : found->second;
    return Code::kSuccess;
  }

 private:
  CallHook hook_;
  std::map<StreamHandle, std::uint64_t> partitions_;
};

class PartitionsTest : public ::testing::Test {
 protected:
  void SetUp() override { HostSlot::instance().put(partitioned_); }
  void TearDown() override { HostSlot::instance().put(host_device_api()); }

  Device device() const { return HostSlot::instance().device(); }
  Tensor zeros() const { return from_host<float>({3}, std::vector<float>(3), device()); }
  // Returns a function that notes the partition of each stream on which its work is enqueued or
  // captured.
  auto noting(Context& context, std::vector<std::uint64_t>& seen) {
    return compile(context, "f", [&](Tensor x) {
      std::uint64_t partition = 0;
      check(partitioned_.stream_partition(current_stream().handle(), &partition), "ask");
      seen.push_back(partition);
      return affine(x, 2, 1);
    });
  }

  PartitionedDevice partitioned_;
};

TEST_F(PartitionsTest, ACallOnAStreamOfAPartitionRunsThereWithoutAGraph) {
  const Stream part(device()), whole(device());
  partitioned_.put(part, 16);
  Context context(device());
  std::vector<std::uint64_t> seen;
  const auto f = noting(context, seen);
  const Tensor x = zeros();
  for (int call = 0; call < 4; ++call)
    (void)f(x);
  EXPECT_EQ(f.stats().replays, 2u);
  seen.clear();

  {
    const StreamScope scope(part);
    for (int call = 0; call < 3; ++call) {
      EXPECT_EQ(f(x).to_vector<float>(), std::vector<float>(3, 1));
      EXPECT_EQ(f.last_outcome()->skip_reason, SkipReason::kOtherPartition);
    }
  }
  for (int call = 0; call < 2; ++call) {  // in a new scope each time
    const StreamScope scope(part);
    (void)context.eager([&] { return affine(x, 1, 1); });
    (void)f(x);
    EXPECT_EQ(f.last_outcome()->skip_reason, SkipReason::kOtherPartition);
  }
  EXPECT_EQ(seen, std::vector<std::uint64_t>(5, 16));

  (void)f(x);
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
  const StreamScope scope(whole);
  (void)f(x);
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
  EXPECT_EQ(f.stats().recordings, 1u);
}

TEST_F(PartitionsTest, AContextWithAStreamOfAPartitionRecordsAndReplaysThere) {
  const Stream part(device()), also(device()), other(device()), whole(device());
  partitioned_.put(part, 16);
  partitioned_.put(also, 16);
  partitioned_.put(other, 8);
  Context context(device(), {.stream = part.ref()});
  std::vector<std::uint64_t> seen;
  const auto f = noting(context, seen);
  const Tensor x = zeros();
  for (int call = 0; call < 4; ++call)
    (void)f(x);
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{16, 16}));
  EXPECT_EQ(f.stats().replays, 2u);

  {
    const StreamScope scope(also);
    (void)f(x);
    EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
  }
  for (const Stream* const stream : {&other, &whole}) {
    const StreamScope scope(*stream);
    (void)f(x);
    EXPECT_EQ(f.last_outcome()->skip_reason, SkipReason::kOtherPartition);
  }
}

TEST_F(PartitionsTest, StepsReplayInTheirPartitionOnly) {
  const Stream part(device()), whole(device());
  partitioned_.put(part, 16);
  const Tensor x = zeros();
  const Binding binding{x.data(), x.bytes()};
  for (const bool is_home : {false, true}) {
    Context context(device(), {.stream = is_home ? part.ref() : whole.ref()});
    Steps steps(context, "engine", {.bindings = {{.name = "x", .is_mutated = true}}});
    const auto outcome_on = [&](const Stream& stream) {
      for (Step step = steps.begin(Key(), {&binding, 1}, stream); step.must_run(); step.end())
        update(x, 1, 1);
      return steps.last_outcome()->outcome;
    };
    const Stream& own = is_home ? part : whole;
    const Stream& other = is_home ? whole : part;
    for (int call = 0; call < 3; ++call)
      (void)outcome_on(own);
    EXPECT_EQ(outcome_on(own), Outcome::kReplay);
    EXPECT_EQ(outcome_on(other), Outcome::kRunEagerly);
    EXPECT_EQ(steps.last_outcome()->skip_reason, SkipReason::kOtherPartition);
    EXPECT_EQ(outcome_on(other), Outcome::kRunEagerly);
    EXPECT_EQ(outcome_on(own), Outcome::kReplay);
  }
}

TEST_F(PartitionsTest, APaddedCallOnAStreamOfAPartitionIsNotReplayedEither) {
  const Stream part(device());
  partitioned_.put(part, 16);
  Context context(device());
  CompileOptions options;
  options.inputs = {{.dynamic = {{0, "n"}}}};
  options.outputs = {{.dynamic = {{0, "n"}}}};
  options.buckets = {{"n", {4, 8}}};
  const auto f = compile(
      context, "f", [](Tensor x) { return affine(x, 2, 1); }, options);
  const Tensor x = zeros();
  for (int call = 0; call < 4; ++call)
    (void)f(x);
  const StreamScope scope(part);
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(f(x).to_vector<float>(), std::vector<float>(3, 1));
    EXPECT_EQ(f.last_outcome()->skip_reason, SkipReason::kOtherPartition);
  }
}

TEST_F(PartitionsTest, ACheckedContextInAPartitionIsRefusedByName) {
  const Stream part(device());
  partitioned_.put(part, 16);
  try {
    Context context(device(), {.stream = part.ref(), .checked = true});
    FAIL() << "it would capture outside of the partition";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.message(), ::testing::HasSubstr("green context"));
  }
}

}  // namespace
}  // namespace cgtree::testing
