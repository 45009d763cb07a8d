// Room for one more element at a time: elements are rarely moved, and never by push_back().
#include "base/room.h"

#include <gtest/gtest.h>

#include <vector>

namespace cgtree {
namespace {

TEST(RoomTest, PushBackNeverMovesTheElementsAndMakingRoomSeldomDoes) {
  std::vector<int> list;
  int moves = 0;
  for (int i = 0; i < 10'000; ++i) {
    const int* const before = list.data();
    make_room(list);
    moves += list.data() != before;
    const int* const ready = list.data();
    list.push_back(i);
    ASSERT_EQ(list.data(), ready);
  }
  EXPECT_LE(moves, 15);
  for (int i = 0; i < 10'000; ++i)
    ASSERT_EQ(list[static_cast<std::size_t>(i)], i);
}

}  // namespace
}  // namespace cgtree
