// The map of segments: the pool of an address, also if pools share a page.
#include "caching/segment_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>

#include "base/error.h"

namespace cgtree {
namespace {

constexpr std::uintptr_t kPage = std::uintptr_t{1} << 21;
constexpr std::uintptr_t kFirst = 40 * kPage;

class SegmentMapTest : public testing::Test {
 protected:
  // A reference to no pool: the map only compares addresses of pools.
  MappedPool& pool(std::size_t number) { return reinterpret_cast<MappedPool&>(pools_.at(number)); }

  struct alignas(64) Place {
    char byte = 0;
  };
  std::array<Place, 16> pools_;
  SegmentMap map_;
};

TEST_F(SegmentMapTest, ASharedPageKeepsTheSegmentThatStays) {
  map_.insert({kFirst + kPage / 4, kPage / 4}, pool(0));
  map_.insert({kFirst, kPage / 4}, pool(1));
  map_.insert({kFirst + kPage / 2, 2 * kPage}, pool(2));
  map_.erase({kFirst + kPage / 4, kPage / 4});

  EXPECT_EQ(map_.find(kFirst + kPage / 4 - 1), &pool(1));
  EXPECT_EQ(map_.find(kFirst + kPage / 4), nullptr);
  EXPECT_EQ(map_.find(kFirst + kPage / 2), &pool(2));

  map_.erase({kFirst + kPage / 2, 2 * kPage});
  EXPECT_EQ(map_.find(kFirst), &pool(1));
  EXPECT_EQ(map_.find(kFirst + kPage), nullptr);
  map_.insert({kFirst + kPage, kPage}, pool(3));
  EXPECT_EQ(map_.find(kFirst + kPage), &pool(3));
}

TEST_F(SegmentMapTest, ARangeBeyondTheLastAddressIsRefusedAndNothingChanges) {
  const std::uintptr_t last = std::uintptr_t{1} << 48;
  EXPECT_THROW(map_.insert({last - kPage, kPage + 1}, pool(0)), InvalidArgument);
  EXPECT_EQ(map_.find(last - kPage), nullptr);
  EXPECT_EQ(map_.find(last), nullptr);
}

// Segments of a few eighths of a page each are made and freed, side by side.
TEST_F(SegmentMapTest, EachAddressIsThePoolsThatHasItsSegment) {
  constexpr std::size_t kUnits = 48;
  constexpr std::size_t kUnit = kPage / 8;
  constexpr std::size_t kNone = 99;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  struct Segment {
    std::size_t begin = 0, end = 0;  // without units, the segment does not exist
  };
  std::array<Segment, 16> segments;  // by the number of its pool
  std::array<std::size_t, kUnits> owners;
  owners.fill(kNone);
  const auto range = [](std::size_t begin, std::size_t end) {
    return Range{kFirst + begin * kUnit, (end - begin) * kUnit};
  };
  const auto free_behind = [&](std::size_t begin) {
    std::size_t end = begin;
    while (end < kUnits && owners[end] == kNone)
      ++end;
    return end;
  };
  const auto some = [&](std::size_t most) { return 1 + random() % most; };
  for (int round = 0; round < 2000; ++round) {
    const std::size_t number = random() % segments.size();
    Segment& segment = segments[number];
    if (segment.end > segment.begin) {
      map_.erase(range(segment.begin, segment.end));
      std::fill(&owners[0] + segment.begin, &owners[0] + segment.end, kNone);
      segment = {};
    } else {
      const std::size_t begin = random() % kUnits;
      const std::size_t room = free_behind(begin) - begin;
      if (room == 0) continue;
      segment = {begin, begin + some(std::min<std::size_t>(room, 20))};
      map_.insert(range(segment.begin, segment.end), pool(number));
      std::fill(&owners[0] + segment.begin, &owners[0] + segment.end, number);
    }
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      const MappedPool* const expected = owners[unit] == kNone ? nullptr : &pool(owners[unit]);
      const Range all = range(unit, unit + 1);
      ASSERT_EQ(map_.find(all.address), expected) << "unit " << unit << " in round " << round;
      ASSERT_EQ(map_.find(all.end() - 1), expected) << "unit " << unit << " in round " << round;
    }
  }
}

}  // namespace
}  // namespace cgtree
