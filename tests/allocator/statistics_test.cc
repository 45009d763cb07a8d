// The counts of a pool, and their text.
#include "allocator/pool/statistics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "allocator/pool/block.h"
#include "allocator/pool/pool.h"
#include "caching/reports/statistics_json.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

// Two blocks were allocated, for 1000 and 100 bytes, and the first was freed.
class StatisticsTest : public testing::Test {
 protected:
  StatisticsTest() {
    void* const first = pool_.allocate(1000);
    pool_.allocate(100);
    pool_.free(first);
  }
  ~StatisticsTest() override { pool_.restore_live({}); }

  FakeSegmentSource source_;
  Pool pool_{source_};
};

TEST_F(StatisticsTest, CountsBlocksAndBytes) {
  const PoolStatistics statistics = pool_.statistics();

  EXPECT_EQ(statistics.allocation, (Counter{1, 2, 2, 1}));
  EXPECT_EQ(statistics.allocated_bytes, (Counter{512, 1536, 1536, 1024}));
  EXPECT_EQ(statistics.requested_bytes, (Counter{100, 1100, 1100, 1000}));
  EXPECT_EQ(statistics.segment, (Counter{1, 1, 1, 0}));
  EXPECT_EQ(statistics.reserved_bytes, (Counter{kSmallSegment, kSmallSegment, kSmallSegment, 0}));
  EXPECT_EQ(statistics.largest_free_block, kSmallSegment - 1536);
}

TEST_F(StatisticsTest, CountsCheckpointsAndRestores) {
  pool_.restore(pool_.checkpoint(), kAllMayDie);
  pool_.restore_live(pool_.live());

  EXPECT_EQ(pool_.statistics().checkpoints_taken, 1u);
  EXPECT_EQ(pool_.statistics().restores, 2u);
}

// The ended blocks and the new ones were never live together.
TEST_F(StatisticsTest, ARestoreDoesNotRaiseThePeak) {
  const std::size_t peak = pool_.statistics().allocated_bytes.peak;
  const std::uintptr_t base = pool_.segments()[0].address;

  pool_.restore_live(std::vector<Range>{{base + 4096, peak}});

  EXPECT_EQ(pool_.statistics().allocated_bytes.current, peak);
  EXPECT_EQ(pool_.statistics().allocated_bytes.peak, peak);
}

TEST_F(StatisticsTest, WritesEveryFieldAsJson) {
  const nlohmann::json json = nlohmann::json::parse(to_json(pool_.statistics()));

  const std::size_t counters = sizeof(PoolCounters) / sizeof(Counter);
  EXPECT_EQ(json.size(), counters + sizeof(PoolEvents) / sizeof(std::size_t) + 1);
  EXPECT_EQ(
      json["requested_bytes"],
      (nlohmann::json{{"current", 100}, {"peak", 1100}, {"allocated", 1100}, {"freed", 1000}}));
  EXPECT_EQ(json["num_ooms"], 0);
}

TEST_F(StatisticsTest, ARestoreCountsInAllSegments) {
  void* const large = pool_.allocate(3 << 20);
  const PoolCheckpoint checkpoint = pool_.checkpoint();
  pool_.free(large);
  pool_.restore_live({});

  pool_.restore(checkpoint, {});

  pool_.validate();
  EXPECT_EQ(pool_.statistics().allocated_bytes.current, (3u << 20) + 512);
  EXPECT_EQ(pool_.statistics().allocation.current, 2u);
  EXPECT_EQ(pool_.statistics().segments_touched, 3u);
}

TEST_F(StatisticsTest, CountsCallsOfTheSource) {
  source_.fail_at(1);
  pool_.free(pool_.allocate(3 << 20));  // the medium segment is refused, an exact one is not

  pool_.trim();

  EXPECT_EQ(pool_.statistics().num_device_alloc, source_.given());
  EXPECT_EQ(pool_.statistics().num_device_free, source_.given_back());
  EXPECT_EQ(pool_.statistics().num_device_free, 1u);
  EXPECT_EQ(pool_.statistics().num_alloc_retries, 1u);
  EXPECT_EQ(pool_.statistics().num_ooms, 0u);
}

TEST_F(StatisticsTest, GrowthInPlaceIsCounted) {
  FakeSegmentSource source;
  source.set_spacing(64 << 20);
  Pool pool(source, {.growth = Growth::kInPlace});
  void* const block = pool.allocate(512);
  pool.free(pool.allocate(20 << 20));
  pool.trim();

  EXPECT_EQ(pool.statistics().num_device_alloc, source.given());
  EXPECT_EQ(pool.statistics().num_device_free, source.given_back());
  EXPECT_EQ(pool.statistics().segment, (Counter{1, 1, 1, 0}));
  EXPECT_EQ(pool.statistics().reserved_bytes.current, 512u);
  pool.validate();
  pool.free(block);
}

}  // namespace
}  // namespace cgtree
