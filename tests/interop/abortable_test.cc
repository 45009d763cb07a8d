// A handle that is aborted while other threads use it is freed once, after their uses.
#include "extensions/ranks/abortable.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

namespace cgtree::testing {
namespace {

using namespace std::chrono_literals;

TEST(AbortableTest, AHandleIsNotFreedWhileItIsUsed) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> frees{0};
    std::atomic<int> uses{0};
    std::atomic<int> uses_after_free{0};
    Abortable life([&] { ++frees; }, 60s);
    {
      std::vector<std::jthread> threads;
      std::latch begun(3);
      for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
          for (bool first = true;; first = false) {
            const Abortable::Use use = life.use();
            if (!use) return;
            ++uses;
            uses_after_free += frees;
            std::this_thread::yield();
            uses_after_free += frees;
            if (first) begun.count_down();
          }
        });
      }
      begun.wait();
      life.abort("it is over");
    }
    EXPECT_TRUE(life.end());
    EXPECT_EQ(frees, 1);
    EXPECT_GE(uses, 3);
    EXPECT_EQ(uses_after_free, 0);
  }
}

// As a library's call that waits for another process.
TEST(AbortableTest, AUseThatOnlyTheAbortEndsDoesNotHoldItUp) {
  std::latch begun(1);
  std::latch freed(1);
  Abortable life([&] { freed.count_down(); }, 10ms);
  std::jthread stuck([&] {
    const Abortable::Use use = life.use();
    EXPECT_TRUE(use);
    begun.count_down();
    freed.wait();
  });
  begun.wait();
  life.abort("it has not come");
  freed.wait();
}

TEST(AbortableTest, AbortDoesNotWaitForTheHandleToBeFreed) {
  std::latch may_free(1);
  std::atomic<bool> is_freed{false};
  Abortable life([&] {
    may_free.wait();
    is_freed = true;
  });
  life.abort("first");
  life.abort("second");
  EXPECT_FALSE(is_freed);
  EXPECT_TRUE(life.is_aborted());
  EXPECT_EQ(life.why(), "first");
  EXPECT_FALSE(life.use());
  may_free.count_down();
  EXPECT_TRUE(life.end());
  EXPECT_TRUE(is_freed);
}

TEST(AbortableTest, AHandleThatWasNotAbortedIsNotFreed) {
  bool is_freed = false;
  Abortable life([&] { is_freed = true; });
  { EXPECT_TRUE(life.use()); }
  EXPECT_FALSE(life.end());
  life.abort("too late");
  EXPECT_FALSE(life.is_aborted());
  EXPECT_FALSE(life.end());
  EXPECT_FALSE(is_freed);
}

}  // namespace
}  // namespace cgtree::testing
