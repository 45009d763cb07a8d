// Green contexts: a call runs on the SMs of the stream on which it is made.
#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <vector>

#include "cgtree/steps.h"
#include "interop/device/code.h"
#include "tests/cgtree/green_context.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

std::vector<DeviceUnderTest> gpus() {
  std::vector<DeviceUnderTest> found;
  for (const DeviceUnderTest& device : devices_under_test())
    if (device.device.type == DeviceType::kCuda) found.push_back(device);
  return found;
}

class GreenContextTest : public TreeTest {
 protected:
  static constexpr unsigned kSms = 16;

  void SetUp() override {
    TreeTest::SetUp();
    if (IsSkipped()) return;
    green_ = GreenContext::make(kSms);
    if (green_ == nullptr) GTEST_SKIP() << "the driver has no green contexts";
    all_ = sms_of([&] { note_sms(words(), context().stream().native()); });
    ASSERT_GT(all_, static_cast<int>(green_->sms()));
  }
  void TearDown() override {
    words_ = Tensor();
    if (green_ != nullptr) retire_stream(stream());
    TreeTest::TearDown();
    green_.reset();
  }

  StreamRef stream() const {
    return StreamRef(device_api(device()), device(),
                     static_cast<StreamHandle>(reinterpret_cast<std::uintptr_t>(green_->stream())));
  }
  int part() const { return static_cast<int>(green_->sms()); }
  std::uint32_t* words() { return tensor_of_words().data<std::uint32_t>(); }
  Tensor tensor_of_words() {
    if (!words_.defined()) words_ = empty({kSmWords}, DType::kUInt32, device());
    return words_;
  }
  // Returns the number of SMs on which the work ran.
  template <typename Work>
  int sms_of(const Work& work) {
    work();
    check(device_api(device()).synchronize_device(device().id), "wait");
    int count = 0;
    for (const std::uint32_t word : tensor_of_words().to_vector<std::uint32_t>())
      count += std::popcount(word);
    return count;
  }
  static auto noting(Context& context) {
    return compile(context, "sms",
                   [](Tensor x) { note_sms(x.data<std::uint32_t>(), current_stream().native()); },
                   {.inputs = {{.is_static = true, .is_mutated = true}}});
  }

  std::unique_ptr<GreenContext> green_;
  Tensor words_;
  int all_ = 0;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GreenContextTest);
INSTANTIATE_TEST_SUITE_P(Gpus, GreenContextTest, ::testing::ValuesIn(gpus()), device_name);

TEST_P(GreenContextTest, ACallRunsOnTheSmsOfItsStream) {
  const auto f = noting(context());
  for (int call = 0; call < 4; ++call) {
    const StreamScope scope(stream());
    EXPECT_EQ(sms_of([&] { f(tensor_of_words()); }), part()) << call;
    EXPECT_EQ(f.last_outcome()->skip_reason, SkipReason::kOtherPartition);
  }
  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(sms_of([&] { f(tensor_of_words()); }), all_) << call;
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
}

TEST_P(GreenContextTest, AContextOfAGreenStreamRecordsAndReplaysOnItsSms) {
  Context own(device(), {.stream = stream()});
  const auto f = noting(own);
  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(sms_of([&] { f(tensor_of_words()); }), part()) << call;
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(GreenContextTest, StepsRunOnTheSmsOfTheirStream) {
  for (const bool is_home : {false, true}) {
    Context own(device(), is_home ? ContextOptions{.stream = stream()} : ContextOptions());
    Steps steps(own, "engine", {.bindings = {{.name = "x", .is_mutated = true}}});
    const Stream whole(device());
    const Binding binding{words(), kSmWords * sizeof(std::uint32_t)};
    for (const bool is_green : {true, true, true, true, false, false, true}) {
      const StreamRef on = is_green ? stream() : whole.ref();
      const int ran_on = sms_of([&] {
        for (Step step = steps.begin(Key(), {&binding, 1}, on); step.must_run(); step.end())
          note_sms(words(), on.native());
      });
      EXPECT_EQ(ran_on, is_green ? part() : all_);
    }
    EXPECT_EQ(steps.stats().replays > 0, is_home);
  }
}

}  // namespace
}  // namespace cgtree::testing
