// Entry into a context while a call, upkeep or an inspection is inside.
#include "cgtree/tree/gate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream.h"

namespace cgtree {
namespace {

class GateTest : public ::testing::Test {
 protected:
  int upkeeps_ = 0;
  ContextStream stream_{StreamRef(), /*is_shared=*/false};
  StorageDomain domain_;
  Gate gate_{stream_, domain_, [this] {
               ++upkeeps_;
               return Gate::Leftovers(
                   this, [](void* test) { static_cast<GateTest*>(test)->left_over(); });
             }};

  void left_over() {
    could_enter_ = gate_.enter();
    if (could_enter_) gate_.leave();
  }
  bool could_enter_ = false;
};

TEST_F(GateTest, ASecondCallerIsTurnedAwayUntilTheFirstHasLeft) {
  ASSERT_TRUE(gate_.enter());
  EXPECT_FALSE(gate_.enter());
  EXPECT_FALSE(gate_.enter_for_upkeep());
  EXPECT_THROW(Entry{gate_}, ConcurrentUse);
  gate_.leave();

  EXPECT_TRUE(gate_.enter());
}

TEST_F(GateTest, ACallerWaitsForUpkeepOnAnotherThread) {
  ASSERT_TRUE(gate_.enter_for_upkeep());
  std::future<bool> entered = std::async(std::launch::async, [&] { return gate_.enter(); });
  EXPECT_EQ(entered.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_FALSE(gate_.enter_for_upkeep());
  gate_.leave_upkeep();

  EXPECT_TRUE(entered.get());
}

// A wait would be for itself.
TEST_F(GateTest, CallbacksOfUpkeepAreRefused) {
  ASSERT_TRUE(gate_.enter_for_upkeep());
  EXPECT_FALSE(gate_.enter());
  gate_.leave_upkeep();
}

TEST_F(GateTest, UpkeepIsDoneAtOnceOrAtTheNextEntry) {
  gate_.request_upkeep();
  EXPECT_EQ(upkeeps_, 1);
  {
    const Entry entry(gate_);
    gate_.request_upkeep();
    EXPECT_EQ(upkeeps_, 1);
  }
  { const Entry entry(gate_); }
  { const Entry entry(gate_); }
  EXPECT_EQ(upkeeps_, 2);
}

// Memory that was undeclared before a call must not be used by its replay.
TEST_F(GateTest, UpkeepThatMetAnInspectionIsDoneBeforeTheNextEntryBegins) {
  for (int round = 1; round <= 20; ++round) {
    std::optional<Inspection> inspection(std::in_place, gate_);
    std::future<int> visited = std::async(std::launch::async, [&] {
      gate_.request_upkeep();  // during the inspection
      const Entry entry(gate_);
      return upkeeps_;
    });
    if (round % 2 == 0) (void)visited.wait_for(std::chrono::milliseconds(2));
    inspection.reset();
    EXPECT_EQ(visited.get(), round);
  }
}

TEST_F(GateTest, UpkeepThatMetAnInspectionIsDoneBeforeTheNextInspection) {
  {
    const Inspection first(gate_);
    std::async(std::launch::async, [&] { gate_.request_upkeep(); }).get();
    EXPECT_EQ(upkeeps_, 0);
  }
  const Inspection second(gate_);
  EXPECT_EQ(upkeeps_, 1);
}

TEST_F(GateTest, ObjectsLeftByUpkeepMayEnter) {
  gate_.request_upkeep();
  EXPECT_TRUE(could_enter_);
  could_enter_ = false;
  {
    const Entry entry(gate_);
    gate_.request_upkeep();
  }
  { const Entry entry(gate_); }
  EXPECT_TRUE(could_enter_);
}

// Both threads have opened the same number of scopes.
TEST(DoorStreamTest, ACaptureOfAnotherThreadIsSeenThatHasOpenedAsManyScopes) {
  const Stream stream(Device::host());
  ContextStream of_context(stream, /*is_shared=*/true);
  const StorageDomain domain;
  Gate gate(of_context, domain, [] { return Gate::Leftovers(nullptr, [](void*) {}); });
  GraphAPI& graphs = stream.ref().graphs();

  std::thread([&] {
    const StreamScope scope(stream);
    Entry entry(gate);
    EXPECT_TRUE(entry.may_predict());
    entry.begin();
  }).join();
  std::thread([&] {
    check(graphs.begin_capture(stream.ref().handle(), CaptureMode::kThreadLocal), "begin");
    {
      const StreamScope scope(stream);
      const Entry entry(gate);
      EXPECT_FALSE(entry.may_predict());
      EXPECT_EQ(entry.ask_foreign_capture(), stream.ref());
    }
    GraphHandle graph = GraphHandle::kNull;
    check(graphs.end_capture(stream.ref().handle(), &graph), "end");
    check(graphs.destroy_graph(graph), "destroy");
  }).join();
}

// Each thread reserves numbers for its scopes in blocks.
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
