// Segments with made-up addresses: for simulations, benchmarks and tests without a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "allocator/segment_source.h"

namespace cgtree {

// Hands out the lowest gap from 1 << 40 up, so equal requests get equal addresses. There is no
// memory behind them.
class MadeUpSegmentSource final : public SegmentSource {
 public:
  explicit MadeUpSegmentSource(std::size_t capacity = std::size_t{1} << 46) : capacity_(capacity) {}

  void* allocate(std::size_t bytes) override;
  void free(void* segment, std::size_t bytes) noexcept override;

 private:
  const std::size_t capacity_;
  std::mutex mutex_;  // guards all below
  std::map<std::uintptr_t, std::size_t> held_;
  std::size_t bytes_ = 0;
};

}  // namespace cgtree
