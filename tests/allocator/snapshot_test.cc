// What a snapshot says of pools, and which lists of pools it refuses.
#include "caching/reports/snapshot.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

class SnapshotTest : public testing::Test {
 protected:
  ~SnapshotTest() override { pool_.restore_live({}); }

  FakeSegmentSource source_;
  Pool pool_{source_, {.stream = 5}};
};

TEST_F(SnapshotTest, OfNoPoolsIsEmpty) {
  EXPECT_TRUE(take_snapshot({}).segments.empty());
}

TEST_F(SnapshotTest, SumsAreThoseOfTheStatistics) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 300; ++i) {
    void* const block = pool_.allocate(1 + random() % (random() % 9 == 0 ? 9'000'000 : 9'000));
    if (random() % 2 == 0) pool_.free(block);
  }

  const PoolToSnapshot pools[] = {{&pool_, {}}};
  const MemorySnapshot snapshot = take_snapshot(pools);

  std::size_t reserved = 0, active = 0, requested = 0, live = 0;
  for (const SnapshotSegment& segment : snapshot.segments) {
    reserved += segment.total_size;
    active += segment.active_size;
    requested += segment.requested_size;
    for (const SnapshotBlock& block : segment.blocks)
      live += block.requested_size > 0;
  }
  const PoolStatistics statistics = pool_.statistics();
  EXPECT_EQ(reserved, statistics.reserved_bytes.current);
  EXPECT_EQ(active, statistics.allocated_bytes.current);
  EXPECT_EQ(requested, statistics.requested_bytes.current);
  EXPECT_EQ(live, statistics.allocation.current);
}

TEST_F(SnapshotTest, LeavesThePoolAsItIs) {
  pool_.allocate(700);
  const PoolStatistics before = pool_.statistics();
  const PoolToSnapshot pools[] = {{&pool_, {}}};

  take_snapshot(pools);

  EXPECT_EQ(pool_.statistics(), before);
}

TEST_F(SnapshotTest, KeepsTheOrderOfThePools) {
  FakeSegmentSource other_source;
  Pool other(other_source);
  void* const block = other.allocate(1);
  pool_.allocate(std::size_t{3} << 20);
  const PoolToSnapshot pools[] = {{&pool_, {1, 0}}, {&other, {0, 0}}};

  const MemorySnapshot snapshot = take_snapshot(pools);

  ASSERT_EQ(snapshot.segments.size(), 2u);
  EXPECT_EQ(snapshot.segments[0].pool.id, 1u);
  EXPECT_EQ(snapshot.segments[0].stream, 5u);
  EXPECT_FALSE(snapshot.segments[0].is_small);
  EXPECT_TRUE(snapshot.segments[1].is_small);
  other.free(block);
}

TEST_F(SnapshotTest, RefusesPoolsItCannotTellApart) {
  FakeSegmentSource other_source;
  Pool other(other_source);
  const PoolToSnapshot twice[] = {{&pool_, {0, 0}}, {&pool_, {1, 0}}};
  const PoolToSnapshot same_label[] = {{&pool_, {0, 0}}, {&other, {0, 0}}};

  EXPECT_THROW(take_snapshot(twice), InvalidArgument);
  EXPECT_THROW(take_snapshot(same_label), InvalidArgument);
}

TEST_F(SnapshotTest, RefusesNoPoolAndNoDevice) {
  const PoolToSnapshot null[] = {{nullptr, {}}};
  const PoolToSnapshot negative[] = {{&pool_, {0, -1}}};

  EXPECT_THROW(take_snapshot(null), InvalidArgument);
  EXPECT_THROW(take_snapshot(negative), InvalidArgument);
}

}  // namespace
}  // namespace cgtree
