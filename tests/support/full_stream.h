// FullStream: a device with one stream whose queue is full, or whose work does not end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <optional>

#include "interop/device/code.h"
#include "interop/device/device.h"
#include "tests/support/forwarding_device.h"

namespace cgtree::testing {

// The device of a HostSlot while it lives. It stands in front of the host device, and blocks calls
// as a GPU does, until drain():
//
//   after fill(s)    calls that enqueue on s, record on it, wait for it or query it. While one of
//                    them blocks, so do those that make or destroy events and streams, and that
//                    allocate or free memory: the driver has a lock of its own.
//   after stall()    calls that wait: for any stream, or for an event.
//
// Measured on an H100 (driver 580), behind 1,021 launches.
class FullStream final : public CallHook {
 public:
  FullStream();
  ~FullStream() override;

  Device device() const noexcept;
  void fill(StreamHandle stream);
  void stall();
  void drain();
  // Returns once a thread is blocked, or false after some seconds.
  bool wait_until_blocked();

  Code around(const DeviceCall& call, Forward forward) override;

 private:
  // A call that is blocked for so long goes on, so that a test that would hang fails.
  static constexpr std::chrono::seconds kMost{20};

  bool must_block(const DeviceCall& call) const;

  ForwardingDevice device_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::optional<StreamHandle> full_;
  bool is_stalled_ = false;
  int blocked_ = 0;
};

// Runs `function` on a thread of its own, and returns whether it has returned after at most five
// seconds. The thread is waited for by the destructor of what ends_soon() writes to `thread`.
bool ends_soon(std::future<void>& thread, std::function<void()> function);

}  // namespace cgtree::testing
