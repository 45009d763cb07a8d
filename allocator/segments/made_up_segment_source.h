// Segments with made-up addresses: for simulations, benchmarks and tests without a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "allocator/segments/segment_source.h"

namespace cgtree {

// Addresses from 1 << 40 up, without memory behind them. A freed segment serves a request of its
// size again; so equal calls get equal addresses.
class MadeUpSegmentSource final : public SegmentSource {
 public:
  explicit MadeUpSegmentSource(std::size_t capacity = std::size_t{1} << 46) : capacity_(capacity) {}

  void* allocate(std::size_t bytes, StreamId stream) override;
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override;

 private:
  const std::size_t capacity_;
  std::mutex mutex_;  // guards all below
  std::map<std::uintptr_t, std::size_t> held_;
  std::set<std::pair<std::size_t, std::uintptr_t>> freed_;  // bytes, address
  std::uintptr_t end_ = std::uintptr_t{1} << 40;            // nothing was handed out from here on
  std::size_t bytes_ = 0;
};

}  // namespace cgtree
