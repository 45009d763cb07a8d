// DeviceAPI's defaults for a device that overrides only the required functions, and failures of
// those.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "interop/device/device_api.h"
#include "simulator/host_device.h"
#include "tests/support/forwarding_device.h"

namespace cgtree::testing {
namespace {

// Memory of the C library, one stream, no graphs. Records its calls.
class PlainDevice final : public DeviceAPI {
 public:
  std::string_view name() const noexcept override { return "plain"; }
  AttributeValue attribute(int id, DeviceAttribute attribute) noexcept override {
    if (attribute == DeviceAttribute::kExists) return std::int64_t{id == 0};
    return {};
  }
  Code alloc_data_space(int, std::size_t bytes, void** data) override {
    calls.push_back("alloc " + std::to_string(bytes));
    *data = std::malloc(bytes);
    return Code::kSuccess;
  }
  Code free_data_space(int, void* data) override {
    calls.push_back("free");
    std::free(data);
    return Code::kSuccess;
  }
  Code alloc_pinned(std::size_t, void**) override { return Code::kNotSupported; }
  Code free_pinned(void*) override { return Code::kNotSupported; }
  Code copy(StreamHandle, void*, const void*, std::size_t) override {
    calls.push_back("copy");
    return Code::kSuccess;
  }
  Code create_stream(int, StreamKind, StreamHandle* stream) override {
    *stream = StreamHandle::kNull;  // a single queue
    return Code::kSuccess;
  }
  Code destroy_stream(StreamHandle) override { return Code::kSuccess; }
  Code synchronize_stream(StreamHandle stream) override {
    calls.push_back("synchronize " + std::to_string(static_cast<int>(stream)));
    return Code::kSuccess;
  }
  Code query_stream(StreamHandle) override { return Code::kSuccess; }
  Code synchronize_device(int) override { return Code::kSuccess; }

  std::vector<std::string> calls;
};

using Calls = std::vector<std::string>;

TEST(PlainDeviceTest, ItsWorkspaceIsDataSpace) {
  PlainDevice device;
  void* data = nullptr;

  EXPECT_EQ(device.alloc_workspace(0, 100, &data), Code::kSuccess);
  EXPECT_EQ(device.free_workspace(0, data), Code::kSuccess);
  EXPECT_EQ(device.calls, (Calls{"alloc 100", "free"}));
}

TEST(PlainDeviceTest, WithoutEventsTheHostWaitsForTheStream) {
  PlainDevice device;

  EXPECT_EQ(device.sync_stream_from_to(0, StreamHandle::kLegacy, StreamHandle::kPerThread),
            Code::kSuccess);
  EXPECT_EQ(device.calls, (Calls{"synchronize 1"}));
}

TEST(PlainDeviceTest, ACopyBetweenItsDevicesIsACopy) {
  PlainDevice device;
  int x = 0;

  EXPECT_EQ(device.copy_peer(StreamHandle::kNull, &x, 1, &x, 0, 4), Code::kSuccess);
  EXPECT_EQ(device.calls, (Calls{"copy"}));
}

// Fails one function, and counts objects made and destroyed.
class FailOne final : public CallHook {
 public:
  explicit FailOne(std::string function) : function_(std::move(function)) {}
  Code around(const DeviceCall& call, Forward forward) override {
    if (call.function == function_) return Code::kLaunchFailure;
    made += call.kind == CallKind::kMake;
    made -= call.kind == CallKind::kDestroy;
    return forward();
  }
  int made = 0;

 private:
  std::string function_;
};

TEST(PlainDeviceTest, AnEventIsDestroyedWhenOrderingFails) {
  for (const char* function : {"create_event", "record_event", "wait_event"}) {
    FailOne hook(function);
    ForwardingDevice device(host_device_api(), hook);

    EXPECT_EQ(device.sync_stream_from_to(0, StreamHandle::kLegacy, StreamHandle::kPerThread),
              Code::kLaunchFailure)
        << function;
    EXPECT_EQ(hook.made, 0) << function;
  }
}

}  // namespace
}  // namespace cgtree::testing
