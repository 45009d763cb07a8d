// Groups of threads: all ranks get one answer, or one failure that names the cause.
#include "extensions/ranks/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "extensions/ranks/block_group.h"
#include "extensions/ranks/collectives.h"

namespace cgtree::testing {
namespace {

using namespace std::chrono_literals;
using Groups = std::vector<std::unique_ptr<Group>>;
using Words = std::vector<std::uint64_t>;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Calls `body` on a thread for each of the ranks.
void on_ranks(Groups& groups, const std::function<void(Group&)>& body) {
  std::vector<std::jthread> threads;
  for (const auto& group : groups) {
    if (group != nullptr) threads.emplace_back([&] { body(*group); });
  }
}

// Returns the error message of a call of minimum(), or "".
std::string failure_of(Group& group, Words words = {1}) {
  try {
    group.minimum(words);
    return "";
  } catch (const GroupError& error) {
    return std::string(error.message());
  }
}

// Parameter: how groups are made, of threads or over collectives in memory.
class GroupTest : public ::testing::TestWithParam<const char*> {
 protected:
  static Groups make(int size, std::chrono::milliseconds limit = kGroupTimeLimit) {
    if (std::string(GetParam()) == "threads") return make_thread_groups(size, limit);
    Groups groups;
    for (auto& collectives : make_host_collectives(size, limit))
      groups.push_back(make_collectives_group(std::move(collectives)));
    return groups;
  }
};
INSTANTIATE_TEST_SUITE_P(Groups, GroupTest, ::testing::Values("threads", "collectives"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(GroupTest, EachRankGetsTheSmallestOfEachWord) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int size = 1; size <= 8; ++size) {
    Groups groups = make(size);
    constexpr int kRounds = 50;
    std::vector<std::vector<Words>> given(kRounds), got(kRounds);
    for (int round = 0; round < kRounds; ++round) {
      given[round].resize(static_cast<std::size_t>(size));
      got[round].resize(static_cast<std::size_t>(size));
      const std::size_t words = random() % 5 + random() % 2 * 100;
      for (Words& of_rank : given[round]) {
        of_rank.resize(words);
        std::generate(of_rank.begin(), of_rank.end(), std::ref(random));
      }
    }
    on_ranks(groups, [&](Group& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      for (int round = 0; round < kRounds; ++round) {
        got[round][rank] = given[round][rank];
        group.minimum(got[round][rank]);
      }
    });
    for (int round = 0; round < kRounds; ++round) {
      Words expected = given[round][0];
      for (const Words& words : given[round]) {
        for (std::size_t i = 0; i < words.size(); ++i)
          expected[i] = std::min(expected[i], words[i]);
      }
      EXPECT_THAT(got[round], Each(expected)) << size << " ranks, round " << round;
    }
  }
}

TEST_P(GroupTest, TheLargestSizeIsAgreedOn) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20; ++round) {
    Groups groups = make(3);
    std::vector<std::int64_t> sizes(3);
    for (std::int64_t& size : sizes)
      size = static_cast<std::int64_t>(random() % 5 * (random() >> (1 + random() % 60)) / 5);
    on_ranks(groups, [&](Group& group) {
      EXPECT_EQ(agree_size(group, sizes[static_cast<std::size_t>(group.rank())]),
                std::ranges::max(sizes));
    });
  }
}
TEST_P(GroupTest, ANegativeSizeIsRefusedOnAllRanks) {
  Groups groups = make(3);
  on_ranks(groups, [&](Group& group) {
    EXPECT_THAT([&] { agree_size(group, group.rank() == 1 ? -7 : 1'000'000); },
                ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("a rank gives -7")));
    EXPECT_EQ(agree_size(group, group.rank()), 2);
  });
}
TEST_P(GroupTest, RanksAgreeOnlyIfAllSayYes) {
  for (int dissenter = -1; dissenter < 4; ++dissenter) {
    Groups groups = make(4);
    on_ranks(groups, [&](Group& group) {
      EXPECT_EQ(agree(group, group.rank() != dissenter), dissenter < 0);
    });
  }
}

