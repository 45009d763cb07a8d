// Checks a context's invariants, and that nothing is left after its end.
#include "tests/support/core_fixture.h"

#include <cstdio>

namespace cgtree::testing {

void TreeTest::TearDown() {
  if (!context_) return;
  EXPECT_EQ(context_->stats().live_outputs, persistent_);
  validate();
  const std::weak_ptr<Engine> engine = context_->share_engine();
  context_.reset();
  EXPECT_TRUE(engine.expired());
  if (persistent_ == 0) {
    EXPECT_EQ(segments_->held(), 0);
  }
  if (HasFailure()) std::fprintf(stderr, "seed %u\n", seed_);
}

void TreeTest::validate() {
  cgtree::testing::validate(context());
}

std::size_t TreeTest::recording_count() {
  return recordings_of(context());
}

bool TreeTest::owns(const void* address) {
  return cgtree::testing::owns(context(), address);
}

}  // namespace cgtree::testing
