// StreamOrderTest: runs a test in many orders that CUDA permits.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cgtree/compile.h"
#include "interop/device/device_api.h"
#include "interop/tensor/tensor.h"
#include "simulator/strict_memory.h"
#include "tests/support/host_slot.h"
#include "tests/support/steps.h"

namespace cgtree::testing {

// Bodies run on host devices that run work in a random order and check all memory accesses: a
// missing edge shows in the data.
class StreamOrderTest : public ::testing::Test {
 protected:
  static constexpr int kOrders = 200;
  static constexpr std::int64_t kSize = 16;

  // Runs body(device) once per order; it returns false if a result was wrong.
  template <typename Body>
  void expect_right_in_any_order(Body body, bool free_waits = true) {
    const std::uint64_t first = std::random_device()();
    int wrong = 0;
    std::string finding;
    for (std::uint64_t seed = first; seed < first + kOrders; ++seed) {
      const StrictHostDevice host = make_strict_host_device(
          {.executor = HostExecutor::kRandom, .seed = seed, .free_waits = free_waits});
      HostSlot::instance().put(*host.device);
      bool is_right = body(HostSlot::instance().device());
      static_cast<void>(host.device->synchronize_device(0));
      for (const std::string& text : host.memory->take_findings()) {
        is_right = false;
        finding = text;
      }
      wrong += !is_right;
    }
    HostSlot::instance().put(host_device_api());
    EXPECT_EQ(wrong, 0) << "of " << kOrders << ", seed " << first << "; " << finding;
  }

  static Tensor filled(Device device, float value) {
    return from_host<float>({kSize}, std::vector<float>(kSize, value), device);
  }
  // As another library would, without note_use().
  static void enqueue_copy(StreamRef stream, const Tensor& to, const Tensor& from) {
    check(stream.api().copy(stream.handle(), to.data(), from.data(), to.bytes()), "copy");
  }
  static void wait_for_all(Device device) {
    check(device_api(device).synchronize_device(device.id), "wait for the device");
  }
  static bool holds(const Tensor& tensor, float value) {
    return tensor.to_vector<float>() == std::vector<float>(kSize, value);
  }
  static Tensor twice(const Tensor& x) { return affine(affine(x, 1, 0), 2, 0); }
  // Calls f until it replays.
  static void warm(const CompiledFunction<Tensor(Tensor)>& f, const Tensor& x) {
    for (int call = 0; call < 3; ++call)
      (void)f(x);
  }
};

}  // namespace cgtree::testing
