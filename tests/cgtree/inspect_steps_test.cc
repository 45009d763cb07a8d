// Inspections of an engine's Steps, and of recordings whose inputs are rebound: they use the memory
// of the call, and name planted faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cgtree/steps.h"
#include "extensions/inspect/inspect.h"
#include "extensions/scopes/scope.h"
#include "interop/device/code.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "simulator/strict_memory.h"
#include "tests/support/host_slot.h"
#include "tests/support/step_work.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Addresses = std::span<void* const>;

constexpr std::int64_t kCount = 96;

std::vector<void*> addresses_of(const Step& step, std::size_t count) {
  std::vector<void*> addresses;
  for (std::size_t i = 0; i < count; ++i)
    addresses.push_back(step.address(i));
  return addresses;
}

// One step: cache += tokens + weights + block.
void forward(Addresses at) {
  axpy(1, at[0], at[1], kCount);
  const Scope scope("weights");
  axpy(1, at[2], at[1], kCount);
  axpy(1, at[3], at[1], 1);
}

class InspectStepsTest : public TreeTest {
 protected:
  void SetUp() override {
    TreeTest::SetUp();
    if (IsSkipped()) return;
    weights_ = tensor({kCount}, std::vector<float>(kCount, 2));
    tokens_ = tensor({kCount}, std::vector<float>(kCount, 1));
  }
  void TearDown() override {
    weights_ = Tensor();
    tokens_ = Tensor();
    TreeTest::TearDown();
  }

  Steps make_steps(bool is_per_session = true) {
    return Steps(
        context(), "decode",
        {.bindings = {{.name = "tokens", .is_copied = true},
                      {.name = "cache", .is_mutated = true, .is_per_session = is_per_session},
                      {.name = "weights"},
                      {.name = "block", .host_bytes = sizeof(float)}}});
  }
  Tensor new_cache() { return tensor({kCount}, std::vector<float>(kCount, 0)); }
  std::vector<Binding> bindings(const Tensor& cache) {
    return {
        binding_of(tokens_), binding_of(cache), binding_of(weights_), {&block_, sizeof(block_)}};
  }
  // Returns the number of times that the work was enqueued.
  template <typename Work>
  int call(Steps& steps, const Tensor& cache, const Work& work) {
    int runs = 0;
    const std::vector<Binding> bound = bindings(cache);
    for (Step step = steps.begin({}, bound); step.must_run(); step.end()) {
      work(addresses_of(step, bound.size()));
      ++runs;
    }
    context().synchronize();
    return runs;
  }
  // The cache after one more step.
  std::vector<float> next(std::vector<float> cache) const {
    for (float& value : cache)
      value += 3;
    cache[0] += block_;
    return cache;
  }
  void expect_nothing(Steps& steps, const Tensor& cache) {
    const std::vector<float> expected = next(values(cache));
    const InspectionReport report = inspect(steps, {}, bindings(cache));
    EXPECT_EQ(report.why_not, "");
    EXPECT_FALSE(report.has_failed()) << to_string(report);
    EXPECT_THAT(report.suspects, IsEmpty()) << to_string(report);
    EXPECT_EQ(report.runs, report.nodes);
    EXPECT_EQ(values(cache), expected);
    const CaptureComparison comparison = compare_captures(steps, {}, bindings(cache), forward);
    EXPECT_EQ(comparison.why_not, "");
    EXPECT_EQ(comparison.difference, "");
    EXPECT_EQ(comparison.nodes, 3u);
    EXPECT_EQ(values(cache), expected);
  }
  void expect_replay(Steps& steps, const Tensor& cache) {
    const std::vector<float> expected = next(values(cache));
    EXPECT_EQ(call(steps, cache, forward), 0);
    EXPECT_EQ(values(cache), expected);
  }

  Tensor weights_;
  Tensor tokens_;
  float block_ = 5;
};
CGTREE_ON_ALL_DEVICES(InspectStepsTest);

TEST_P(InspectStepsTest, AnInspectionDoesTheWorkOfAReplayWithTheBindingsOfTheCall) {
  Steps steps = make_steps(/*is_per_session=*/false);
  const Tensor cache = new_cache();
  call(steps, cache, forward);
  EXPECT_THAT(inspect(steps, {}, bindings(cache)).why_not, HasSubstr("no recording"));
  EXPECT_THAT(compare_captures(steps, {}, bindings(cache), forward).why_not,
              HasSubstr("no recording"));
  call(steps, cache, forward);
  tokens_ = tensor({kCount}, std::vector<float>(kCount, 1));
  block_ = 7;
  expect_nothing(steps, cache);
  expect_replay(steps, cache);
  EXPECT_EQ(steps.stats().replays, 1u);
  const Stream stream(device());
  const std::vector<float> expected = next(values(cache));
  EXPECT_FALSE(inspect(steps, {}, bindings(cache), stream).has_failed());
  EXPECT_EQ(values(cache), expected);
}

