// Inspections: the node of a planted fault is named, and no other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "cgtree/tree/engine.h"
#include "cgtree/values/group.h"
#include "extensions/flow/control_flow.h"
#include "extensions/inspect/inspect.h"
#include "extensions/scopes/scope.h"
#include "extensions/verify/verify.h"
#include "interop/device/code.h"
#include "interop/device/device_api.h"
#include "interop/random/random.h"
#include "simulator/strict_memory.h"
#include "tests/support/host_slot.h"
#include "tests/support/random_steps.h"
#include "tests/support/step_work.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kCount = 8;

// Memory of a device outside tensors, filled with zeros.
class Table {
 public:
  explicit Table(Device device) : device_(device) {
    check(api().alloc_data_space(device.id, kBytes, &data_), "allocate");
    const Stream stream(device);
    check(api().graphs()->memset(stream.ref().handle(), data_, 0, kBytes), "fill");
    stream.synchronize();
  }
  ~Table() { free(); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  void free() {
    if (data_ != nullptr) check(api().free_data_space(device_.id, data_), "free");
    data_ = nullptr;
  }
  void* data() const { return data_; }

 private:
  static constexpr std::size_t kBytes = kCount * sizeof(float);
  DeviceAPI& api() const { return device_api(device_); }

  const Device device_;
  void* data_ = nullptr;
};

class InspectTest : public TreeTest {
 protected:
  template <typename F, typename... Inputs>
  void expect_nothing(const F& f, const Inputs&... inputs) {
    const InspectionReport report = inspect(f, inputs...);
    EXPECT_EQ(report.why_not, "");
    EXPECT_FALSE(report.has_failed()) << to_string(report);
    EXPECT_THAT(report.suspects, IsEmpty()) << to_string(report);
    EXPECT_GT(report.nodes, 0u);
    EXPECT_EQ(report.runs, report.nodes);
    const CaptureComparison comparison = compare_captures(f, inputs...);
    EXPECT_EQ(comparison.why_not, "");
    EXPECT_EQ(comparison.difference, "");
    EXPECT_GT(comparison.nodes, 0u);
  }
};
CGTREE_ON_ALL_DEVICES(InspectTest);

// The root node comes first and the tail node last, independent of their numbers.
TEST_P(InspectTest, NodesDoTheWorkOfAReplayWithThePresentInputs) {
  const auto f = compile(context(), "f",
                         [](Tensor x, Tensor state) {
                           update(state, 2, 1);
                           return add(x, state);
                         },
                         {.inputs = {{}, {.is_mutated = true}}});
  prepare(f, random_tensor({kCount}), random_tensor({kCount}));
  const std::vector<float> before = random_floats(kCount);
  const Tensor state = tensor({kCount}, before);
  const Tensor x = random_tensor({kCount});

  expect_nothing(f, x, state);

  EXPECT_EQ(values(state), affine_of(before, 2, 1));
  EXPECT_EQ(f.stats().replays, 1u);
  const std::vector<float> next = affine_of(affine_of(before, 2, 1), 2, 1);
  std::vector<float> sum = values(x);
  for (std::size_t i = 0; i < sum.size(); ++i)
    sum[i] += next[i];
  EXPECT_EQ(values(f(x, state)), sum);
  EXPECT_EQ(values(state), next);
}

TEST_P(InspectTest, EachNodeRunsOnce) {
  const auto f = compile(context(), "f",
                         [](Tensor state) {
                           update(state, 2, 1);
                           return affine(state, 1, 0);
                         },
                         {.inputs = {{.is_static = true, .is_mutated = true}}});
  const Tensor state = random_tensor({kCount});
  prepare(f, state);
  const std::vector<float> expected = affine_of(values(state), 2, 1);
  expect_nothing(f, state);
  EXPECT_EQ(values(state), expected);
}

TEST_P(InspectTest, OutputsThatAreHeldStay) {
  const auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  std::vector<Tensor> held;
  std::vector<std::vector<float>> expected;
  for (int call = 0; call < 6; ++call) {
    const std::vector<float> x = random_floats(kCount);
    held.push_back(f(tensor({kCount}, x)));
    expected.push_back(affine_of(x, 2, 0));
  }
  (void)inspect(f, random_tensor({kCount}));
  for (std::size_t i = 0; i < held.size(); ++i)
    EXPECT_EQ(values(held[i]), expected[i]) << i;
}

// Each capture gets another address for this memory.
TEST_P(InspectTest, AGraphThatAllocatesIsNeitherRunNorCompared) {
  const auto f = compile(context(), "f", [](Tensor x) {
    const StreamRef stream = current_stream();
    const std::size_t bytes = kCount * sizeof(float);
    void* memory = nullptr;
    check(stream.graphs().allocate_in_order(stream.handle(), bytes, &memory), "allocate");
    check(stream.graphs().memset(stream.handle(), memory, 0, bytes), "clear");
    const Tensor y = affine(x, 2, 0);
    axpy(1, memory, y, kCount);
    check(stream.graphs().free_in_order(stream.handle(), memory), "free");
    return y;
  });
  const Tensor x = random_tensor({kCount});
  prepare(f, x);
  EXPECT_THAT(inspect(f, x).why_not, HasSubstr("an allocation of stream-ordered memory"));
  const CaptureComparison comparison = compare_captures(f, x);
  EXPECT_EQ(comparison.difference, "");
  EXPECT_THAT(comparison.why_not, HasSubstr("lies elsewhere in each capture"));
}

TEST_P(InspectTest, GeneratorsStayWhereTheyAre) {
  const Generator drawn(7);
  const Generator other(7);
  const auto f = compile(context(), "f", [&](Tensor x) { return add_noise(x, drawn); });
  const auto g = compile(context(), "g", [&](Tensor x) { return add_noise(x, other); });
  const Tensor x = random_tensor({kCount});
  prepare(f, x);
  prepare(g, x);
  expect_nothing(f, x);
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f(x)), values(g(x))) << call;
}

