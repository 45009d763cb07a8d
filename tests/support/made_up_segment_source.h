// MadeUpSegmentSource: segments with made-up addresses, for simulations, benchmarks and tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "allocator/pool/segment_source.h"

namespace cgtree {

// A MadeUpSegmentSource returns addresses from 1 << 40 up, with no memory behind them. A freed
// segment serves the next request of its size, so equal calls get equal addresses.
//
// Thread safety: all functions may be called from any thread.
class MadeUpSegmentSource final : public SegmentSource {
 public:
  explicit MadeUpSegmentSource(std::size_t capacity = std::size_t{1} << 46) : capacity_(capacity) {}

  void* allocate(std::size_t bytes, StreamId stream) override;
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override;

 private:
  const std::size_t capacity_;
  std::mutex mutex_;  // guards all members below
  std::map<std::uintptr_t, std::size_t> held_;
  std::set<std::pair<std::size_t, std::uintptr_t>> freed_;  // bytes, address
  std::uintptr_t end_ = std::uintptr_t{1} << 40;            // the first address that was never used
  std::size_t bytes_ = 0;
};

}  // namespace cgtree
