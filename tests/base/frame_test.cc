// Objects of a thread, during and after its run.
#include "base/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace cgtree {
namespace {

using ::testing::ElementsAre;

struct Numbers {
  std::vector<int> all = {1};
  bool has_ended = false;
  ~Numbers() { has_ended = true; }
};

TEST(OfThreadTest, EachThreadHasAnObjectOfAType) {
  of_thread<Numbers>().all = {2, 3};
  std::thread([] { EXPECT_THAT(of_thread<Numbers>().all, ElementsAre(1)); }).join();
  EXPECT_THAT(of_thread<Numbers>().all, ElementsAre(2, 3));
}

// A thread-local variable that was made earlier is destroyed later.
struct Late {
  bool& had_ended;
  std::vector<int>& seen;
  ~Late() {
    had_ended = of_thread<Numbers>().has_ended;
    seen = of_thread<Numbers>().all;
  }
};

TEST(OfThreadTest, DestructorsAtTheEndOfAThreadFindOneThatLives) {
  bool had_ended = false;
  std::vector<int> seen;
  std::thread([&] {
    static thread_local const Late late{had_ended, seen};
    of_thread<Numbers>().all.push_back(2);
  }).join();
  EXPECT_FALSE(had_ended);
  EXPECT_THAT(seen, ElementsAre(1));
}

}  // namespace
}  // namespace cgtree
