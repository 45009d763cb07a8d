// A rank that leaves out one of many collectives is named, with the collective.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cgtree/cgtree.h"
#include "extensions/ranks/collectives.h"
#include "extensions/ranks/communicator.h"
#include "extensions/ranks/group.h"
#include "extensions/scopes/scope.h"
#include "extensions/watch/monitor.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"
#include "tests/support/rank_threads.h"
#include "tests/support/ranks.h"
#include "tests/support/steps.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

// Ranks of a group, one of which skips a collective in its recording. It makes up for that once
// after the call, so that only the replay hangs.
class RanksHangTest : public ::testing::TestWithParam<RanksUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_RANKS_ARE_MISSING(GetParam()); }

  // The scope of the last reached mark.
  static std::string reached(const ReplayProgress& replay) {
    std::string scope;
    for (const ReplayMark& mark : replay.marks)
      if (mark.is_reached) scope = mark.scope;
    return scope;
  }
  static void wait_until(const std::function<bool()>& holds) {
    for (int i = 0; i < 30'000; ++i) {
      if (holds()) return;
      std::this_thread::sleep_for(1ms);
    }
    ADD_FAILURE() << "it has not come in half a minute";
  }
};

TEST_P(RanksHangTest, ARankThatLeavesOutOneOf32CollectivesIsNamedWithIt) {
  if (GetParam().most < 2) GTEST_SKIP() << "one device";
  constexpr int kLayers = 32;
  constexpr int kLeftOut = 16;
  const auto watch = std::make_shared<ProgressWatch>(ProgressOptions{.time_limit = 0ms});
  auto groups = make_thread_groups(2);
  auto ends = GetParam().make(2);
  std::atomic<int> launched{0};
  std::atomic<bool> is_told{false};
  std::string text;
  run_on_ranks(2, [&](int rank) {
    const std::shared_ptr<Collectives> collectives =
        std::move(ends[static_cast<std::size_t>(rank)]);
    const std::shared_ptr<Group> group = std::move(groups[static_cast<std::size_t>(rank)]);
    Context context(collectives->device(), {.group = group});
    Communicator communicator(context, collectives);
    watch_progress(context, watch);
    int calls = 0;
    const auto step = compile(context, "step", [&](Tensor x) {
      const bool leaves_out = ++calls == 2 && rank == 1;
      Tensor y = affine(x, 1, 0);
      for (int layer = 0; layer < kLayers; ++layer) {
        const Scope scope("layer " + std::to_string(layer));
        if (leaves_out && layer == kLeftOut) continue;
        communicator.all_reduce(y, y, Reduction::kMaximum);
      }
      return y;
    });
    const Stream stream(collectives->device());
    const Tensor x = empty({4}, DType::kFloat32, collectives->device());
    const std::vector<float> ones(4, 1);
    x.copy_from_host(ones.data(), 4 * sizeof(float), stream);
    stream.synchronize();
    Tensor held;
    for (int call = 0; call < 2; ++call)
      held = step(x);
    const auto make_up = [&] {
      if (rank != 1) return;
      context.eager([&] {
        const Tensor y = affine(x, 1, 0);
        communicator.all_reduce(y, y, Reduction::kMaximum);
      });
    };
    make_up();
    context.synchronize();
    held = Tensor();

    held = step(x);  // hangs on rank 0
    EXPECT_EQ(step.stats().replays, 1u);
    ++launched;
    if (rank == 0) {
      wait_until([&] {
        const auto all = watch->report();
        return launched == 2 && all[1].replays.back().has_ended &&
               reached(all[0].replays.back()) == "layer 30";
      });
      text = to_string(watch->report());
      is_told = true;
    }
    wait_until([&] { return is_told.load(); });
    make_up();
    context.synchronize();
    EXPECT_EQ(held.to_vector<float>(), ones);
  });

  EXPECT_THAT(text, HasSubstr("it is collective 32 of 32, which waits for the other ranks"));
  EXPECT_THAT(text,
              HasSubstr("rank 0 waits in collective 32, 'layer 31': rank 1 has ended replay 1 "
                        "of 'step'"));
  EXPECT_THAT(text, HasSubstr("its recording has 31 collectives where this one has 32, and "
                              "collective 17 is 'layer 17' where here it is 'layer 16'"));
}

INSTANTIATE_TEST_SUITE_P(Devices, RanksHangTest, ::testing::ValuesIn([] {
                           // Other ranks run their work when a thread waits for it.
                           std::vector<RanksUnderTest> all = ranks_under_test();
                           std::erase_if(all, [](const RanksUnderTest& ranks) {
                             return ranks.name != "threads" && ranks.name != "cuda";
                           });
                           return all;
                         }()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
