// Looks inside a context, and shows that nothing of it is left.
#include "tests/support/core_fixture.h"

#include <cstdio>

#include "cgtree/tree/tree_manager.h"

namespace cgtree::testing {

void TreeTest::TearDown() {
  if (!context_) return;
  EXPECT_EQ(context_->stats().live_outputs, persistent_);
  manager()->validate();
  const std::weak_ptr<TreeManager> manager = context_->share_manager();
  context_.reset();
  EXPECT_TRUE(manager.expired());
  if (persistent_ == 0) {
    EXPECT_EQ(segments_->held(), 0);
  }
  if (HasFailure()) std::fprintf(stderr, "seed %u\n", seed_);
}

}  // namespace cgtree::testing
