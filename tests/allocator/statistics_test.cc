// What a pool counts, and how it is written and reset.
#include "allocator/pool/statistics.h"
#include "caching/reports/statistics_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "allocator/pool/block.h"
#include "allocator/pool/pool.h"
#include "tests/allocator/fake_segment_source.h"
#include "tests/allocator/pool_counts.h"

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

// The blocks that end and those that begin were never there together.
TEST_F(StatisticsTest, ARestoreDoesNotRaiseThePeak) {
  const std::size_t peak = pool_.statistics().allocated_bytes.peak;
  const std::uintptr_t base = pool_.segments()[0].address;

  pool_.restore_live(std::vector<Range>{{base + 4096, peak}});

  EXPECT_EQ(pool_.statistics().allocated_bytes.current, peak);
  EXPECT_EQ(pool_.statistics().allocated_bytes.peak, peak);
}

TEST_F(StatisticsTest, ResetPeaksBeginsAtWhatIsThere) {
  pool_.reset_peak_statistics();

  EXPECT_EQ(pool_.statistics().allocated_bytes, (Counter{512, 512, 1536, 1024}));
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

TEST_F(StatisticsTest, CountsLargeSegmentsAndTheirBlocksApart) {
  pool_.free(pool_.allocate(3 << 20));

  const PoolStatistics statistics = pool_.statistics();

  EXPECT_EQ(statistics.small_pool.allocated_bytes, (Counter{512, 1536, 1536, 1024}));
  EXPECT_EQ(statistics.large_pool.allocated_bytes, (Counter{0, 3 << 20, 3 << 20, 3 << 20}));
  EXPECT_EQ(statistics.allocated_bytes,
            (Counter{512, 512 + (3 << 20), 1536 + (3 << 20), 1024 + (3 << 20)}));
  EXPECT_EQ(statistics.large_pool.reserved_bytes.current, kMediumSegment);
  EXPECT_EQ(statistics.small_pool.segment, (Counter{1, 1, 1, 0}));
  pool_.validate();
}

// Of both together: when one was at its peak, the other was not.
TEST_F(StatisticsTest, ThePeakOfAllIsNotTheSumOfPeaks) {
  pool_.restore_live({});
  pool_.free(pool_.allocate(3 << 20));
  pool_.reset_peak_statistics();
  void* const small = pool_.allocate(1 << 20);
  pool_.free(small);
  pool_.free(pool_.allocate(3 << 20));

  EXPECT_EQ(pool_.statistics().allocated_bytes.peak, 3u << 20);
  EXPECT_EQ(pool_.statistics().small_pool.allocated_bytes.peak, 1u << 20);
}

TEST_F(StatisticsTest, ARestoreCountsInBothClasses) {
  void* const large = pool_.allocate(3 << 20);
  const PoolCheckpoint checkpoint = pool_.checkpoint();
  pool_.free(large);
  pool_.restore_live({});

  pool_.restore(checkpoint, {});

  pool_.validate();
  EXPECT_EQ(pool_.statistics().large_pool.allocated_bytes.current, 3u << 20);
  EXPECT_EQ(pool_.statistics().small_pool.allocation.current, 1u);
  EXPECT_EQ(pool_.statistics().segments_touched, 3u);
}

TEST_F(StatisticsTest, CountsCallsOfTheSource) {
  source_.fail_at(1);
  pool_.free(pool_.allocate(3 << 20));  // the medium segment is refused, one of the size is not

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
  EXPECT_EQ(pool.statistics().large_pool.reserved_bytes.current, 512u);
  pool.validate();
  pool.free(block);
}

TEST_F(StatisticsTest, GaugesAreOfPartlyFreeSegmentsAndOfCheckpoints) {
  pool_.free(pool_.allocate(3 << 20));
  EXPECT_EQ(gauges_of(pool_), (PoolGauges{.small_pool = {2, kSmallSegment - 512}}));

  const PoolCheckpoint checkpoint = pool_.checkpoint();
  EXPECT_EQ(gauges_of(pool_).bytes_pinned, kSmallSegment + kMediumSegment);
}

TEST_F(StatisticsTest, FlatNamesAreThoseOfPyTorch) {
  pool_.free(pool_.allocate(3 << 20));
  const nlohmann::json json = nlohmann::json::parse(flat_json(pool_));

  for (const std::string name : {"allocation", "segment", "active", "allocated_bytes",
                                 "reserved_bytes", "active_bytes", "requested_bytes"}) {
    for (const std::string pool : {"all", "small_pool", "large_pool"}) {
      for (const std::string kind : {"current", "peak", "allocated", "freed"})
        EXPECT_TRUE(json.contains(name + "." + pool + "." + kind)) << name << pool << kind;
    }
  }
  EXPECT_EQ(json["active_bytes.all.peak"], 512 + (3 << 20));
  EXPECT_EQ(json["allocated_bytes.large_pool.freed"], 3 << 20);
  EXPECT_EQ(json["inactive_split.all.current"], 2);
  EXPECT_EQ(json["inactive_split_bytes.small_pool.current"], kSmallSegment - 512);
  EXPECT_EQ(json["inactive_split_bytes.large_pool.current"], 0);
  EXPECT_EQ(json["num_device_alloc"], 2);
  EXPECT_EQ(json["max_split_size"], -1);
  EXPECT_EQ(json["checkpoint.taken"], 0);
  const double free = static_cast<double>(kSmallSegment + kMediumSegment - 512);
  EXPECT_DOUBLE_EQ(json["fragmentation"], 1 - static_cast<double>(kMediumSegment) / free);
  EXPECT_DOUBLE_EQ(json["utilization"], (512.0 + (3 << 20)) / (kSmallSegment + kMediumSegment));
}

TEST(EmptyPoolStatisticsTest, HasNoRatios) {
  const nlohmann::json json = nlohmann::json::parse(to_flat_json({}, {}));

  EXPECT_EQ(json["fragmentation"], 0);
  EXPECT_EQ(json["utilization"], 0);
}

}  // namespace
}  // namespace cgtree
