// CountingSegments: a device's segments, counted; refuses the n-th request when told to.
#pragma once

#include <atomic>
#include <cstddef>

#include "allocator/device_segment_source.h"
#include "base/error.h"

namespace cgtree::testing {

class CountingSegments final : public SegmentSource {
 public:
  explicit CountingSegments(Device device) : device_(device) {}

  void* allocate(std::size_t bytes, StreamId stream) override {
    if (requests_++ == refuse_at) throw OutOfMemory("refused by the test");
    void* const segment = device_.allocate(bytes, stream);
    held_ += 1;
    return segment;
  }
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override {
    held_ -= 1;
    device_.free(segment, bytes, stream);
  }

  int held() const { return held_; }
  int requests() const { return requests_; }
  // Number of the request to refuse, from 0; -1 refuses none.
  int refuse_at = -1;

 private:
  DeviceSegmentSource device_;
  std::atomic<int> held_{0};
  std::atomic<int> requests_{0};
};

}  // namespace cgtree::testing