TEST_P(InspectTest, NothingIsNamedInRandomSteps) {
  for (int round = 0; round < 50; ++round) {
    const unsigned plan = random_();
    const auto f = compile(context(), "f", [plan, this](Tensor x, Tensor y) {
      std::mt19937 choices(plan);
      std::vector<Tensor> made{x, y};
      const auto any = [&] { return made[choices() % made.size()]; };
      const std::size_t count = 1 + choices() % 12;
      for (std::size_t i = 0; i < count; ++i) {
        const Scope scope("part " + std::to_string(i));
        switch (choices() % 4) {
          case 0:
            made.push_back(affine(any(), 2, 1));
            break;
          case 1:
            made.push_back(add(any(), any()));
            break;
          case 2: {
            made.push_back(affine(any(), 1, 0));
            update(made.back(), 3, -1);
            break;
          }
          default: {
            const Stream side(device());
            const Tensor from = any();
            side.ref().wait_for(current_stream());
            {
              const StreamScope on_side(side);
              made.push_back(affine(from, 2, 0));
            }
            current_stream().wait_for(side);
          }
        }
      }
      return made.back();
    });
    const Tensor x = random_tensor({kCount});
    const Tensor y = random_tensor({kCount});
    const std::vector<float> expected = values(f(x, y));
    prepare(f, x, y);
    if (f.stats().recordings == 0) continue;  // the function returns an input
    expect_nothing(f, x, y);
    EXPECT_EQ(values(f(x, y)), expected);
    if (HasFailure()) return;
  }
}

