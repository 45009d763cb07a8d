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

  void* allocate(std::size_t bytes, StreamId stream) override;
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override;

  // Throw OutOfMemory in the k-th allocate() from now (1: the next), or from it on.
  void fail_at(std::size_t k) { fail_first_ = fail_last_ = asked_.size() + k; }
  void fail_from(std::size_t k) {
    fail_first_ = asked_.size() + k;
    fail_last_ = SIZE_MAX;
  }
  void fail_no_more() { fail_first_ = fail_last_ = 0; }
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
  std::size_t fail_first_ = 0;  // counted as asked_ is, from 1
  std::size_t fail_last_ = 0;
};

}  // namespace cgtree
