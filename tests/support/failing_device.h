// FailingDevice: the host device as a kind of its own, whose k-th verb answers an error.
#pragma once

#include <optional>
#include <string>

#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "tests/support/forwarding_device.h"

namespace cgtree::testing {

// Which verb of the device is to fail.
struct Fault {
  long at = -1;  // its number, from 0; negative: none
  Code code = Code::kUnknown;
  std::string verb;              // count only this verb; empty: all
  std::optional<VerbKind> kind;  // count only verbs of this kind
};

// Verbs are counted while armed. A verb that fails has done nothing, except that one that gives
// something back (a free, a destroy, the end of a capture) has given it back.
//
// Threads: one.
class FailingDevice {
 public:
  // Registers it on first use.
  static FailingDevice& instance();

  Device device() const noexcept;
  void arm(const Fault& fault);
  void disarm() noexcept;
  // Verbs since arm(), and the one that failed; empty if none has.
  long verbs() const noexcept;
  const std::string& failed_verb() const noexcept;
  // Allocations, streams, events, graphs and executables that were made and not given back.
  long outstanding() const noexcept;

 private:
  FailingDevice();
};

}  // namespace cgtree::testing
