// The devices under test for which kernels can be built on this machine.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "targets/code_generator.h"
#include "tests/support/devices.h"

namespace cgtree::testing {

// A GPU host needs a driver and may have no compiler: its GPU is then left out with a message, and
// not skipped, which would be a failure on that host.
inline std::vector<DeviceUnderTest> buildable_devices() {
  std::vector<DeviceUnderTest> devices = devices_under_test();
  std::erase_if(devices, [](const DeviceUnderTest& device) {
    const std::string problem = build_problem(device.name);
    if (!problem.empty()) std::fprintf(stderr, "left out: %s\n", problem.c_str());
    return !problem.empty();
  });
  return devices;
}

}  // namespace cgtree::testing
