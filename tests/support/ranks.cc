// Registers host devices for each executor, and runs ranks on threads.
#include "tests/support/ranks.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "interop/device/device_api.h"
#include "simulator/host_device.h"
#include "simulator/strict_memory.h"
#ifdef CGTREE_WITH_CUDA
#include "extensions/ranks/nccl_collectives.h"
#endif

namespace cgtree::testing {
namespace {

constexpr int kHostRanks = 8;

DeviceType registered(int number, DeviceAPI& api) {
  const auto type = static_cast<DeviceType>(static_cast<int>(DeviceType::kFirstUserType) + number);
  register_device_api(type, api);
  return type;
}

#ifdef CGTREE_WITH_CUDA
RanksUnderTest gpus() {
  RanksUnderTest ranks{"cuda", DeviceType::kCuda, 0};
  DeviceAPI& api = *find_device_api(DeviceType::kCuda);
  while (api.has_device(ranks.most))
    ++ranks.most;
  if (ranks.most == 0) ranks.missing = "no GPU, or no driver for it";
  if (ranks.most == 1) {
    ranks.missing = "one GPU: collectives need two";
    ranks.is_too_few_devices = true;
  }
  return ranks;
}
#endif

}  // namespace

unsigned ranks_seed() {
  static const unsigned seed = std::random_device{}();
  return seed;
}

// Registered devices live as long as the process.
const std::vector<RanksUnderTest>& host_ranks() {
  static const auto* const all = [] {
    auto* const threads = make_host_device({.executor = HostExecutor::kThreads}).release();
    const HostDeviceOptions at_random{.executor = HostExecutor::kRandom, .seed = ranks_seed()};
    auto* const random = make_host_device(at_random).release();
    StrictHostDevice strict = make_strict_host_device(at_random);
    return new std::vector<RanksUnderTest>{
        {"inline", DeviceType::kHost, kHostRanks},
        {"threads", registered(0, *threads), kHostRanks},
        {"random", registered(1, *random), kHostRanks},
        {"strict", registered(2, *strict.device.release()), kHostRanks,
         [memory = strict.memory] { return memory->take_findings(); }}};
  }();
  return *all;
}

std::vector<RanksUnderTest> ranks_under_test() {
  std::vector<RanksUnderTest> all = host_ranks();
#ifdef CGTREE_WITH_CUDA
  all.push_back(gpus());
#endif
  return all;
}

std::vector<std::unique_ptr<Collectives>> RanksUnderTest::make(
    int size, std::chrono::milliseconds limit) const {
  std::vector<Device> devices;
  for (int id = 0; id < size; ++id)
    devices.push_back({type, id});
#ifdef CGTREE_WITH_CUDA
  if (type == DeviceType::kCuda) return make_nccl_collectives(devices, {.time_limit = limit});
#endif
  return make_host_collectives(devices, limit);
}

void run_ranks(std::vector<std::unique_ptr<Collectives>> ends,
               const std::function<void(std::shared_ptr<Collectives>)>& body) {
  std::vector<std::shared_ptr<Collectives>> shared;
  for (auto& end : ends)
    shared.push_back(std::move(end));
  std::vector<std::jthread> threads;
  for (const auto& end : shared) {
    threads.emplace_back([&] {
      try {
        body(end);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << end->rank() << ": " << error.what();
        end->abort();
      }
    });
  }
}

}  // namespace cgtree::testing