TEST_P(InspectTest, ForeignMemoryIsSuspected) {
  const Table table(device());
  const auto f = compile(context(), "f", [&](Tensor x) {
    const Scope scope("lookup");
    Tensor y = affine(x, 1, 0);
    axpy(1, table.data(), y, kCount);
    return y;
  });
  prepare(f, random_tensor({kCount}));

  const InspectionReport report = inspect(f, random_tensor({kCount}));

  EXPECT_FALSE(report.has_failed());
  ASSERT_EQ(report.suspects.size(), 1u);
  const InspectedNode& node = report.suspects[0];
  EXPECT_EQ(node.number, 1u);
  EXPECT_THAT(node.name, HasSubstr("axpy"));
  EXPECT_EQ(node.scope, "lookup");
  ASSERT_EQ(node.words.size(), 1u);
  EXPECT_EQ(node.words[0].parameter, 1u);
  EXPECT_EQ(node.words[0].value, reinterpret_cast<std::uintptr_t>(table.data()));
  EXPECT_FALSE(node.words[0].is_gone);
  EXPECT_THAT(to_string(report), AllOf(HasSubstr("memory that nothing keeps"),
                                       HasSubstr("in 'lookup'"), HasSubstr("parameter 1")));
}

TEST_P(InspectTest, WithoutARecordingThatFitsNothingRuns) {
  const auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  const auto expect_none = [&](std::int64_t count) {
    const InspectionReport report = inspect(f, random_tensor({count}));
    EXPECT_EQ(report.recording, 0u);
    EXPECT_EQ(report.runs, 0u);
    EXPECT_THAT(report.why_not, HasSubstr("no recording would be replayed"));
    EXPECT_THAT(compare_captures(f, random_tensor({count})).why_not,
                HasSubstr("no recording would be replayed"));
  };
  expect_none(kCount);
  prepare(f, random_tensor({kCount}));
  expect_none(kCount + 1);
}

TEST_P(InspectTest, RecordingsThatCannotBeRunNodeByNodeSayWhy) {
  const auto breaks = compile(context(), "f", [](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    eager_break([](const StepValues&) {});
    return affine(y, 2, 0);
  });
  const auto shares =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); }, {.max_switch_nodes = 4});
  const auto branches = compile(context(), "f", [](Tensor x, Tensor taken) {
    Tensor y = affine(x, 2, 0);
    branch(taken, [&] { update(y, 3, 1); });
    return y;
  });
  const Tensor x = random_tensor({kCount});
  const std::int32_t one = 1;
  const Tensor taken = from_host(Shape(), std::span(&one, 1), device());
  prepare(breaks, x);
  prepare(shares, x);
  prepare(branches, x, taken);

  EXPECT_THAT(inspect(breaks, x).why_not, HasSubstr("eager breaks"));
  EXPECT_THAT(compare_captures(breaks, x).why_not, HasSubstr("eager_break"));
  EXPECT_THAT(inspect(shares, x).why_not, HasSubstr("max_switch_nodes"));
  const InspectionReport report = inspect(branches, x, taken);
  if (branches.stats().recordings > 0) {
    EXPECT_THAT(report.why_not, HasSubstr("conditional node"));
  }
  EXPECT_EQ(report.runs, 0u);
}

// The nodes of bodies come between those of the graph, in the order of the audit.
TEST_P(InspectTest, ForeignMemoryBehindABranchIsSuspected) {
  const Table table(device());
  const auto f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 2, 0);
    branch(taken, [&] {
      const Scope scope("body");
      update(y, 3, 1);
      branch(taken, [&] { update(y, 1, 1); });
      update(y, 3, 1);
    });
    const Scope scope("behind");
    axpy(1, table.data(), y, kCount);
    return affine(y, 1, 0);
  });
  const Tensor x = random_tensor({kCount});
  const std::int32_t one = 1;
  const Tensor taken = from_host(Shape(), std::span(&one, 1), device());
  prepare(f, x, taken);
  if (f.stats().recordings == 0) GTEST_SKIP() << "the device has no conditional nodes";
  const InspectionReport report = inspect(f, x, taken);
  EXPECT_THAT(report.why_not, HasSubstr("conditional node"));
  ASSERT_EQ(report.suspects.size(), 1u) << to_string(report);
  EXPECT_THAT(report.suspects[0].name, HasSubstr("axpy"));
  EXPECT_EQ(report.suspects[0].scope, "behind");
  const CaptureComparison comparison = compare_captures(f, x, taken);
  EXPECT_THAT(comparison.why_not, HasSubstr("conditional nodes"));
  EXPECT_EQ(comparison.difference, "");
}