TEST_P(GroupTest, GatherReturnsTheWordsRankByRank) {
  Groups groups = make(3);
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<std::uint64_t>(group.rank());
    EXPECT_THAT(gather(group, Words{rank, ~rank}),
                ElementsAre(0, ~std::uint64_t{0}, 1, ~std::uint64_t{1}, 2, ~std::uint64_t{2}));
    EXPECT_THAT(gather(group, {}), ElementsAre());
  });
}

TEST_P(GroupTest, ARankThatLeavesFailsTheOthersWhereTheyWaitAndLater) {
  Groups groups = make(4);
  std::vector<std::jthread> threads;
  for (const int rank : {0, 1, 3}) {
    threads.emplace_back([&, rank] {
      EXPECT_THAT(failure_of(*groups[static_cast<std::size_t>(rank)]),
                  HasSubstr("rank 2 of 4 has left the "));
    });
  }
  groups[2].reset();
  threads.clear();
  groups[0].reset();  // the first reason is kept
  EXPECT_THAT(failure_of(*groups[3]), HasSubstr("rank 2 of 4 has left the "));
}

TEST_P(GroupTest, ARankMayLeaveWhileOthersStillReadTheLastAnswer) {
  for (int round = 0; round < 200; ++round) {
    Groups groups = make(3);
    std::vector<std::jthread> threads;
    for (auto& group : groups) {
      threads.emplace_back([&group] {
        EXPECT_EQ(failure_of(*group), "");
        group.reset();
      });
    }
  }
}

TEST_P(GroupTest, RanksThatDoNotComeAreNamed) {
  Groups groups = make(3, 50ms);
  const std::string expected = "ranks 0, 2 of 3 did not come within 50 ms";
  EXPECT_EQ(failure_of(*groups[1]), expected);
  EXPECT_EQ(failure_of(*groups[2]), expected) << "it came too late";
  EXPECT_EQ(failure_of(*groups[1]), expected);

  Groups pair = make(2, 50ms);
  EXPECT_EQ(failure_of(*pair[0]), "rank 1 of 2 did not come within 50 ms");
}

TEST_P(GroupTest, AnotherNumberOfWordsFailsOnAllRanks) {
  Groups groups = make(3);
  std::vector<std::string> failures(3);
  on_ranks(groups, [&](Group& group) {
    failures[static_cast<std::size_t>(group.rank())] =
        failure_of(group, Words(group.rank() == 1 ? 3 : 2));
  });
  EXPECT_THAT(failures, Each(AllOf(HasSubstr("of 3 gives"), HasSubstr("3"), HasSubstr("2"),
                                   HasSubstr("do not do the same"))));
}

TEST(ThreadGroupsTest, AGroupNeedsARankAndALimit) {
  EXPECT_THROW(make_thread_groups(0), InvalidArgument);
  EXPECT_THROW(make_thread_groups(-1), InvalidArgument);
  EXPECT_THROW(make_thread_groups(2, 0ms), InvalidArgument);
}

// The other ranks have continued, or did not get this rank's data.
TEST(BlockGroupTest, AfterAnyFailureEachCallThrows) {
  const std::function<void()> failures[] = {
      [] { throw GroupError("rank 1 has left"); },
      [] { throw DeviceError(1, "NCCL could not all-reduce"); },
      [] { throw std::bad_alloc(); },
      [] { throw 5; },
  };
  const char* const expected[] = {"rank 1 has left", "NCCL could not all-reduce", "std::bad_alloc",
                                  "an exception of unknown type"};
  for (std::size_t i = 0; i < std::size(failures); ++i) {
    bool fails = false;
    BlockGroup group(/*rank=*/0, /*size=*/2, [&](BlockGroup::Block&) {
      if (std::exchange(fails, false)) failures[i]();
    });
    EXPECT_TRUE(agree(group, true));
    fails = true;
    EXPECT_ANY_THROW((void)agree(group, true));
    EXPECT_FALSE(fails);
    for (int call = 0; call < 2; ++call)
      EXPECT_THAT(failure_of(group), HasSubstr(expected[i]));
  }
}

}  // namespace
}  // namespace cgtree::testing
