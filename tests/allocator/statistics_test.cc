// What a pool counts, and how it is written and reset.
#include "allocator/statistics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "allocator/pool.h"
#include "allocator/sizes.h"
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

TEST_F(StatisticsTest, ResetTotalsBeginsAtWhatIsThere) {
  pool_.restore(pool_.checkpoint(), kAllMayDie);
  pool_.reset_total_statistics();

  EXPECT_EQ(pool_.statistics().allocated_bytes, (Counter{512, 1536, 512, 0}));
  EXPECT_EQ(pool_.statistics().restores, 0u);
  pool_.validate();
}

TEST_F(StatisticsTest, WritesEveryFieldAsJson) {
  const nlohmann::json json = nlohmann::json::parse(to_json(pool_.statistics()));

  EXPECT_EQ(json.size() * sizeof(std::size_t) + 5 * (sizeof(Counter) - sizeof(std::size_t)),
            sizeof(PoolStatistics));
  EXPECT_EQ(
      json["requested_bytes"],
      (nlohmann::json{{"current", 100}, {"peak", 1100}, {"allocated", 1100}, {"freed", 1000}}));
  EXPECT_EQ(json["num_ooms"], 0);
}

}  // namespace
}  // namespace cgtree
