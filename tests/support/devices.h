// The devices that a conformance test runs on: the host device always, the cuda device where built.
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
  std::string missing;  // why the device is not there; empty if it is

  GraphAPI& graphs() const { return *api->graphs(); }
  friend void PrintTo(const DeviceUnderTest& device, std::ostream* out) { *out << device.name; }
};

std::vector<DeviceUnderTest> devices_under_test();

// Returns those, and the host device in strict mode and with each of its executors, for tests of
// the functions alone: the latter are not in the registry. The seed of the random one is printed;
// CGTREE_SEED sets it. CGTREE_MUTANT puts a fault of mutant_device.h into all of them.
std::vector<DeviceUnderTest> executors_under_test();

// Returns whether an absent GPU is a failure instead of a skip: CGTREE_REQUIRE_GPU=1 in the
// environment.
bool requires_gpu();

}  // namespace cgtree::testing

// Skips the test, or fails it where a GPU is required, when the device is not there. In SetUp().
#define CGTREE_SKIP_IF_MISSING(device)                         \
  if (!(device).missing.empty()) {                             \
    if (::cgtree::testing::requires_gpu()) {                   \
      FAIL() << (device).missing << " (CGTREE_REQUIRE_GPU=1)"; \
    }                                                          \
    GTEST_SKIP() << (device).missing;                          \
  }
