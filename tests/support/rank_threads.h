// run_on_ranks(): a thread for each rank of a test, and the rank's device.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree::testing {

// Calls body(rank) on a thread for each rank, and waits for all. An exception of a body fails the
// test.
inline void run_on_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&body, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " has thrown: " << error.what();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
}

// Returns the device of a rank: devices of the kind of `first`, one per rank while there are
// enough, then from the first on again.
inline Device device_of_rank(Device first, int rank) {
  int count = 1;
  while (device_api(first).has_device(count))
    ++count;
  return {first.type, rank % count};
}

}  // namespace cgtree::testing
