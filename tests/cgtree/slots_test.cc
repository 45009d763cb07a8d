// Slots without a context: liveness and recycling.
#include "cgtree/memory/slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "cgtree/memory/context_memory.h"
#include "cgtree/memory/recorded_memory.h"
#include "tests/support/devices.h"

namespace cgtree::testing {
namespace {

constexpr std::size_t kBytes = 64;

Range range_number(std::uintptr_t i) {
  return {0x10000 + i * kBytes, kBytes};
}

// Owns a storage for each slot, and a handle for each live slot.
class Storages final : public StorageOwner {
 public:
  void begin_life(Lives& lives, std::uint32_t slot) {
    auto& storage = storages_[slot];
    if (!storage)
      storage = std::make_unique<Storage>(*this, Device::host(), StreamRef(), nullptr, 0);
    lives.storages[slot % kSlotsPerWord] = storage.get();
    lives.bits |= bit_of_slot(slot);
    handles_[slot] = StorageRef::first(*storage);
  }
  void begin_life(const Slot& slot) { begin_life(*slot.lives, slot.number); }
  // Thread safety: any thread, for slots that have been live.
  void end_life(std::uint32_t slot) { handles_.at(slot) = StorageRef(); }

  void release(Storage&) noexcept override {}
  void release_last(Storage& storage) noexcept override {
    orphans += storage.drop_last() == Storage::End::kOrphan;
  }

  std::atomic<std::size_t> orphans = 0;  // orphaned storages that ended

 private:
  std::map<std::uint32_t, std::unique_ptr<Storage>> storages_;
  std::map<std::uint32_t, StorageRef> handles_;
};

SlotSet set_of(const std::set<std::uint32_t>& slots) {
  SlotSet set;
  for (const std::uint32_t slot : slots)
    add_slot(set, slot);
  return set;
}

// Bits of dead slots stay set until any_beside() finds them, which must have no visible effect.
TEST(LiveMaskTest, ItIsTheSetOfLiveSlotsHoweverManyThereAre) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr std::uint32_t kSlots = 700;
  Storages storages;
  LiveMask mask;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot)
    mask.reserve(slot + 1);
  std::set<std::uint32_t> live;
  for (int round = 0; round < 3000; ++round) {
    const std::uint32_t slot = random() % kSlots;
    if (live.insert(slot).second) {
      storages.begin_life(mask.lives_of(slot), slot);
    } else {
      live.erase(slot);
      storages.end_life(slot);
    }
    std::set<std::uint32_t> asked;
    for (int i = 0; i < 3; ++i)
      asked.insert(random() % kSlots);
    const auto is_live = [&](std::uint32_t member) { return live.contains(member); };
    ASSERT_EQ(mask.intersects(set_of(asked)), std::ranges::any_of(asked, is_live));
    std::set<std::uint32_t> all_but_one = live;
    if (!live.empty() && random() % 2 == 0) all_but_one.erase(*live.begin());
    ASSERT_EQ(mask.any_beside(set_of(all_but_one)), all_but_one.size() < live.size());
    if (round % 100 != 0) continue;
    std::vector<std::uint32_t> visited;
    mask.for_each([&](std::uint32_t member) { visited.push_back(member); });
    ASSERT_EQ(visited, std::vector<std::uint32_t>(live.begin(), live.end()));
  }
}

TEST(LiveMaskTest, DeadSlotsAreNotCheckedAgain) {
  Storages storages;
  LiveMask mask;
  mask.reserve(200);
  for (const std::uint32_t slot : {3u, 64u, 199u})
    storages.begin_life(mask.lives_of(slot), slot);
  storages.end_life(3);
  storages.end_life(199);

  EXPECT_TRUE(mask.any_beside({}));
  EXPECT_FALSE(mask.any_beside(set_of({64})));

  EXPECT_EQ(mask.lives_of(3).bits, 0u);
  EXPECT_EQ(mask.lives_of(64).bits, bit_of_slot(64));
  EXPECT_EQ(mask.lives_of(199).bits, 0u);
}

