// Groups over MPI: the test starts two ranks of itself with mpirun.
#include "extensions/ranks/mpi_group.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace cgtree::testing {
namespace {

constexpr const char* kRanks = "2";

// Runs on each rank.
TEST(MpiRankTest, DISABLED_VotesAndGathers) {
  const std::unique_ptr<Group> group = make_mpi_group();
  ASSERT_EQ(group->size(), std::stoi(kRanks));
  const auto rank = static_cast<std::uint64_t>(group->rank());
  for (std::uint64_t round = 0; round < 20; ++round) {
    EXPECT_TRUE(agree(*group, true));
    EXPECT_FALSE(agree(*group, rank != round % 2));
    std::vector<std::uint64_t> words(round * 10);
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = (i + rank) % 2 == 0 ? i : ~std::uint64_t{0};
    group->minimum(words);
    for (std::size_t i = 0; i < words.size(); ++i)
      EXPECT_EQ(words[i], i);
    const std::uint64_t mine[] = {rank + round, ~rank};
    EXPECT_EQ(gather(*group, mine),
              (std::vector<std::uint64_t>{round, ~std::uint64_t{0}, round + 1, ~std::uint64_t{1}}));
  }
}

TEST(MpiGroupTest, TheRanksOfMpirunAreAGroup) {
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = std::string("mpirun --allow-run-as-root --oversubscribe -n ") +
                              kRanks + " '" + self +
                              "' --gtest_also_run_disabled_tests --gtest_filter=MpiRankTest.*";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace cgtree::testing
