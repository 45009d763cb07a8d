// The devices that tests of several ranks run on: the host device with each executor, and GPUs.
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
  int most;                                                 // ranks, one for each device
  std::function<std::vector<std::string>()> findings = {};  // of strict mode, since the last call
  std::string missing = {};         // why they are not there; empty if they are
  bool is_too_few_devices = false;  // a skip is no failure: there is a GPU, but not two

  std::vector<std::unique_ptr<Collectives>> make(
      int size, std::chrono::milliseconds limit = kCollectivesTimeLimit) const;
  friend void PrintTo(const RanksUnderTest& ranks, std::ostream* out) { *out << ranks.name; }
};

// Returns the host device with each executor, which are registered as devices of the user's.
const std::vector<RanksUnderTest>& host_ranks();
// Returns those, and where built with CUDA the GPUs.
std::vector<RanksUnderTest> ranks_under_test();

// Returns the seed of the random executors.
unsigned ranks_seed();

// Calls `body` with each end on a thread of its own, waits for all, and only then ends them. If one
// throws, the test fails, and the communicator is aborted.
void run_ranks(std::vector<std::unique_ptr<Collectives>> ends,
               const std::function<void(std::shared_ptr<Collectives>)>& body);

}  // namespace cgtree::testing

// Skips the test when the devices are not there, or fails it where a GPU is required. In SetUp().
#define CGTREE_SKIP_IF_RANKS_ARE_MISSING(ranks)                             \
  if (!(ranks).missing.empty()) {                                           \
    if (!(ranks).is_too_few_devices && ::cgtree::testing::requires_gpu()) { \
      FAIL() << (ranks).missing << " (CGTREE_REQUIRE_GPU=1)";               \
    }                                                                       \
    GTEST_SKIP() << (ranks).missing;                                        \
  }
