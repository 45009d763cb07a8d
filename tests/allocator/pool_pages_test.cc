// Pools that map memory only under blocks, and the memory that they reserve for a serving program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "allocator/pool/page_map.h"
#include "allocator/pool/pool.h"
#include "allocator/segments/segment_cache.h"
#include "base/error.h"
#include "tests/support/rmm_log.h"

namespace cgtree {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kPage = PageMap::kPage;

// Tracks the pages that have memory. Each segment may grow to 1 TiB.
class PageSource final : public SegmentSource {
 public:
  ~PageSource() override { EXPECT_TRUE(mapped_.empty()); }

  void* allocate(std::size_t bytes, StreamId) override {
    const std::uintptr_t address = ++segments_ << 40;
    map_pages(address, bytes);
    return reinterpret_cast<void*>(address);
  }
  void free(void* segment, std::size_t bytes, StreamId) noexcept override {
    const auto address = reinterpret_cast<std::uintptr_t>(segment);
    mapped_.erase(mapped_.lower_bound(address), mapped_.lower_bound(address + bytes));
  }
  bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId) override {
    map_pages(reinterpret_cast<std::uintptr_t>(segment) + bytes, grown - bytes);
    return true;
  }
  void map(void* segment, std::size_t, std::size_t offset, std::size_t count, StreamId) override {
    if (meddle) meddle();
    map_pages(reinterpret_cast<std::uintptr_t>(segment) + offset, count);
  }
  bool unmap(void* segment, std::size_t, std::size_t offset, std::size_t count,
             StreamId) noexcept override {
    ++unmaps;
    const auto begin = reinterpret_cast<std::uintptr_t>(segment) + offset;
    for (std::uintptr_t page = begin; page < begin + count; page += kPage)
      EXPECT_EQ(mapped_.erase(page), 1u);
    return true;
  }

  std::size_t bytes() const { return mapped_.size() * kPage; }
  bool has(const Range& range) const {
    for (std::uintptr_t page = range.address & ~(kPage - 1); page < range.end(); page += kPage) {
      if (!mapped_.contains(page)) return false;
    }
    return true;
  }

  std::size_t capacity = SIZE_MAX;
  std::size_t unmaps = 0;
  std::function<void()> meddle;

 private:
  void map_pages(std::uintptr_t begin, std::size_t count) {
    if (count > capacity - std::min(capacity, bytes())) throw OutOfMemory("no more pages");
    for (std::uintptr_t page = begin; page < begin + count; page += kPage)
      EXPECT_TRUE(mapped_.insert(page).second);
  }

  std::uintptr_t segments_ = 0;
  std::set<std::uintptr_t> mapped_;
};

class PoolPagesTest : public testing::Test {
 protected:
  PageSource source_;
  SegmentCache cache_{source_};
  Pool pool_{cache_, {.growth = Growth::kInPages}};
};

TEST_F(PoolPagesTest, FreePagesInTheMiddleAreGivenBackBeforeMoreThanTheSlackIsReserved) {
  void* const first = pool_.allocate(100 * kMiB);
  void* const last = pool_.allocate(kMiB);
  pool_.free(first);

  // Does not fit between the two blocks, so that the pool grows at its end.
  void* const large = pool_.allocate(101 * kMiB);

  EXPECT_EQ(source_.unmaps, 1u);
  // 101 MiB were live at most, and 16 MiB more may be reserved, in pages of 2 MiB.
  EXPECT_EQ(source_.bytes(), 116 * kMiB);
  EXPECT_EQ(pool_.statistics().reserved_bytes.peak, 116 * kMiB);
  void* const again = pool_.allocate(30 * kMiB);
  EXPECT_EQ(again, first) << "the addresses are still there";
  EXPECT_TRUE(source_.has({reinterpret_cast<std::uintptr_t>(again), 30 * kMiB}));
  pool_.validate();
  cache_.validate();
  for (void* const block : {last, large, again})
    pool_.free(block);
}

