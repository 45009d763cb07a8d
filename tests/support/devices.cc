// Lists the devices under test.
#include "tests/support/devices.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <variant>

#include "interop/device/device_api.h"
#include "simulator/strict_memory.h"
#include "tests/support/mutant_device.h"
#ifdef CGTREE_WITH_CUDA
#include "interop/device/cuda/cuda_device.h"
#endif

namespace cgtree::testing {
namespace {

std::uint64_t seed() {
  const char* const given = std::getenv("CGTREE_SEED");
  const std::uint64_t seed = given != nullptr ? std::stoull(given) : std::random_device()();
  std::fprintf(stderr, "host_random: CGTREE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

// Returns the device, or the mutant of it named by CGTREE_MUTANT; the same object at each call.
DeviceAPI* mutated(DeviceAPI& device) {
  const char* const name = std::getenv("CGTREE_MUTANT");
  if (name == nullptr) return &device;
  const std::vector<std::string> known = mutants();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    std::fprintf(stderr, "CGTREE_MUTANT=%s: there is no such mutant; known:", name);
    for (const std::string& mutant : known)
      std::fprintf(stderr, " %s", mutant.c_str());
    std::exit(2);
  }
  static auto& made = *new std::map<DeviceAPI*, std::unique_ptr<DeviceAPI>>;
  std::unique_ptr<DeviceAPI>& mutant = made[&device];
  if (mutant == nullptr) mutant = make_mutant(name, device);
  return mutant.get();
}

}  // namespace

std::vector<DeviceUnderTest> devices_under_test() {
  std::vector<DeviceUnderTest> devices{{"host", Device::host(), &host_device_api(), ""}};
#ifdef CGTREE_WITH_CUDA
  DeviceAPI& cuda = cuda_device_api();
  const AttributeValue exists = cuda.attribute(0, DeviceAttribute::kExists);
  const bool is_there = exists == AttributeValue{std::int64_t{1}};
  devices.push_back({"cuda", Device::cuda(), &cuda, is_there ? "" : "no GPU, or no driver for it"});
#endif
  return devices;
}

std::vector<DeviceUnderTest> executors_under_test() {
  static DeviceAPI* const threads =
      make_host_device({.executor = HostExecutor::kThreads}).release();
  static DeviceAPI* const random =
      make_host_device({.executor = HostExecutor::kRandom, .seed = seed()}).release();
  static DeviceAPI* const strict = make_strict_host_device().device.release();
  std::vector<DeviceUnderTest> devices = devices_under_test();
  devices.push_back({"host_strict", Device::host(), strict, ""});
  devices.push_back({"host_threads", Device::host(), threads, ""});
  devices.push_back({"host_random", Device::host(), random, ""});
  for (DeviceUnderTest& device : devices) {
    if (device.device.type == DeviceType::kHost) device.api = mutated(*device.api);
  }
  return devices;
}

bool requires_gpu() {
  const char* const value = std::getenv("CGTREE_REQUIRE_GPU");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace cgtree::testing
