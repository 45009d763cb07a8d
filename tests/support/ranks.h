// The devices for tests of several ranks: the host device with each executor, and GPUs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "extensions/ranks/collectives.h"
#include "interop/device/device.h"
#include "tests/support/devices.h"

namespace cgtree::testing {

struct RanksUnderTest {
  std::string name;
  DeviceType type;
  int most;                                                 // ranks at most, one for each device
  std::function<std::vector<std::string>()> findings = {};  // of strict mode, since the last call
  std::string missing = {};         // the reason why they are missing; empty if they are not
  bool is_too_few_devices = false;  // a skip is permitted: there is a GPU, but not two

  std::vector<std::unique_ptr<Collectives>> make(
      int size, std::chrono::milliseconds limit = kCollectivesTimeLimit) const;
  friend void PrintTo(const RanksUnderTest& ranks, std::ostream* out) { *out << ranks.name; }
};

// Returns the host device with each executor, registered as user devices.
const std::vector<RanksUnderTest>& host_ranks();
// Returns host_ranks(), and the GPUs in builds with CUDA.
std::vector<RanksUnderTest> ranks_under_test();

// Returns the seed of the random executors.
unsigned ranks_seed();

// Calls `body` with each end on a separate thread, waits for all threads, and then destroys the
// ends. If a body throws, the test fails, and the communicator is aborted.
void run_ranks(std::vector<std::unique_ptr<Collectives>> ends,
               const std::function<void(std::shared_ptr<Collectives>)>& body);

}  // namespace cgtree::testing

// Skips the test if the devices are missing, or fails it if a GPU is required. For SetUp().
#define CGTREE_SKIP_IF_RANKS_ARE_MISSING(ranks)                             \
  if (!(ranks).missing.empty()) {                                           \
    if (!(ranks).is_too_few_devices && ::cgtree::testing::requires_gpu()) { \
      FAIL() << (ranks).missing << " (CGTREE_REQUIRE_GPU=1)";               \
    }                                                                       \
    GTEST_SKIP() << (ranks).missing;                                        \
  }