// A Group of one rank.
class Alone final : public Group {
 public:
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }
  void minimum(std::span<std::uint64_t>) override {}
};

TEST_P(InspectTest, CallsThatMayNotInspectAreRefused) {
  std::function<void()> inside = [] {};
  const auto f = compile(context(), "f", [&](Tensor x) {
    inside();
    return affine(x, 2, 0);
  });
  const Tensor x = random_tensor({kCount});
  inside = [&] { EXPECT_THROW((void)inspect(f, x), InvalidArgument); };
  (void)f(x);
  inside = [&] { std::thread([&] { EXPECT_THROW((void)inspect(f, x), ConcurrentUse); }).join(); };
  (void)f(random_tensor({kCount + 1}));
  inside = [] {};
  prepare(f, x);
  EXPECT_THROW((void)inspect(f, Tensor()), InvalidArgument);
  const Stream captured(device(), StreamKind::kNonBlocking);
  {
    const StreamScope on(captured);
    const Capture capture(captured, CaptureMode::kThreadLocal);
    EXPECT_THROW((void)inspect(f, x), CaptureError);
  }
  expect_nothing(f, x);
}

TEST_P(InspectTest, AGroupIsNotInspected) {
  make_context({.group = std::make_shared<Alone>()});
  const Tensor x = random_tensor({kCount});
  const auto g = compile(context(), "g", [](Tensor y) { return affine(y, 2, 0); });
  prepare(g, x);
  EXPECT_THROW((void)inspect(g, x), InvalidArgument);
}

TEST_P(InspectTest, AFunctionOutlivesItsContext) {
  const auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  {
    const Tensor x = random_tensor({kCount});
    prepare(f, x);
    context_.reset();
    expect_nothing(f, x);
  }
}

TEST_P(InspectTest, ThreeHundredNodesRun) {
  const auto f = compile(context(), "f", [](Tensor x) {
    for (int i = 0; i < 299; ++i)
      x = affine(x, 1, 1);
    return x;
  });
  const Tensor x = random_tensor({kCount});
  prepare(f, x);
  const InspectionReport report = inspect(f, x);
  EXPECT_EQ(report.runs, 300u);
}

// ---- Comparisons ----

TEST_P(InspectTest, AScalarThatHasChangedIsNamed) {
  float factor = 2;
  const auto f = compile(context(), "f", [&](Tensor x) {
    Tensor y = affine(x, 1, 0);
    const Scope scope("scaled");
    axpy(factor, x, y, kCount);
    return affine(y, 2, 0);
  });
  const Tensor x = random_tensor({kCount});
  prepare(f, x);
  expect_nothing(f, x);
  factor = 3;

  const CaptureComparison found = compare_captures(f, x);

  EXPECT_THAT(found.difference, AllOf(HasSubstr("node 1 of 3"),
                                      HasSubstr("parameter 0 has 0x40000000 where a new capture "
                                                "has 0x40400000")));
  ASSERT_TRUE(found.recorded);
  EXPECT_EQ(found.recorded->scope, "scaled");
  EXPECT_THAT(to_string(found), HasSubstr("axpy"));
}

TEST_P(InspectTest, AVerificationThatFailsOffersTheComparison) {
  make_context({.extensions = {verify({.every = 1})}});
  float factor = 2;
  const auto f = compile(context(), "f", [&](Tensor x) { return affine(x, factor, 0); });
  const Tensor x = random_tensor({kCount});
  prepare(f, x);
  factor = 3;
  try {
    (void)f(x);
    ADD_FAILURE() << "it differs";
  } catch (const VerifyError& error) {
    EXPECT_THAT(error.what(), HasSubstr("docs/inspect.md"));
  }
  EXPECT_THAT(compare_captures(f, x).difference, HasSubstr("node 0 of 1"));
}

