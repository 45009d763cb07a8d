// A device of the user's own: the host's functions, counted, under a context.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "cgtree/cgtree.h"
#include "interop/device/host/host_device.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/steps.h"

namespace cgtree::testing {
namespace {

class Counter final : public CallHook {
 public:
  Code around(const DeviceCall& call, Forward forward) override {
    ++calls[call.function];
    return forward();
  }
  std::map<std::string, int> calls;
};

class CountingDevice final : public ForwardingDevice {
 public:
  explicit CountingDevice(Counter& counter) : ForwardingDevice(host_device_api(), counter) {}
  std::string_view name() const noexcept override { return "counting"; }
};

TEST(UserDeviceTest, AContextRecordsAndReplaysOnIt) {
  static auto* const counter = new Counter;
  static auto* const api = new CountingDevice(*counter);  // lives as long as the process
  register_device_api(DeviceType::kFirstUserType, *api);
  const Device device = parse_device("counting:0");
  EXPECT_EQ(to_string(device), "counting:0");
  {
    Context context(device);
    const auto f = compile(context, "f", [](Tensor x) { return affine(x, 2, 1); });
    const std::vector<float> values = {1, 2, 3};
    const Tensor x = from_host<float>({3}, values, device);
    for (int call = 0; call < 4; ++call) {
      context.mark_step();
      EXPECT_EQ(f(x).to_vector<float>(), (std::vector<float>{3, 5, 7}));
    }
    EXPECT_EQ(f.stats().replays, 2u);
  }
  EXPECT_EQ(counter->calls["begin_capture"], 1);
  EXPECT_EQ(counter->calls["launch"], 3);  // of the recording: once recorded, and two replays
  EXPECT_GT(counter->calls["launch_kernel"], 0);
  EXPECT_EQ(counter->calls["alloc_data_space"], counter->calls["free_data_space"]);
  EXPECT_EQ(counter->calls["create_stream"], counter->calls["destroy_stream"]);
}

}  // namespace
}  // namespace cgtree::testing
