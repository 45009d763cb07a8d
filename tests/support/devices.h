// The devices on which a conformance test runs: always the host device, and the cuda device if it
// was built.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree::testing {

struct DeviceUnderTest {
  std::string name;  // for the name of the test
  Device device;
  DeviceAPI* api;
  std::string missing;  // the reason why the device is missing; empty if it is not

  GraphAPI& graphs() const { return *api->graphs(); }
  friend void PrintTo(const DeviceUnderTest& device, std::ostream* out) { *out << device.name; }
};

std::vector<DeviceUnderTest> devices_under_test();

// Returns the devices under test, and the host device in strict mode and with each of its
// executors, which are not in the registry: for tests of functions of DeviceAPI only. The seed of
// the random executor is printed; CGTREE_SEED sets it. CGTREE_MUTANT puts a fault of
// mutant_device.h into all of them.
std::vector<DeviceUnderTest> executors_under_test();

// Returns true if a missing GPU is a failure instead of a skip: CGTREE_REQUIRE_GPU=1 in the
// environment.
bool requires_gpu();

}  // namespace cgtree::testing

// Skips the test if the device is missing, or fails it if a GPU is required. For SetUp().
#define CGTREE_SKIP_IF_MISSING(device)                         \
  if (!(device).missing.empty()) {                             \
    if (::cgtree::testing::requires_gpu()) {                   \
      FAIL() << (device).missing << " (CGTREE_REQUIRE_GPU=1)"; \
    }                                                          \
    GTEST_SKIP() << (device).missing;                          \
  }