TEST_P(InspectTest, APointerThatHasMovedIsNamed) {
  const Table first(device());
  const Table second(device());
  const Table* table = &first;
  const auto f = compile(context(), "f", [&](Tensor x) {
    Tensor y = affine(x, 1, 0);
    axpy(1, table->data(), y, kCount);
    return y;
  });
  const Tensor x = random_tensor({kCount});
  prepare(f, x);
  EXPECT_EQ(compare_captures(f, x).difference, "");
  table = &second;
  EXPECT_THAT(compare_captures(f, x).difference,
              AllOf(HasSubstr("node 1 of 2"), HasSubstr("parameter 1"), HasSubstr("foreign")));
}

TEST_P(InspectTest, ADrawThatIsNotPatchedIsNamed) {
  float drawn = 0;  // from a generator on the host
  const auto f = compile(context(), "f", [&](Tensor x) {
    Tensor y = affine(x, 1, 0);
    axpy(++drawn, x, y, kCount);
    return y;
  });
  const Tensor x = random_tensor({kCount});
  prepare(f, x);
  EXPECT_THAT(compare_captures(f, x).difference,
              AllOf(HasSubstr("node 1 of 2"), HasSubstr("parameter 0")));
}

TEST_P(InspectTest, AMissingEdgeIsNamed) {
  bool waits = false;
  const Tensor table = random_tensor({kCount});
  const auto f = compile(context(), "f", [&](Tensor x) {
    const Stream side(device());
    side.ref().wait_for(current_stream());
    const Tensor y = affine(x, 2, 0);
    if (waits) side.ref().wait_for(current_stream());
    {
      const StreamScope on_side(side);
      update(y, 1, 1);
    }
    current_stream().wait_for(side);
    return y;
  });
  const Tensor x = random_tensor({kCount});
  prepare(f, x);
  EXPECT_EQ(compare_captures(f, x).difference, "");
  waits = true;
  EXPECT_THAT(compare_captures(f, x).difference,
              AllOf(HasSubstr("node 1 of 2"), HasSubstr("waits for other nodes")));
}

TEST_P(InspectTest, OtherKernelsAndOtherNumbersOfNodesAreNamed) {
  int mode = 0;
  const auto f = compile(context(), "f", [&](Tensor x) {
    Tensor y = affine(x, 2, 0);
    if (mode == 1) return add(y, y);
    y = affine(y, 2, 0);
    return mode == 2 ? affine(y, 1, 1) : y;
  });
  const Tensor x = random_tensor({kCount});
  prepare(f, x);
  mode = 1;
  EXPECT_THAT(compare_captures(f, x).difference,
              AllOf(HasSubstr("node 1 of 2"), HasSubstr("where a new capture has kernel")));
  mode = 2;
  EXPECT_THAT(compare_captures(f, x).difference,
              HasSubstr("it has 2 nodes of the step, and a new capture 3"));
  mode = 0;
  expect_nothing(f, x);
}

TEST_P(InspectTest, WorkThatCannotBeReadIsCounted) {
  const auto nothing = [](void*) {};
  const auto f = compile(context(), "f", [&](Tensor x) {
    const StreamRef stream = current_stream();
    check(stream.graphs().launch_host_function(stream.handle(), nothing, nullptr), "call");
    return affine(x, 2, 0);
  });
  const Tensor x = random_tensor({kCount});
  prepare(f, x);
  const CaptureComparison found = compare_captures(f, x);
  EXPECT_EQ(found.nodes, 2u);
  EXPECT_EQ(found.unread, 1u);
  EXPECT_THAT(to_string(found), HasSubstr("the same 2 nodes, of which 1 cannot be read"));
}

// ---- On the host device in strict mode ----

