// DeviceBench: a device with the objects that a test makes on it, which are all destroyed at the
// end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "interop/device/device_api.h"
#include "tests/support/devices.h"
#include "tests/support/test_kernels.h"

namespace cgtree::testing {

// Helpers throw DeviceError on failure. `api` and `graphs` are for the functions under test.
class DeviceBench {
 public:
  explicit DeviceBench(const DeviceUnderTest& device) : api(*device.api), graphs(device.graphs()) {}
  // Abandons captures, restores the thread's capture mode and clears its last error.
  ~DeviceBench();
  DeviceBench(const DeviceBench&) = delete;
  DeviceBench& operator=(const DeviceBench&) = delete;

  StreamHandle stream(StreamKind kind = StreamKind::kNonBlocking);
  EventHandle event();
  float* floats(std::int64_t count, float value = 0);  // on the device, filled
  float* pinned_floats(std::int64_t count, float value);

  // The captured graph is destroyed with the bench, too.
  GraphHandle end(StreamHandle stream);
  ExecHandle instantiate(GraphHandle graph);
  void forget(GraphHandle graph);
  void forget(ExecHandle exec);
  void forget(StreamHandle stream);

  Code fill(StreamHandle stream, float* x, float value, std::int64_t count = 1);
  Code add_one(StreamHandle stream, float* x, std::int64_t count = 1);
  // Makes later work of `to` wait for all work of `from` so far.
  void order(StreamHandle from, StreamHandle to);

  CaptureInfo info(StreamHandle stream);
  std::size_t node_count(GraphHandle graph);
  // Waits for the device. Requires: no capture is open.
  float read(const float* x);

  DeviceAPI& api;
  GraphAPI& graphs;

 private:
  std::vector<StreamHandle> streams_;
  std::vector<EventHandle> events_;
  std::vector<GraphHandle> graphs_;
  std::vector<ExecHandle> execs_;
  std::vector<void*> data_;
  std::vector<void*> pinned_;
};

}  // namespace cgtree::testing
