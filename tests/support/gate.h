// A Gate blocks a stream, on devices where enqueued work runs later.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <vector>

#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream.h"
#include "simulator/host_device.h"
#include "tests/support/devices.h"

namespace cgtree::testing {

// Work that keeps a stream busy until open() is called, or for at most kMost, so that a test that
// waits for it fails and does not hang. The stream may be destroyed meanwhile.
class Gate {
 public:
  explicit Gate(StreamRef stream) {
    check(stream.graphs().launch_host_function(stream.handle(), &Gate::wait, this), "close a gate");
  }
  ~Gate() {
    open();
    ended_.get_future().wait();
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Returns true if work behind the gate still waits.
  bool is_closed() const { return !has_ended_; }
  void open() {
    if (!is_open_.exchange(true)) opened_.set_value();
  }

 private:
  static constexpr std::chrono::seconds kMost{2};

  static void wait(void* gate) {
    auto& self = *static_cast<Gate*>(gate);
    (void)self.opened_.get_future().wait_for(kMost);
    self.has_ended_ = true;
    self.ended_.set_value();
  }

  std::promise<void> opened_, ended_;
  std::atomic<bool> is_open_ = false;
  std::atomic<bool> has_ended_ = false;
};

// Returns the host device with a thread for each stream, and GPUs.
inline std::vector<DeviceUnderTest> devices_that_work_later() {
  constexpr auto kType = static_cast<DeviceType>(static_cast<int>(DeviceType::kFirstUserType) + 12);
  static DeviceAPI* const threads = [] {
    DeviceAPI* const made = make_host_device({.executor = HostExecutor::kThreads}).release();
    register_device_api(kType, *made);
    return made;
  }();
  std::vector<DeviceUnderTest> devices = {{"host_threads", {kType, 0}, threads, ""}};
  for (const DeviceUnderTest& device : devices_under_test()) {
    if (device.device.type != DeviceType::kHost) devices.push_back(device);
  }
  return devices;
}

}  // namespace cgtree::testing
