// CountingSegments: a device's segments, counted; can refuse one request.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "allocator/segments/device_sources.h"
#include "base/error.h"

namespace cgtree::testing {

class CountingSegments final : public SegmentSource {
 public:
  enum class Kind { kFixed, kGrowing };

  explicit CountingSegments(Device device, Kind kind = Kind::kFixed) {
    if (kind == Kind::kGrowing) {
      source_ = std::make_unique<VirtualSegmentSource>(device);
    } else {
      source_ = std::make_unique<DeviceSegmentSource>(device);
    }
  }

  void* allocate(std::size_t bytes, StreamId stream) override {
    count_request();
    void* const segment = source_->allocate(bytes, stream);
    held_ += 1;
    return segment;
  }
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override {
    held_ -= 1;
    source_->free(segment, bytes, stream);
  }
  bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId stream) override {
    count_request();
    return source_->grow(segment, bytes, grown, stream);
  }
  std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                     StreamId stream) noexcept override {
    return source_->shrink(segment, bytes, least, stream);
  }

  int held() const { return held_; }
  int requests() const { return requests_; }
  // The number of the request to refuse, from 0; -1 refuses none.
  int refuse_at = -1;

 private:
  void count_request() {
    if (requests_++ == refuse_at) throw OutOfMemory("refused by the test");
  }

  std::unique_ptr<SegmentSource> source_;
  std::atomic<int> held_{0};
  std::atomic<int> requests_{0};
};

}  // namespace cgtree::testing
