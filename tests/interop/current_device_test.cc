// Work goes to the given stream, for any current device of the thread; work that cannot be noted is
// waited for.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "interop/device/code.h"
#include "interop/device/kernel.h"
#include "interop/device/stream.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "simulator/host_device.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/host_slot.h"

namespace cgtree::testing {
namespace {

// The host device with a current device, as in CUDA. Records the current device of each call with a
// stream.
class CurrentDevice final : public ForwardingDevice {
 public:
  struct Hook final : CallHook {
    Code around(const DeviceCall& call, Forward forward) override {
      const std::string text = call.function;
      if (call.kind == CallKind::kWork || call.kind == CallKind::kSynchronize ||
          text == "capture_info") {
        calls.push_back(text + " " + std::to_string(current));
      }
      return forward();
    }
    int current = 0;
    std::vector<std::string> calls;
  };

  explicit CurrentDevice(Hook& hook) : ForwardingDevice(host_device_api(), hook), own_(hook) {}

  Code set_device(int id) override {
    own_.current = id;
    return Code::kSuccess;
  }
  Code current_device(int* id) override {
    *id = own_.current;
    return Code::kSuccess;
  }

 private:
  Hook& own_;
};

class CurrentDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override { HostSlot::instance().put(api_); }
  void TearDown() override { HostSlot::instance().put(host_device_api()); }
  static Device device(int id) { return {HostSlot::instance().device().type, id}; }
  static StreamRef legacy(int id) { return {device(id), StreamHandle::kLegacy}; }
  std::vector<std::string> take() { return std::exchange(hook_.calls, {}); }

  CurrentDevice::Hook hook_;
  CurrentDevice api_{hook_};
};

using Calls = std::vector<std::string>;

TEST_F(CurrentDeviceTest, KernelsAndCopiesGoToTheDeviceOfTheirStream) {
  const std::vector<float> values = {1, 2, 3};
  const Tensor from = from_host<float>({3}, values, device(1));
  const Tensor to = empty({3}, DType::kFloat32, device(1));
  (void)take();

  copy(to, from, legacy(1));
  copy_elements(legacy(1), to, from);
  float* const data = to.data<float>();
  parallel_for(legacy(1), 3, [data](std::int64_t i) { data[i] += 1; });

  EXPECT_EQ(take(), (Calls{"copy 1", "launch_kernel 1", "launch_kernel 1"}));
  EXPECT_EQ(hook_.current, 0);
  EXPECT_EQ(to.to_vector<float>(), (std::vector<float>{2, 3, 4}));
}

TEST_F(CurrentDeviceTest, TheDefaultStreamThatIsWaitedForIsThatOfItsDevice) {
  legacy(1).synchronize();
  EXPECT_FALSE(legacy(1).is_capturing());
  EXPECT_EQ(take(), (Calls{"synchronize_stream 1", "capture_info 1"}));
}

// The event of the other stream is recorded on its device, and waited for on this one.
TEST_F(CurrentDeviceTest, TheDefaultStreamThatWaitsIsThatOfItsDevice) {
  legacy(1).wait_for(legacy(2));
  EXPECT_EQ(take(), (Calls{"record_event 2", "wait_event 1"}));

  const Stream made(device(2));
  (void)take();
  Event event;
  event.record(made);
  event.make_wait(legacy(1));
  EXPECT_EQ(take(), (Calls{"record_event 2", "wait_event 1"}));
  EXPECT_EQ(hook_.current, 0);
}

// Throws at each use, after the work was enqueued.
class RefusingOwner final : public StorageOwner {
 public:
  void release(Storage& storage) noexcept override { delete &storage; }
  void used(Storage&, StreamRef) override { throw DeviceError(999, "unknown"); }
};

TEST_F(CurrentDeviceTest, WorkThatCannotBeNotedIsWaitedFor) {
  RefusingOwner owner;
  float value = 0;
  const Stream stream(device(0));
  const StorageRef storage(*new Storage(owner, device(0), stream, &value, sizeof(value)));
  (void)take();

  EXPECT_THROW(note_use(storage, stream), DeviceError);
  EXPECT_EQ(take(), (Calls{"capture_info 0", "synchronize_stream 0"}));
}

}  // namespace
}  // namespace cgtree::testing