class StrictInspectTest : public ::testing::TestWithParam<HostExecutor> {
 protected:
  StrictInspectTest() {
    HostSlot::instance().put(*host_.device);
    context_.emplace(HostSlot::instance().device());
    table_.emplace(device());
  }
  ~StrictInspectTest() override {
    table_.reset();
    context_.reset();
    (void)host_.memory->take_findings();
    HostSlot::instance().put(host_device_api());
  }

  Device device() const { return HostSlot::instance().device(); }
  Tensor ones() const {
    const std::vector<float> values(kCount, 1);
    return from_host({kCount}, std::span<const float>(values), device());
  }

  StrictHostDevice host_ = make_strict_host_device({.executor = GetParam(), .seed = 1});
  std::optional<Context> context_;
  std::optional<Table> table_;
};

TEST_P(StrictInspectTest, AStalePointerInNode173Of300IsNamed) {
  const auto f = compile(*context_, "f", [table = table_->data()](Tensor x) {
    Tensor y = affine(x, 1, 0);
    for (int i = 1; i < 299; ++i) {
      const Scope scope("layer " + std::to_string(i));
      i == 173 ? axpy(1, table, y, kCount) : update(y, 1, 0);
    }
    return y;
  });
  const Tensor x = ones();
  for (int call = 0; call < 3; ++call)
    (void)f(x);
  context_->synchronize();
  table_->free();

  const InspectionReport report = inspect(f, x);

  ASSERT_TRUE(report.has_failed()) << to_string(report);
  EXPECT_EQ(report.failed->number, 173u);
  EXPECT_EQ(report.runs, 174u);  // the root and the nodes before the failure
  EXPECT_EQ(report.failed->scope, "layer 173");
  EXPECT_THAT(report.failed->name, HasSubstr("axpy"));
  EXPECT_THAT(report.error, HasSubstr("cudaErrorIllegalAddress"));
  ASSERT_EQ(report.failed->words.size(), 4u);
  EXPECT_TRUE(report.failed->words[1].is_gone);
  EXPECT_EQ(report.failed->words[2].memory, "output 0");
  EXPECT_EQ(report.failed->words[3].value, static_cast<std::uint64_t>(kCount));
  EXPECT_EQ(report.failed->words[3].memory, "");
  ASSERT_EQ(report.suspects.size(), 1u);
  EXPECT_THAT(to_string(report), AllOf(HasSubstr("node 173 of 300 has failed, 174 have run"),
                                       HasSubstr("freed since the capture")));
}

TEST_P(StrictInspectTest, AFreedWorkspaceOfAMemsetIsNamed) {
  const auto f = compile(*context_, "f", [table = table_->data()](Tensor x) {
    Tensor y = affine(x, 1, 0);
    const StreamRef stream = current_stream();
    check(stream.graphs().memset(stream.handle(), table, 0, kCount), "clear the workspace");
    return affine(y, 1, 0);
  });
  const Tensor x = ones();
  for (int call = 0; call < 3; ++call)
    (void)f(x);
  context_->synchronize();
  EXPECT_FALSE(inspect(f, x).has_failed());
  table_->free();

  const InspectionReport report = inspect(f, x);

  ASSERT_TRUE(report.has_failed());
  EXPECT_EQ(report.runs, 0u);
  EXPECT_EQ(report.failed->number, 1u);
  EXPECT_EQ(report.failed->name, "a memset");
  EXPECT_THAT(report.error, HasSubstr("cudaErrorInvalidValue"));
  EXPECT_THAT(to_string(report), HasSubstr("destination"));
}

std::string executor_name(const ::testing::TestParamInfo<HostExecutor>& info) {
  static constexpr const char* kNames[] = {"Inline", "Threads", "Random"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Executors, StrictInspectTest,
                         ::testing::Values(HostExecutor::kInline, HostExecutor::kThreads,
                                           HostExecutor::kRandom),
                         executor_name);

}  // namespace
}  // namespace cgtree::testing
