// Who may enter a context while who is inside.
#include "cgtree/tree/door.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "interop/device/stream.h"

namespace cgtree {
namespace {

class DoorTest : public ::testing::Test {
 protected:
  int upkeeps_ = 0;
  ContextStream stream_{StreamRef(), /*is_shared=*/false};
  StorageDomain domain_;
  Door door_{stream_, domain_, [this] {
               ++upkeeps_;
               return Door::Leftovers(
                   this, [](void* test) { static_cast<DoorTest*>(test)->left_over(); });
             }};

  void left_over() {
    could_enter_ = door_.enter();
    if (could_enter_) door_.leave();
  }
  bool could_enter_ = false;
};

TEST_F(DoorTest, ASecondCallerIsTurnedAwayUntilTheFirstHasLeft) {
  ASSERT_TRUE(door_.enter());
  EXPECT_FALSE(door_.enter());
  EXPECT_FALSE(door_.enter_for_upkeep());
  EXPECT_THROW(Visit{door_}, ConcurrentUse);
  door_.leave();

  EXPECT_TRUE(door_.enter());
}

TEST_F(DoorTest, ACallerWaitsForUpkeepOnAnotherThread) {
  ASSERT_TRUE(door_.enter_for_upkeep());
  std::future<bool> entered = std::async(std::launch::async, [&] { return door_.enter(); });
  EXPECT_EQ(entered.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_FALSE(door_.enter_for_upkeep());
  door_.leave_upkeep();

  EXPECT_TRUE(entered.get());
}

// It would wait for itself.
TEST_F(DoorTest, WhatUpkeepCallsBackIsTurnedAway) {
  ASSERT_TRUE(door_.enter_for_upkeep());
  EXPECT_FALSE(door_.enter());
  door_.leave_upkeep();
}

TEST_F(DoorTest, UpkeepIsDoneAtOnceOrAtTheNextVisit) {
  door_.request_upkeep();
  EXPECT_EQ(upkeeps_, 1);
  {
    const Visit visit(door_);
    door_.request_upkeep();
    EXPECT_EQ(upkeeps_, 1);
  }
  { const Visit visit(door_); }
  { const Visit visit(door_); }
  EXPECT_EQ(upkeeps_, 2);
}

// What was undeclared before a call must not be replayed by it.
TEST_F(DoorTest, UpkeepThatMetAnInspectionIsDoneBeforeTheNextVisitBegins) {
  for (int round = 1; round <= 20; ++round) {
    std::optional<Inspection> inspection(std::in_place, door_);
    std::future<int> visited = std::async(std::launch::async, [&] {
      door_.request_upkeep();  // finds the inspection inside
      const Visit visit(door_);
      return upkeeps_;
    });
    if (round % 2 == 0) (void)visited.wait_for(std::chrono::milliseconds(2));
    inspection.reset();
    EXPECT_EQ(visited.get(), round);
  }
}

TEST_F(DoorTest, UpkeepThatMetAnInspectionIsDoneBeforeTheNextInspection) {
  {
    const Inspection first(door_);
    std::async(std::launch::async, [&] { door_.request_upkeep(); }).get();
    EXPECT_EQ(upkeeps_, 0);
  }
  const Inspection second(door_);
  EXPECT_EQ(upkeeps_, 1);
}

TEST_F(DoorTest, WhatUpkeepLeavesOverMayEnter) {
  door_.request_upkeep();
  EXPECT_TRUE(could_enter_);
  could_enter_ = false;
  {
    const Visit visit(door_);
    door_.request_upkeep();
  }
  { const Visit visit(door_); }
  EXPECT_TRUE(could_enter_);
}

// Each thread has opened as many scopes as the other.
TEST(DoorStreamTest, ACaptureOfAnotherThreadIsSeenThatHasOpenedAsManyScopes) {
  const Stream stream(Device::host());
  ContextStream of_context(stream, /*is_shared=*/true);
  const StorageDomain domain;
  Door door(of_context, domain, [] { return Door::Leftovers(nullptr, [](void*) {}); });
  GraphAPI& graphs = stream.ref().graphs();

  std::thread([&] {
    const StreamScope scope(stream);
    Visit visit(door);
    EXPECT_TRUE(visit.may_predict());
    visit.begin();
  }).join();
  std::thread([&] {
    check(graphs.begin_capture(stream.ref().handle(), CaptureMode::kThreadLocal), "begin");
    {
      const StreamScope scope(stream);
      const Visit visit(door);
      EXPECT_FALSE(visit.may_predict());
      EXPECT_EQ(visit.ask_foreign_capture(), stream.ref());
    }
    GraphHandle graph = GraphHandle::kNull;
    check(graphs.end_capture(stream.ref().handle(), &graph), "end");
    check(graphs.destroy_graph(graph), "destroy");
  }).join();
}

// A thread takes numbers of scopes in blocks.
TEST(DoorStreamTest, NoTwoScopesOfTheProcessHaveTheSameNumber) {
  const Stream stream(Device::host());
  const auto numbers = [&] {
    std::set<std::uint64_t> found;
    for (int i = 0; i < 3 << 20; ++i) {
      const StreamScope scope(stream);
      if (i % (1 << 10) < 2) found.insert(last_stream_scope());
    }
    return found;
  };
  std::future<std::set<std::uint64_t>> other = std::async(std::launch::async, numbers);
  std::set<std::uint64_t> all = numbers();
  all.merge(other.get());
  EXPECT_EQ(all.size(), 2u * 3 * (1 << 10) * 2);
}

}  // namespace
}  // namespace cgtree