TEST_F(PoolPagesTest, EverythingFreeIsGivenBackOnDemand) {
  void* const first = pool_.allocate(10 * kMiB);
  void* const kept = pool_.allocate(kMiB);
  void* const last = pool_.allocate(9 * kMiB);
  pool_.free(first);
  pool_.free(last);

  EXPECT_EQ(pool_.give_back_unused(), 18 * kMiB);

  EXPECT_EQ(source_.bytes(), 2 * kMiB);
  EXPECT_EQ(cache_.statistics().bytes_in_use, 2 * kMiB);
  pool_.free(kept);
  EXPECT_EQ(pool_.give_back_unused(), 2 * kMiB);
  cache_.trim();
  EXPECT_EQ(source_.bytes(), 0u);
}

TEST_F(PoolPagesTest, WithoutMemoryForItsPagesARequestChangesNothing) {
  void* const first = pool_.allocate(10 * kMiB);
  void* const kept = pool_.allocate(kMiB);
  pool_.free(first);
  (void)pool_.give_back_unused();
  source_.capacity = 6 * kMiB;

  EXPECT_THROW(pool_.allocate(10 * kMiB), OutOfMemory);

  pool_.validate();
  cache_.validate();
  EXPECT_EQ(pool_.live().size(), 1u);
  void* const small = pool_.allocate(3 * kMiB);
  pool_.free(small);
  pool_.free(kept);
}

TEST_F(PoolPagesTest, ALayoutCannotBeRestored) {
  EXPECT_THROW((void)pool_.checkpoint(), InvalidArgument);
  EXPECT_THROW((void)pool_.restore_live({}), InvalidArgument);
}

TEST_F(PoolPagesTest, BlocksAreFreedWhilePagesAreMapped) {
  void* const first = pool_.allocate(10 * kMiB);
  void* const kept = pool_.allocate(kMiB);
  void* const other = pool_.allocate(4 * kMiB);
  pool_.free(first);
  (void)pool_.give_back_unused();
  bool was_freed = false;
  source_.meddle = [&] {
    if (std::exchange(was_freed, true)) return;
    pool_.free(other);
    EXPECT_EQ(pool_.give_back_unused(), 4 * kMiB);
    pool_.validate();
  };
  void* const block = pool_.allocate(5 * kMiB);
  source_.meddle = nullptr;
  EXPECT_TRUE(was_freed);
  EXPECT_TRUE(source_.has({reinterpret_cast<std::uintptr_t>(block), 5 * kMiB}));
  pool_.free(block);
  pool_.free(kept);
}

TEST_F(PoolPagesTest, LiveBlocksAlwaysHaveMemory) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::map<void*, std::size_t> live;
  for (int i = 0; i < 3000; ++i) {
    const std::uint32_t value = random();
    if (value % 50 == 0) {
      (void)pool_.give_back_unused();
    } else if (live.size() < 40 && value % 2 == 0) {
      const std::size_t most[] = {4096, 300'000, 3 * kMiB, 20 * kMiB};
      const std::size_t bytes = 1 + random() % most[random() % 4];
      source_.capacity = random() % 8 == 0 ? source_.bytes() : SIZE_MAX;
      try {
        live.emplace(pool_.allocate(bytes), bytes);
      } catch (const OutOfMemory&) {
      }
    } else if (!live.empty()) {
      const auto block = std::next(live.begin(), static_cast<long>(random() % live.size()));
      pool_.free(block->first);
      live.erase(block);
    }
    for (const auto& [address, bytes] : live)
      ASSERT_TRUE(source_.has({reinterpret_cast<std::uintptr_t>(address), bytes})) << i;
    pool_.validate();
    cache_.validate();
    ASSERT_EQ(source_.bytes(), cache_.statistics().bytes_in_use + cache_.statistics().bytes_cached);
    ASSERT_EQ(pool_.statistics().reserved_bytes.current, cache_.statistics().bytes_in_use);
  }
  for (const auto& [address, bytes] : live)
    pool_.free(address);
}

// The allocations of a transformer that serves requests of varying batch and length, in 16 bits.
struct Model {
  const char* name;
  std::size_t layers, hidden, heads, vocabulary;
  int requests;
};