TEST_P(InspectStepsTest, ARecordingOfAllSessionsUsesTheMemoryOfTheSessionOfTheCall) {
  Steps steps = make_steps();
  const Tensor a = new_cache(), b = new_cache(), c = new_cache();
  for (const Tensor& cache : {a, a, b})
    EXPECT_EQ(call(steps, cache, forward), 1);
  ASSERT_EQ(steps.stats().recordings, 1u);
  for (int round = 0; round < 20; ++round) {
    const Tensor caches[] = {a, b, c};
    const Tensor& inspected = caches[random_() % 3];
    std::vector<std::vector<float>> before;
    for (const Tensor& cache : caches)
      before.push_back(values(cache));
    expect_nothing(steps, inspected);
    for (std::size_t i = 0; i < before.size(); ++i)
      before[i] = caches[i].address() == inspected.address() ? next(before[i]) : before[i];
    for (std::size_t i = 0; i < before.size(); ++i)
      EXPECT_EQ(values(caches[i]), before[i]);
    if (random_() % 2 == 0) expect_replay(steps, caches[random_() % 3]);
    if (HasFailure()) return;
  }
}

TEST_P(InspectStepsTest, AWordOfASessionIsThatOfTheCall) {
  Steps steps = make_steps();
  float factor = 1;
  const auto work = [&](Addresses at) {
    forward(at);
    axpy(factor, at[2], at[1], kCount);
  };
  const Tensor a = new_cache(), b = new_cache(), c = new_cache();
  for (const Tensor& cache : {a, a, b})
    EXPECT_EQ(call(steps, cache, work), 1);
  EXPECT_EQ(compare_captures(steps, {}, bindings(c), work).difference, "");
  factor = 2;

  const CaptureComparison found = compare_captures(steps, {}, bindings(c), work);

  EXPECT_THAT(found.difference, AllOf(HasSubstr("node 3 of 4"), HasSubstr("parameter 0")));
  ASSERT_TRUE(found.recorded);
  EXPECT_EQ(found.recorded->words[2].value, c.address());
  EXPECT_EQ(found.recorded->words[2].memory, "binding 1 'cache'");
  EXPECT_FALSE(found.recorded->words[2].is_foreign);
}

// The host chooses the place in the cache to write.
TEST_P(InspectStepsTest, AnotherPlaceInACheckedBindingIsNamed) {
  for (const bool is_per_session : {false, true}) {
    Steps steps = make_steps(is_per_session);
    std::size_t row = 16;
    const auto work = [&](Addresses at) {
      axpy(1, at[0], at[1], kCount);
      axpy(1, at[2], static_cast<float*>(at[1]) + row, 8);
      axpy(1, at[3], at[1], 1);
    };
    const Tensor a = new_cache(), b = new_cache();
    for (int i = 0; i < 2; ++i)
      call(steps, a, work);
    call(steps, is_per_session ? b : a, work);
    EXPECT_EQ(compare_captures(steps, {}, bindings(a), work).difference, "");
    row = 8;
    EXPECT_THAT(compare_captures(steps, {}, bindings(a), work).difference,
                AllOf(HasSubstr("node 1 of 3: parameter 2"), HasSubstr("binding 1 'cache'")));
  }
}

TEST_P(InspectStepsTest, WorkThatThrowsIsAReason) {
  Steps steps = make_steps();
  const Tensor cache = new_cache();
  for (int i = 0; i < 2; ++i)
    call(steps, cache, forward);
  const auto throws = [](Addresses) { throw std::runtime_error("out of blocks"); };
  EXPECT_THAT(compare_captures(steps, {}, bindings(cache), throws).why_not,
              HasSubstr("a new capture has failed: out of blocks"));
  expect_nothing(steps, cache);
}

TEST_P(InspectStepsTest, CallsThatBeginWouldRefuseAreRefused) {
  Steps steps = make_steps();
  const Tensor cache = new_cache();
  const std::vector<Binding> bound = bindings(cache);
  Step step = steps.begin({}, bound);
  EXPECT_THROW((void)inspect(steps, {}, bound), InvalidArgument);
  EXPECT_THROW((void)compare_captures(steps, {}, bound, forward), InvalidArgument);
  forward(addresses_of(step, bound.size()));
  step.end();
  call(steps, cache, forward);
  std::vector<Binding> wrong = bound;
  wrong[1].address = nullptr;
  EXPECT_THROW((void)inspect(steps, {}, wrong), InvalidArgument);
  wrong = bound;
  wrong[0] = {wrong[1].address, wrong[1].bytes};  // the binding that is written
  EXPECT_THROW((void)inspect(steps, {}, wrong), InvalidArgument);
  const Stream captured(device(), StreamKind::kNonBlocking);
  {
    const Capture capture(captured, CaptureMode::kThreadLocal);
    EXPECT_THROW((void)inspect(steps, {}, bound, captured), CaptureError);
  }
  expect_nothing(steps, cache);
}