// A release reports whether its storage was orphaned, because such storages are counted.
TEST(SlotsTest, EachLifeThatIsOrphanedSaysSoAtItsEnd) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr std::uint32_t kSlots = 200;
  for (int round = 0; round < 50; ++round) {
    Storages storages;
    Slots slots;
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      slots.reserve(range_number(i), Region::kOutput);
      storages.begin_life(slots[i]);
    }
    std::vector<std::uint32_t> order(kSlots);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::thread other([&] {
      for (const std::uint32_t slot : order)
        storages.end_life(slot);
    });
    const std::size_t orphaned = slots.orphan();
    other.join();

    EXPECT_EQ(storages.orphans.load(), orphaned);
    EXPECT_EQ(slots.live_count(), 0u);
  }
}

// A segment that one pool has freed may be used by another.
TEST(SlotsTest, AnUnusedSlotFollowsItsRangeToAnotherRegion) {
  Slots slots;
  slots.reserve(range_number(0), Region::kOutput);
  slots.reserve(range_number(0), Region::kScratch);

  EXPECT_EQ(slots.count(), 1u);
  EXPECT_EQ(slots[0].region, Region::kScratch);
}

TEST(SlotsTest, EndlessRangesTakeNoMoreNumbersThanAreInUse) {
  Slots slots;
  for (std::uintptr_t i = 0; i < 20'000; ++i) {
    slots.recycle();
    slots.reserve(range_number(i), Region::kOutput);
    slots.clear_changed();
  }

  EXPECT_LE(slots.count(), 64u);
  slots.validate();
}

TEST(SlotsTest, UsedSlotsKeepTheirNumbers) {
  Slots slots;
  for (std::uintptr_t i = 0; i < 3; ++i)
    slots.reserve(range_number(i), Region::kOutput);
  slots[0].recordings = 1;
  Storages storages;
  storages.begin_life(slots[1]);
  slots[2].tracked = true;
  for (std::uintptr_t i = 3; i < 1000; ++i) {
    slots.recycle();
    slots.reserve(range_number(i), Region::kOutput);
  }

  EXPECT_LE(slots.count(), 64u);
  for (std::uint32_t i = 0; i < 3; ++i)
    EXPECT_EQ(slots[i].range, range_number(i));
  storages.end_life(1);
  slots[1].set_current(nullptr);
}

TEST(SlotsTest, ANumberThatStandsForAnotherRangeHasChanged) {
  Slots slots;
  for (std::uintptr_t i = 0; i < 64; ++i)
    slots.reserve(range_number(i), Region::kOutput);
  slots.clear_changed();
  slots.recycle();
  EXPECT_EQ(slots.changed().size(), 64u);
  EXPECT_EQ(slots[0].range, Range());

  slots.clear_changed();
  slots.reserve(range_number(100), Region::kOutput);
  EXPECT_EQ(slots.changed(), std::vector<std::uint32_t>{0});
  EXPECT_EQ(slots[0].range, range_number(100));
}

TEST(SlotsTest, PersistentSlotsOfAWarmUpAreNotLiveOutputs) {
  Slots slots;
  slots.reserve(range_number(0), Region::kScratch, /*persistent=*/true);
  slots.reserve(range_number(1), Region::kOutput);
  Storages storages;
  storages.begin_life(slots[0]);
  EXPECT_FALSE(slots.any_output_live());
  storages.begin_life(slots[1]);
  EXPECT_TRUE(slots.any_output_live());
  storages.end_life(1);
  EXPECT_FALSE(slots.any_output_live());
  EXPECT_EQ(slots.live_count(), 1u);

  storages.end_life(0);
  slots[0].set_current(nullptr);
  slots[1].set_current(nullptr);
}

TEST(SlotsTest, NamesOfRemovedFunctionsAreForgottenLongAfter) {
  ContextMemory* const memory = new ContextMemory(Device::host(), {});
  for (std::uint32_t id = 1; id <= 1000; ++id) {
    memory->set_function_name(id, "f");
    memory->retire_function_name(id);
    EXPECT_EQ(memory->function_name(id), "f");
  }

  EXPECT_EQ(memory->function_name(1000 - 255), "f");
  EXPECT_EQ(memory->function_name(1000 - 256), "#744");
  memory->end();
}

}  // namespace
}  // namespace cgtree::testing