Trace serving_log(const Model& model, unsigned seed) {
  std::mt19937 random(seed);
  Trace trace;
  std::size_t live = 0;
  std::vector<std::size_t> sizes;
  const auto allocate = [&](std::size_t bytes) {
    trace.steps.push_back({static_cast<std::uint32_t>(trace.slots), bytes});
    sizes.push_back(bytes);
    live += bytes;
    trace.peak_live_bytes = std::max(trace.peak_live_bytes, live);
    return trace.slots++;
  };
  const auto free = [&](std::size_t slot) {
    trace.steps.push_back({static_cast<std::uint32_t>(slot), 0});
    live -= sizes[slot];
  };
  std::deque<std::size_t> outputs;  // outputs that callers hold
  for (int request = 0; request < model.requests; ++request) {
    const std::size_t batches[] = {1, 1, 2, 4, 8, 16, 32};
    const std::size_t lengths[] = {1, 1, 1, 1, 16, 64, 128, 512};
    const std::size_t batch = batches[random() % 7];
    const std::size_t length = lengths[random() % 8];
    const std::size_t row = batch * length * model.hidden * 2;
    std::size_t x = allocate(row);
    for (std::size_t layer = 0; layer < model.layers; ++layer) {
      const std::size_t qkv = allocate(3 * row);
      const std::size_t scores =
          allocate(batch * model.heads * length * std::max<std::size_t>(length, 16) * 2);
      const std::size_t attended = allocate(row);
      free(scores);
      free(qkv);
      const std::size_t wide = allocate(4 * row);
      const std::size_t y = allocate(row);
      free(wide);
      free(attended);
      free(x);
      x = y;
    }
    outputs.push_back(allocate(batch * model.vocabulary * 4));
    free(x);
    for (const std::size_t most = 1 + random() % 4; outputs.size() > most; outputs.pop_front())
      free(outputs.front());
  }
  for (const std::size_t slot : outputs)
    free(slot);
  return trace;
}

// Returns peak reserved over peak live bytes.
double ratio_of(const Trace& trace, Growth growth, std::size_t& unmaps) {
  PageSource source;
  Pool pool(source, {.growth = growth});
  std::vector<void*> blocks(trace.slots);
  for (const TraceStep& step : trace.steps) {
    void*& block = blocks[step.slot];
    step.bytes > 0 ? void(block = pool.allocate(step.bytes)) : pool.free(std::exchange(block, {}));
  }
  for (void* const block : blocks) {
    if (block != nullptr) pool.free(block);
  }
  unmaps = source.unmaps;
  return static_cast<double>(pool.statistics().reserved_bytes.peak) /
         static_cast<double>(trace.peak_live_bytes);
}

void expect_little(const std::string& name, const Trace& trace) {
  std::size_t unmaps = 0;
  const double in_place = ratio_of(trace, Growth::kInPlace, unmaps);
  const double in_pages = ratio_of(trace, Growth::kInPages, unmaps);
  std::printf(
      "%-36s live %8.1f MiB, reserved over live: in place %.3f, in pages %.3f (%zu unmaps)\n",
      name.c_str(), static_cast<double>(trace.peak_live_bytes) / kMiB, in_place, in_pages, unmaps);
  EXPECT_LE(in_pages, 1.10) << name;
}

TEST(ServingMemoryTest, ReservesAtMostATenthMoreThanIsLive) {
  const Model models[] = {{"small, 6 layers of 512", 6, 512, 8, 32'000, 1000},
                          {"medium, 12 layers of 1024", 12, 1024, 16, 32'000, 1000},
                          {"large, 8 layers of 4096", 8, 4096, 32, 128'000, 300}};
  for (const Model& model : models) {
    for (const unsigned seed : {1u, 2u, 3u})
      expect_little(std::string(model.name) + ", seed " + std::to_string(seed),
                    serving_log(model, seed));
  }
}

// CGTREE_ALLOCATION_LOGS: a folder with logs in RMM's format.
TEST(ServingMemoryTest, ReservesAtMostATenthMoreThanIsLiveOnRecordedLogs) {
  const char* const folder = std::getenv("CGTREE_ALLOCATION_LOGS");
  if (folder == nullptr) GTEST_SKIP() << "no logs";
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    expect_little(entry.path().filename().string(), read_rmm_log(entry.path().string()));
}

}  // namespace
}  // namespace cgtree
