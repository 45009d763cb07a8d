// Memory that the graph of a recording leaves allocated, with the extensions that read graphs.
#include <chrono>

#include "extensions/audit/audit_options.h"
#include "extensions/ranks/group.h"
#include "tests/cgtree/graph_memory_fixture.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

class GraphMemoryAuditTest : public GraphMemoryTest {};
CGTREE_ON_ALL_DEVICES(GraphMemoryAuditTest);

TEST_P(GraphMemoryAuditTest, TheAuditTakesItForMemoryOfTheRecording) {
  make_context({.extensions = {audit({.on_foreign_pointer = OnForeignPointer::kThrow})}});
  Steps steps = make_steps();
  EXPECT_EQ(call(steps, 2, /*frees_another=*/true), Outcome::kWarmUp);
  EXPECT_EQ(call(steps, 2, /*frees_another=*/true), Outcome::kRecord);
  EXPECT_EQ(call(steps, 2), Outcome::kReplay);
}

TEST_P(GraphMemoryAuditTest, RecordingsThatLeaveMemoryShareNoExecutableGraph) {
  Steps steps = make_steps({.max_switch_nodes = 100, .keeps_allocations = true});
  for (int round = 0; round < 4; ++round) {
    for (const int draft : {1, 2})
      EXPECT_EQ(call(steps, draft), round == 0   ? Outcome::kWarmUp
                                    : round == 1 ? Outcome::kRecord
                                                 : Outcome::kReplay);
  }
}

// The graphs of all ranks are then launched once, and not kept.
TEST_P(GraphMemoryAuditTest, AGraphOfAGroupLeavesItsMemoryToTheEngineIfAnotherRankKeepsATensor) {
  constexpr int kRanks = 2;
  auto groups = make_thread_groups(kRanks, std::chrono::seconds(20));
  run_on_ranks(kRanks, [&](int rank) {
    const Device on = device_of_rank(device(), rank);
    Context context(on, {.group = std::shared_ptr<Group>(std::move(groups[rank]))});
    Steps steps(context, "decode", {.bindings = {{.name = "x"}}, .keeps_allocations = true});
    const std::vector<float> numbers(kCount, 3);
    const Tensor x = from_host<float>({kCount}, numbers, on);
    Tensor kept;
    for (const Outcome outcome : {Outcome::kWarmUp, Outcome::kRunEagerly, Outcome::kRunEagerly}) {
      const Binding bound[] = {{reinterpret_cast<const void*>(x.address()), x.bytes()}};
      void* left = nullptr;
      Step step = steps.begin({}, bound);
      for (; step.must_run(); step.end()) {
        left = forward(2, step.address(0), false);
        if (rank == 1) kept = empty({4}, DType::kFloat32);
      }
      EXPECT_EQ(step.outcome(), outcome);
      std::vector<float> found(kCount);
      const StreamRef stream = context.stream();
      check(stream.api().copy(stream.handle(), found.data(), left, kBytes), "copy");
      stream.synchronize();
      EXPECT_EQ(found, affine_of(numbers, 2, 0)) << rank;
      EXPECT_EQ(stream.graphs().free_in_order(stream.handle(), left), Code::kSuccess) << rank;
    }
    kept = Tensor();
  });
}

}  // namespace
}  // namespace cgtree::testing
