// Memory that the graph of a recording leaves, with the extensions that look at graphs.
#include "extensions/audit/audit_options.h"
#include "tests/cgtree/graph_memory_fixture.h"
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

}  // namespace
}  // namespace cgtree::testing