// ---- Inputs of functions that are rebound ----

TEST_P(InspectStepsTest, ReboundInputsAreUsedWhereTheyAre) {
  const auto f = compile(
      context(), "f",
      [](Tensor x, Tensor state) {
        update(state, 2, 1);
        return add(x, state);
      },
      {.inputs = {{.rebind = Rebind::kAlways}, {.is_mutated = true, .rebind = Rebind::kAlways}}});
  std::vector<Tensor> states;
  for (int i = 0; i < 3; ++i)
    states.push_back(random_tensor({kCount}));
  for (int i = 0; i < 3; ++i)
    (void)f(random_tensor({kCount}), states[0]);
  for (int round = 0; round < 12; ++round) {
    const Tensor& state = states[random_() % 3];
    const Tensor x = random_tensor({kCount});
    std::vector<float> expected = affine_of(values(state), 2, 1);
    const InspectionReport report = inspect(f, x, state);
    EXPECT_EQ(report.why_not, "");
    EXPECT_EQ(report.runs, report.nodes);
    EXPECT_THAT(report.suspects, IsEmpty());
    EXPECT_EQ(values(state), expected);
    EXPECT_EQ(compare_captures(f, x, state).difference, "");
    if (random_() % 2 == 0) continue;
    const Tensor& other = states[random_() % 3];
    std::vector<float> sum = affine_of(values(other), 2, 1);
    const std::vector<float> added = values(x);
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += added[i];
    EXPECT_EQ(values(f(x, other)), sum);
    EXPECT_EQ(f.stats().recordings, 1u);
    if (HasFailure()) return;
  }
}

// ---- On the host device in strict mode ----

// Parameter: one recording per session, or one for all sessions.
class StrictInspectStepsTest : public ::testing::TestWithParam<bool> {
 protected:
  StrictInspectStepsTest() {
    HostSlot::instance().put(*host_.device);
    context_.emplace(device());
    check(api().alloc_data_space(device().id, kBytes, &table_), "allocate");
    check(api().graphs()->memset(context_->stream().handle(), table_, 0, kBytes), "fill");
  }
  ~StrictInspectStepsTest() override {
    context_.reset();
    (void)host_.memory->take_findings();
    HostSlot::instance().put(host_device_api());
  }

  static constexpr std::size_t kBytes = kCount * sizeof(float);
  Device device() const { return HostSlot::instance().device(); }
  DeviceAPI& api() const { return device_api(device()); }
  Tensor zeros() const {
    return from_host<float>({kCount}, std::vector<float>(kCount, 0), device());
  }

  StrictHostDevice host_ = make_strict_host_device({.executor = HostExecutor::kInline, .seed = 1});
  std::optional<Context> context_;
  void* table_ = nullptr;
};

TEST_P(StrictInspectStepsTest, AStalePointerIsNamedWithItsScope) {
  Steps steps(*context_, "decode",
              {.bindings = {{.name = "cache", .is_mutated = true, .is_per_session = GetParam()}}});
  const Tensor a = zeros(), b = zeros();
  const auto work = [&](void* cache) {
    for (int i = 0; i < 20; ++i) {
      const Scope scope("layer " + std::to_string(i));
      axpy(1, i == 13 ? table_ : cache, cache, kCount);
    }
  };
  for (const Tensor& cache : {a, a, b, b}) {
    const Binding bound[] = {binding_of(cache)};
    for (Step step = steps.begin({}, bound); step.must_run(); step.end())
      work(step.address(0));
    context_->synchronize();
  }
  ASSERT_EQ(steps.stats().recordings, GetParam() ? 1u : 2u);
  const Binding bound[] = {binding_of(b)};
  EXPECT_FALSE(inspect(steps, {}, bound).has_failed());
  check(api().free_data_space(device().id, table_), "free");

  const InspectionReport report = inspect(steps, {}, bound);

  ASSERT_TRUE(report.has_failed()) << to_string(report);
  EXPECT_EQ(report.failed->number, 13u);
  EXPECT_EQ(report.failed->scope, "layer 13");
  ASSERT_EQ(report.failed->words.size(), 4u);
  EXPECT_TRUE(report.failed->words[1].is_gone);
  EXPECT_EQ(report.failed->words[2].value, b.address());
  EXPECT_EQ(report.failed->words[2].memory, "binding 0 'cache'");
  ASSERT_EQ(report.suspects.size(), 1u);
  EXPECT_EQ(report.suspects[0].number, 13u);
}

INSTANTIATE_TEST_SUITE_P(PerSession, StrictInspectStepsTest, ::testing::Bool());

}  // namespace
}  // namespace cgtree::testing
