// A device of the user: the host device with counted calls, under a context.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/cgtree.h"
#include "extensions/audit/audit_options.h"
#include "extensions/watch/monitor.h"
#include "interop/device/graph_api.h"
#include "interop/tensor/empty.h"
#include "simulator/host_device.h"
#include "tests/support/captured_log.h"
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
  EXPECT_EQ(counter->calls["launch"], 3);  // of the graph: when recorded, and two replays
  EXPECT_GT(counter->calls["launch_kernel"], 0);
  EXPECT_EQ(counter->calls["alloc_data_space"], counter->calls["free_data_space"]);
  EXPECT_EQ(counter->calls["create_stream"], counter->calls["destroy_stream"]);
}

// Notes the order of calls, and can make a call that reads a graph run out of host memory.
class Sequence final : public CallHook {
 public:
  Code around(const DeviceCall& call, Forward forward) override {
    calls.emplace_back(call.function);
    if (has_no_memory && calls.back() == "read_nodes") throw std::bad_alloc();
    return forward();
  }
  std::ptrdiff_t first(std::string_view function) const {
    return std::ranges::find(calls, function) - calls.begin();
  }
  std::vector<std::string> calls;
  bool has_no_memory = false;
};

class SequenceDevice final : public ForwardingDevice {
 public:
  explicit SequenceDevice(Sequence& sequence) : ForwardingDevice(host_device_api(), sequence) {}
  std::string_view name() const noexcept override { return "sequence"; }
};

// Makes the device at the first use.
Sequence& sequence() {
  static Sequence* const made = [] {
    auto* const sequence = new Sequence;
    const auto type = static_cast<DeviceType>(static_cast<int>(DeviceType::kFirstUserType) + 2);
    register_device_api(type, *new SequenceDevice(*sequence));
    return sequence;
  }();
  made->calls.clear();
  made->has_no_memory = false;
  return *made;
}

TEST(UserDeviceTest, ARecordingIsLaunchedBeforeItIsAuditedUnlessTheAuditMayRefuseIt) {
  for (const auto policy : {OnForeignPointer::kRecord, OnForeignPointer::kThrow}) {
    const Sequence& seen = sequence();
    Context context(parse_device("sequence:0"),
                    {.extensions = {audit({.on_foreign_pointer = policy})}});
    const auto f = compile(context, "f", [](Tensor x) { return affine(x, 2, 1); });
    const Tensor x = from_host<float>({1}, std::vector<float>{3}, context.stream().device());
    for (int call = 0; call < 2; ++call)
      EXPECT_EQ(f(x).to_vector<float>()[0], 7);
    ASSERT_EQ(f.stats().recordings, 1u);
    EXPECT_EQ(seen.first("launch") < seen.first("read_nodes"), policy == OnForeignPointer::kRecord);
  }
}

// The step function has only the address of the output.
TEST(UserDeviceTest, AnAuditThatRunsOutOfHostMemoryKeepsWhatTheGraphMayReferTo) {
  Sequence& seen = sequence();
  Context context(parse_device("sequence:0"));
  const auto make = compile(context, "make", [](Tensor x) { return affine(x, 2, 1); });
  const auto f = compile(context, "f", [](Tensor x) { return affine(x, 1, 1); });
  const Tensor x = from_host<float>({1}, std::vector<float>{3}, context.stream().device());
  {
    const Tensor held = make(x);
    seen.has_no_memory = true;
    for (int call = 0; call < 2; ++call)
      EXPECT_EQ(f(x).to_vector<float>()[0], 4);
  }
  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(context.stats().live_outputs, 1u);
  EXPECT_THAT(snapshot_json(context), ::testing::HasSubstr("the host's memory was short"));
  EXPECT_EQ(f(x).to_vector<float>()[0], 4);
  EXPECT_EQ(f.stats().replays, 1u);
}

}  // namespace
}  // namespace cgtree::testing
