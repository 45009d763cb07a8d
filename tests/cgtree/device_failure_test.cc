// A sticky error of a device: the marks of the failed replay are reported once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cgtree/cgtree.h"
#include "extensions/progress/context_progress.h"
#include "extensions/scopes/scope.h"
#include "extensions/watch/monitor.h"
#include "interop/device/code.h"
#include "simulator/strict_memory.h"
#include "tests/support/captured_log.h"
#include "tests/support/host_slot.h"
#include "tests/support/random_steps.h"
#include "tests/support/steps.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

TEST(StickyCodeTest, OnlyFailuresOfKernelsEndADevice) {
  EXPECT_TRUE(is_sticky(Code::kIllegalAddress));
  EXPECT_TRUE(is_sticky(Code::kLaunchFailure));
  for (const Code code : {Code::kSuccess, Code::kMemoryAllocation, Code::kNotReady,
                          Code::kContextIsDestroyed, Code::kStreamCaptureInvalidated}) {
    EXPECT_FALSE(is_sticky(code)) << name(code);
  }
}

// A step of three scopes, whose second scope fails while `is_broken`. The host device skips the
// nodes after it, as a GPU does after a sticky error.
class DeviceFailureTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kCount = 32;

  auto compile_step() {
    return compile(context_, "f", [this](Tensor x) {
      Tensor y;
      {
        const Scope scope("first");
        y = affine(x, 2, 0);
      }
      {
        const Scope scope("second");
        launch_refusable(&is_broken_);
      }
      const Scope scope("third");
      return affine(y, 2, 0);
    });
  }
  // Warms up, records and replays.
  template <typename F>
  void prepare(const F& f) {
    for (int call = 0; call < 4; ++call)
      (void)f(x_);
  }
  template <typename F>
  void fail(const F& f) {
    is_broken_ = true;
    EXPECT_THROW((void)f(x_), DeviceError);
    is_broken_ = false;
  }

  bool is_broken_ = false;
  Context context_{Device::host()};
  const std::vector<float> ones_ = std::vector<float>(kCount, 1);
  const Tensor x_ = from_host({kCount}, std::span<const float>(ones_), Device::host());
};

TEST_F(DeviceFailureTest, TheFailedReplayIsToldOnceWithItsMarks) {
  std::vector<std::string> told;
  watch_progress(context_, std::make_shared<ProgressWatch>(ProgressOptions{
                               .time_limit = 0ms, .on_timeout = [&](const std::string& text) {
                                 told.push_back(text);
                               }}));
  const auto f = compile_step();
  prepare(f);
  EXPECT_THAT(told, IsEmpty());

  fail(f);
  EXPECT_THAT(told, ElementsAre(AllOf(
                        HasSubstr("the device has failed"), HasSubstr("no time limit"),
                        HasSubstr("cudaErrorLaunchFailure"), HasSubstr("replay 3 of 'f'"),
                        HasSubstr("reached      mark 2 of 4, behind 'first'"),
                        HasSubstr("not reached  mark 3 of 4, behind 'second': kernel throw_if"))));
  fail(f);
  EXPECT_EQ(told.size(), 1u);
}

TEST_F(DeviceFailureTest, WithoutAFunctionTheLogHasIt) {
  const CapturedLog log(LogLevel::kError);
  watch_progress(context_, std::make_shared<ProgressWatch>(ProgressOptions{.time_limit = 0ms}));
  const auto f = compile_step();
  prepare(f);
  fail(f);
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("device_failed"),
                                             HasSubstr("not reached  mark 3 of 4"))));
}

TEST_F(DeviceFailureTest, OtherErrorsAreNotTold) {
  std::vector<std::string> told;
  watch_progress(context_, std::make_shared<ProgressWatch>(ProgressOptions{
                               .time_limit = 0ms, .on_timeout = [&](const std::string& text) {
                                 told.push_back(text);
                               }}));
  const auto f = compile(context_, "f", [](Tensor) -> Tensor {
    throw DeviceError(static_cast<int>(Code::kInvalidValue), "an argument is out of range");
  });
  EXPECT_THROW((void)f(x_), DeviceError);
  EXPECT_THAT(told, IsEmpty());
}

// A device with a queue reports the failure at a wait, not at the launch.
TEST(DeviceFailureOfAQueueTest, AWaitTellsIt) {
  const StrictHostDevice host = make_strict_host_device({.executor = HostExecutor::kThreads});
  HostSlot::instance().put(*host.device);
  std::vector<std::string> told;
  {
    Context context(HostSlot::instance().device());
    void* table = nullptr;
    check(host.device->alloc_data_space(0, sizeof(float), &table), "allocate");
    watch_progress(context, std::make_shared<ProgressWatch>(ProgressOptions{
                                .time_limit = 0ms, .on_timeout = [&](const std::string& text) {
                                  told.push_back(text);
                                }}));
    const auto f = compile(context, "f", [table](Tensor x) {
      const StreamRef stream = current_stream();
      check(stream.graphs().memset(stream.handle(), table, 0, sizeof(float)), "clear");
      return affine(x, 2, 0);
    });
    const float one = 1;
    const Tensor x = from_host({1}, std::span(&one, 1), context.device());
    for (int call = 0; call < 4; ++call)
      (void)f(x);
    context.synchronize();
    check(host.device->free_data_space(0, table), "free");
    EXPECT_THROW(
        {
          (void)f(x);
          context.synchronize();
        },
        DeviceError);
  }
  EXPECT_THAT(told, ElementsAre(AllOf(HasSubstr("synchronize stream"), HasSubstr("of 'f'"))));
  HostSlot::instance().put(host_device_api());
}

}  // namespace
}  // namespace cgtree::testing
