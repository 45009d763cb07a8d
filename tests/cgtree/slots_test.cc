// Slots by themselves: what is recycled, and what is not.
#include "cgtree/memory/slots.h"

#include <gtest/gtest.h>

#include "cgtree/memory/context_memory.h"
#include "cgtree/memory/recorded_memory.h"
#include "tests/support/devices.h"

namespace cgtree::testing {
namespace {

constexpr std::size_t kBytes = 64;

Range range_number(std::uintptr_t i) {
  return {0x10000 + i * kBytes, kBytes};
}

// A segment that was given back by one pool may come to another.
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

TEST(SlotsTest, WhatIsUsedKeepsItsNumber) {
  Slots slots;
  for (std::uintptr_t i = 0; i < 3; ++i)
    slots.reserve(range_number(i), Region::kOutput);
  slots[0].recordings = 1;
  Slots::set_live(slots[1]);
  slots[2].tracked = true;
  for (std::uintptr_t i = 3; i < 1000; ++i) {
    slots.recycle();
    slots.reserve(range_number(i), Region::kOutput);
  }

  EXPECT_LE(slots.count(), 64u);
  for (std::uint32_t i = 0; i < 3; ++i)
    EXPECT_EQ(slots[i].range, range_number(i));
  Slots::clear_live(slots[1]);
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
