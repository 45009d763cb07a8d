// The log that a pool writes is one that trace_replay reads, and replays to the same numbers.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "allocator/pool/pool.h"
#include "tests/support/made_up_segment_source.h"
#include "tests/support/rmm_log.h"
#include "tools/trace_replay/replay.h"

namespace cgtree::tools {
namespace {

// Allocates, frees and restores at random; everything is free in the end.
void use(Pool& pool, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<PoolCheckpoint> checkpoints{pool.checkpoint()};
  for (int i = 0; i < 2000; ++i) {
    const std::vector<Range> live = pool.live();
    const unsigned dice = random() % 100;
    if (dice < 1) {
      pool.restore(checkpoints[random() % checkpoints.size()], kAllMayDie);
    } else if (dice < 3) {
      checkpoints.push_back(pool.checkpoint());
    } else if (dice < 55 || live.empty()) {
      pool.allocate(1 + random() % (random() % 8 == 0 ? 4'000'000 : 4'000));
    } else {
      pool.free(reinterpret_cast<void*>(live[random() % live.size()].address));
    }
  }
  pool.restore(PoolCheckpoint(), kAllMayDie);
}

TEST(RmmLogRoundTripTest, TheReplayNeedsWhatThePoolNeeded) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RecordProperty("seed", std::to_string(seed));
  const std::string path = (std::filesystem::path(testing::TempDir()) / "pool.csv").string();
  MadeUpSegmentSource source;
  Pool pool(source);
  {
    std::ofstream file(path);
    RmmLog log(file);
    pool.set_observer(&log);
    use(pool, seed);
    pool.set_observer(nullptr);
    ASSERT_EQ(log.lost_rows(), 0u);
  }

  const Trace trace = read_rmm_log(path);
  MadeUpSegmentSource other;
  const ReplayResult result = replay(trace, other, {.rounds = 1, .growth = Growth::kFast});

  EXPECT_EQ(result.operations, trace.steps.size());
  EXPECT_EQ(trace.slots * 2, trace.steps.size());  // each block is freed
  EXPECT_EQ(result.peak_live_bytes, trace.peak_live_bytes);
  EXPECT_EQ(result.peak_live_bytes, pool.statistics().requested_bytes.peak);
  EXPECT_EQ(result.peak_allocated_bytes, pool.statistics().allocated_bytes.peak);
}

}  // namespace
}  // namespace cgtree::tools
