// A segment source with made-up addresses, a capacity, and failures on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "allocator/range.h"
#include "allocator/segment_source.h"

namespace cgtree {

// Hands out the lowest gap from 1 << 40 up: segments touch each other, and addresses come back.
// Its own misuse is a failed check; what is never given back, a test failure at its end.
class FakeSegmentSource : public SegmentSource {
 public:
  explicit FakeSegmentSource(std::size_t capacity = SIZE_MAX) : capacity_(capacity) {}
  ~FakeSegmentSource() override;

  void* allocate(std::size_t bytes) override;
  void free(void* segment, std::size_t bytes) noexcept override;

  // The k-th allocate() from now (1: the next) throws OutOfMemory; 0: none does.
  void fail_at(std::size_t k) { fail_in_ = k; }
  void fail_from_now_on() { failing_ = true; }
  void refuse_above(std::size_t bytes) { largest_ = bytes; }

  std::vector<std::size_t> asked() const { return asked_; }  // sizes, refused ones too
  std::vector<Range> held() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> held_;
  std::vector<std::size_t> asked_;
  std::size_t capacity_;
  std::size_t bytes_ = 0;
  std::size_t largest_ = SIZE_MAX;
  std::size_t fail_in_ = 0;
  bool failing_ = false;
};

}  // namespace cgtree
