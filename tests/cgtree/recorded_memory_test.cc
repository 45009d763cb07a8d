// Footprints and live masks against plain sets, and the memory that a recording keeps.
#include "cgtree/memory/recorded_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "cgtree/memory/context_memory.h"
#include "interop/device/stream.h"

namespace cgtree::testing {
namespace {

TEST(FootprintTest, OverlapsWhatHasAByteInCommon) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  constexpr std::uintptr_t kEnd = 40;
  const auto pick = [&](std::uintptr_t most) {
    return std::uniform_int_distribution<std::uintptr_t>(0, most)(random);
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<Range> ranges;
    std::set<std::uintptr_t> bytes;
    for (std::uintptr_t count = pick(5); count > 0; --count) {
      const std::uintptr_t begin = pick(kEnd - 1);
      const Range range{begin, 1 + pick(std::min<std::uintptr_t>(9, kEnd - 1 - begin))};
      ranges.push_back(range);
      for (std::uintptr_t byte = range.address; byte < range.end(); ++byte)
        bytes.insert(byte);
    }
    const Footprint footprint(ranges);

    EXPECT_EQ(footprint.bytes(), bytes.size()) << "seed " << seed;
    for (std::uintptr_t begin = 0; begin < kEnd; ++begin) {
      for (const std::size_t length : {1, 2, 7}) {
        const auto first = bytes.lower_bound(begin);
        const bool is_common = first != bytes.end() && *first < begin + length;
        ASSERT_EQ(footprint.overlaps({begin, length}), is_common)
            << begin << " + " << length << ", seed " << seed;
      }
    }
  }
}

TEST(FootprintTest, IsSortedAndHasNoRangesThatTouch) {
  const Footprint footprint({{30, 5}, {10, 10}, {20, 3}, {12, 2}, {40, 1}});

  const std::vector<Range> expected{{10, 13}, {30, 5}, {40, 1}};
  EXPECT_EQ(footprint.ranges(), expected);
}

class Listener final : public StorageOwner {
 public:
  void release(Storage&) noexcept override { ++released; }
  void used(Storage&, StreamRef stream) override {
    if (released == 0) told.push_back(stream);
  }

  int released = 0;
  std::vector<StreamRef> told;
};

class KeptStoragesTest : public ::testing::Test {
 protected:
  ~KeptStoragesTest() override { keeper_.end(); }

  const Stream stream_{Device::host()};
  Listener owner_;
  ContextMemory& keeper_ = *new ContextMemory(Device::host(), {.stream = stream_});
  Storage storage_{owner_, Device::host(), {}, nullptr, 0};
};

TEST_F(KeptStoragesTest, TellTheOwnersOfTheReplaysBeforeTheyLetGo) {
  {
    KeptStorages kept({StorageRef(storage_)}, keeper_);
    const KeptStorages moved = std::move(kept);
    EXPECT_TRUE(owner_.told.empty());
  }

  EXPECT_EQ(owner_.told, std::vector{stream_.ref()});
  EXPECT_EQ(owner_.released, 1);
}

TEST_F(KeptStoragesTest, StayWithAKeeperWhoseStreamCaptures) {
  GraphAPI& graphs = stream_.ref().graphs();
  check(graphs.begin_capture(stream_.ref().handle(), CaptureMode::kThreadLocal), "begin");
  { const KeptStorages kept({StorageRef(storage_)}, keeper_); }
  keeper_.let_go();
  EXPECT_TRUE(owner_.told.empty());
  EXPECT_EQ(owner_.released, 0);

  GraphHandle graph = GraphHandle::kNull;
  check(graphs.end_capture(stream_.ref().handle(), &graph), "end");
  check(graphs.destroy_graph(graph), "destroy");
  keeper_.let_go();
  EXPECT_EQ(owner_.told, std::vector{stream_.ref()});
  EXPECT_EQ(owner_.released, 1);
}

TEST_F(KeptStoragesTest, TellOnceWhenTheyAreMoved) {
  KeptStorages kept;

  kept = KeptStorages({StorageRef(storage_)}, keeper_);
  EXPECT_TRUE(owner_.told.empty());
  kept = KeptStorages();

  EXPECT_EQ(owner_.told.size(), 1u);
}

}  // namespace
}  // namespace cgtree::testing
