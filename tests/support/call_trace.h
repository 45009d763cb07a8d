// CallTrace: a device in front of another that records every call.
#pragma once

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "interop/device/device_api.h"
#include "tests/support/forwarding_device.h"

namespace cgtree::testing {

struct TracedCall {
  std::thread::id thread;
  const char* function;
  CallKind kind;
  StreamHandle stream;  // kNull if the function has none
  Code code;
  bool is_captured;  // a capture begun through the trace was open
};

// Returns text such as "launch on stream 0x7: 900", for messages.
std::string to_string(const TracedCall& call);

// Works with every device. Attributes, last errors and functions that map memory are not traced.
//
// Thread safety: any thread.
class CallTrace final : private CallHook {
 public:
  // Requires: `target` outlives the trace.
  explicit CallTrace(DeviceAPI& target) : device_(target, *this) {}

  DeviceAPI& device() noexcept { return device_; }

  std::vector<TracedCall> calls() const;
  void clear();
  std::vector<TracedCall> calls_of(CallKind kind) const;
  std::size_t count(std::string_view function) const;
  // Returns the allocations and frees while a capture was open.
  std::vector<TracedCall> memory_calls_under_capture() const;

 private:
  Code around(const DeviceCall& call, Forward forward) override;

  ForwardingDevice device_;
  mutable std::mutex mutex_;
  std::vector<TracedCall> calls_;
  int open_captures_ = 0;
};

}  // namespace cgtree::testing
