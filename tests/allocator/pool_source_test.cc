// A pool and its source: the calls that they make to each other, the locks held meanwhile, and the
// report of a refusal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/pool/pool.h"
#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Calls a hook in allocate(), or refuses with a report.
class MeddlingSource final : public SegmentSource {
 public:
  void* allocate(std::size_t bytes, StreamId stream) override {
    if (before_allocate) std::exchange(before_allocate, nullptr)();
    if (refusal) throw OutOfMemory("refused with a report", *refusal);
    return upstream.allocate(bytes, stream);
  }
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override {
    upstream.free(segment, bytes, stream);
  }

  std::function<void()> before_allocate;
  std::optional<MemoryReport> refusal;
  FakeSegmentSource upstream;
};

MemoryReport report_of(Pool& pool, std::size_t bytes) {
  try {
    pool.allocate(bytes);
  } catch (const OutOfMemory& error) {
    EXPECT_NE(error.report(), nullptr);
    if (error.report() != nullptr) return *error.report();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

TEST(PoolSourceTest, APoolIsAttachedForAsLongAsItLives) {
  FakeSegmentSource source;
  {
    const Pool pool(source);
    EXPECT_THAT(source.users(), SizeIs(1));
  }
  EXPECT_THAT(source.users(), IsEmpty());
}

TEST(PoolSourceTest, UnusedSegmentsGoBackUnlessACheckpointHasThem) {
  FakeSegmentSource source;
  Pool pool(source);
  pool.free(pool.allocate(30 * kMiB));
  std::optional<PoolCheckpoint> checkpoint = pool.checkpoint();
  pool.free(pool.allocate(40 * kMiB));
  void* const live = pool.allocate(512);

  EXPECT_EQ(pool.give_back_unused(), 40 * kMiB);
  EXPECT_NO_THROW(pool.restore(*checkpoint, kAllMayDie));
  checkpoint.reset();
  EXPECT_EQ(pool.give_back_unused(), 30 * kMiB);  // the restore has freed `live`

  EXPECT_THAT(pool.segments(), IsEmpty());
  EXPECT_THAT(source.held(), IsEmpty());
  EXPECT_FALSE(pool.owns(live));
}

TEST(PoolSourceTest, UseIsWhatThePoolHolds) {
  FakeSegmentSource source;
  Pool pool(source, {.name = "decode"});
  void* const block = pool.allocate(1000);

  EXPECT_EQ(pool.use(), (PoolUse{"decode", 2 * kMiB, 1024, 2 * kMiB - 1024}));
  pool.free(block);
}

TEST(PoolSourceTest, ThePoolAnswersWhileItsSourceIsAsked) {
  MeddlingSource source;
  Pool pool(source);
  void* const first = pool.allocate(512);
  source.before_allocate = [&] {
    std::thread([&] {
      pool.free(first);
      EXPECT_EQ(pool.give_back_unused(), 2 * kMiB);
      EXPECT_EQ(pool.use().reserved, 0u);
    }).join();
  };

  void* const second = pool.allocate(30 * kMiB);

  pool.validate();
  EXPECT_THAT(pool.segments(), SizeIs(1));
  pool.free(second);
}

TEST(PoolSourceTest, MemoryFreedDuringARefusedRequestServesIt) {
  MeddlingSource source;
  Pool pool(source);
  void* const first = pool.allocate(30 * kMiB);
  source.refusal = MemoryReport{};
  source.before_allocate = [&] { pool.free(first); };

  void* const second = pool.allocate(30 * kMiB);

  EXPECT_EQ(second, first);
  EXPECT_EQ(pool.statistics().num_ooms, 0u);
  pool.free(second);
}

TEST(PoolSourceTest, AThreadThatWaitsItsTurnFindsWhatTheOtherGot) {
  MeddlingSource source;
  Pool pool(source);
  void* other = nullptr;
  std::thread waiting;
  source.before_allocate = [&] {
    waiting = std::thread([&] { other = pool.allocate(512); });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // usually it waits after this time
  };

  void* const block = pool.allocate(512);
  waiting.join();

  EXPECT_THAT(pool.segments(), SizeIs(1));
  pool.free(block);
  pool.free(other);
}

TEST(PoolSourceTest, AnotherPoolsUnusedSegmentsMakeRoom) {
  FakeSegmentSource source(100 * kMiB);
  source.ask_users();
  Pool pool(source), other(source);
  other.free(other.allocate(60 * kMiB));

  void* const block = pool.allocate(80 * kMiB);

  EXPECT_THAT(other.segments(), IsEmpty());
  pool.free(block);
}

TEST(PoolSourceTest, ARefusalReportsThePoolAskedFirst) {
  FakeSegmentSource source(100 * kMiB);
  Pool pool(source, {.name = "decode"});
  void* const block = pool.allocate(1000);

  const MemoryReport report = report_of(pool, 100 * kMiB);

  EXPECT_EQ(report.requested, 100 * kMiB);
  EXPECT_EQ(report.largest_free_block, 2 * kMiB - 1024);
  EXPECT_THAT(report.pools, ElementsAre(pool.use()));
  EXPECT_FALSE(report.capture_open);
  pool.free(block);
}

TEST(PoolSourceTest, ARefusalKeepsTheOtherPoolsOfTheSourcesReport) {
  MeddlingSource source;
  Pool pool(source, {.name = "decode"});
  void* const block = pool.allocate(1000);
  const PoolUse other{"prefill", 5, 4, 3};
  const PoolUse earlier{"decode", 2 * kMiB, 512, 17};
  source.refusal = MemoryReport{7, 8, {other, earlier}, true};

  const MemoryReport report = report_of(pool, 100 * kMiB);

  EXPECT_EQ(report.requested, 100 * kMiB);
  EXPECT_EQ(report.largest_free_block, 2 * kMiB - 1024);
  EXPECT_THAT(report.pools, ElementsAre(pool.use(), other));
  EXPECT_TRUE(report.capture_open);
  source.refusal.reset();
  pool.free(block);
}

TEST(PoolSourceTest, APoolOfTheSameNameIsNotTakenForThePoolAsked) {
  MeddlingSource source;
  Pool pool(source, {.name = "decode"});
  const PoolUse namesake{"decode", 5, 4, 3};
  source.refusal = MemoryReport{7, 8, {namesake, pool.use()}, false};

  EXPECT_THAT(report_of(pool, 512).pools, ElementsAre(pool.use(), namesake));
}

}  // namespace
}  // namespace cgtree
