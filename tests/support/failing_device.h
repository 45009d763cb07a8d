// FailingDevice: a registered host device whose k-th call returns an error.
#pragma once

#include <optional>
#include <string>

#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "tests/support/forwarding_device.h"

namespace cgtree::testing {

// A Fault says which call fails.
struct Fault {
  long at = -1;  // the call's number, from 0; negative: no call
  Code code = Code::kUnknown;
  std::string function;          // counts only calls of this function; empty: all
  std::optional<CallKind> kind;  // counts only calls of this kind
};

// Calls are counted while the device is armed. A failing call has no effect, except that a free, a
// destroy or the end of a capture happens.
//
// Thread safety: one thread.
class FailingDevice {
 public:
  // Registers it on first use.
  static FailingDevice& instance();

  Device device() const noexcept;
  void arm(const Fault& fault);
  void disarm() noexcept;
  // Return the number of calls since arm(), and the function that failed, or "".
  long calls() const noexcept;
  const std::string& failed_function() const noexcept;
  // Returns the number of allocations, streams, events, graphs and executables that exist.
  long outstanding() const noexcept;

 private:
  FailingDevice();
};

}  // namespace cgtree::testing
