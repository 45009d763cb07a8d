// FailingDevice: the host device as a kind of its own, whose k-th call returns an error.
#pragma once

#include <optional>
#include <string>

#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "tests/support/forwarding_device.h"

namespace cgtree::testing {

// A Fault says which call fails.
struct Fault {
  long at = -1;  // its number, from 0; negative: no call
  Code code = Code::kUnknown;
  std::string function;          // count only calls of this function; empty: all
  std::optional<CallKind> kind;  // count only calls of this kind
};

// Calls are counted while armed. A call that fails has no effect, except that a free, a destroy and
// the end of a capture have happened.
//
// Thread safety: one thread.
class FailingDevice {
 public:
  // Registers it on first use.
  static FailingDevice& instance();

  Device device() const noexcept;
  void arm(const Fault& fault);
  void disarm() noexcept;
  // Return the calls since arm(), and the function that failed; empty if none has.
  long calls() const noexcept;
  const std::string& failed_function() const noexcept;
  // Returns how many allocations, streams, events, graphs and executables exist.
  long outstanding() const noexcept;

 private:
  FailingDevice();
};

}  // namespace cgtree::testing
