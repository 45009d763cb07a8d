// A list of callable items: their order, and items that are removed during a call.
#include "base/call_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

namespace cgtree {
namespace {

using ::testing::ElementsAre;

using Calls = CallList<std::function<void()>>;

void call_all(Calls& list) {
  list.call_until([](const std::function<void()>& item) {
    item();
    return false;
  });
}

TEST(CallListTest, AnItemThatRemovesItselfIsCalledToTheEndAndNeverAgain) {
  Calls list;
  std::vector<int> called;
  Calls::Id second = 0;
  const auto kept = std::make_shared<int>(0);
  (void)list.add([&] { called.push_back(1); });
  second = list.add([&, kept] {
    list.remove(second);
    EXPECT_EQ(kept.use_count(), 2);  // the item is still there
    called.push_back(2);
  });
  (void)list.add([&] { called.push_back(3); });

  call_all(list);
  EXPECT_EQ(kept.use_count(), 1);
  call_all(list);

  EXPECT_THAT(called, ElementsAre(1, 2, 3, 1, 3));
}

TEST(CallListTest, AnItemThatRemovesItselfInACallWithinACallLastsUntilTheFirstHasEnded) {
  Calls list;
  int calls = 0;
  Calls::Id id = 0;
  const auto kept = std::make_shared<int>(0);
  id = list.add([&, kept] {
    if (++calls == 1) {
      call_all(list);
      EXPECT_EQ(kept.use_count(), 2);
    } else {
      list.remove(id);
    }
  });

  call_all(list);

  EXPECT_EQ(calls, 2);
  EXPECT_EQ(kept.use_count(), 1);
}

}  // namespace
}  // namespace cgtree
