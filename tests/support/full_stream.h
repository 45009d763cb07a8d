// FullStream: a device with a stream whose queue is full or whose work does not end.
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

// Registers itself as the device of a HostSlot during its lifetime. It forwards to the host device,
// and blocks calls as a GPU does, until drain():
//
//   after fill(s)    calls that enqueue on s, record on it, wait for it or query it. While such
//                    a call blocks, calls that make or destroy events and streams, allocate or free
//                    memory block, too: the driver holds a lock.
//   after stall()    calls that wait for any stream, or for an event.
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
  // A call blocks at most this long, so that a hanging test fails.
  static constexpr std::chrono::seconds kMost{20};

  bool must_block(const DeviceCall& call) const;

  ForwardingDevice device_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  std::optional<StreamHandle> full_;
  bool is_stalled_ = false;
  int blocked_ = 0;
};

// Runs `function` on a new thread. Returns true if it returns within five seconds. The future
// written to `thread` waits for the thread in its destructor.
bool ends_soon(std::future<void>& thread, std::function<void()> function);

}  // namespace cgtree::testing
