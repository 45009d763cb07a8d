// A segment source with made-up addresses, a capacity, and failures on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "allocator/pool/block.h"
#include "allocator/pool/segment_source.h"

namespace cgtree {

// Hands out the lowest gap from 1 << 40 up: segments touch each other, and addresses are used
// again. Segments grow and shrink if `set_spacing()` leaves room between them. Misuse is a failed
// check; a segment that is never freed or a user that never detaches is a test failure at the
// source's end.
class FakeSegmentSource : public SegmentSource {
 public:
  explicit FakeSegmentSource(std::size_t capacity = SIZE_MAX) : capacity_(capacity) {}
  ~FakeSegmentSource() override;

  void* allocate(std::size_t bytes, StreamId stream) override;
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override;
  bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId stream) override;
  std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                     StreamId stream) noexcept override;
  void attach(SegmentUser& user) override;
  void detach(SegmentUser& user) noexcept override;

  // Lets each segment grow to so many bytes, by reserving the addresses behind it. 0: no growth.
  void set_spacing(std::size_t bytes) { spacing_ = bytes; }
  // Makes shrink() leave a multiple of this.
  void set_granularity(std::size_t bytes) { granularity_ = bytes; }
  // Asks other users to release unused memory when less than `bytes` are left. Off by default.
  void ask_users() { asks_users_ = true; }

  // Throw OutOfMemory in the k-th allocate() or grow() from now (1: the next), or in the k-th and
  // all later ones.
  void fail_at(std::size_t k) { fail_first_ = fail_last_ = asked_.size() + k; }
  void fail_from(std::size_t k) {
    fail_first_ = asked_.size() + k;
    fail_last_ = SIZE_MAX;
  }
  void fail_no_more() { fail_first_ = fail_last_ = 0; }
  void refuse_above(std::size_t bytes) { largest_ = bytes; }

  std::vector<std::size_t> asked() const;  // also refused sizes; for growth, the difference
  std::vector<Range> held() const;
  std::vector<SegmentUser*> users() const;
  // Numbers of segments allocated, grown, shrunk and freed since the start.
  std::size_t given() const;
  std::size_t given_back() const;

 private:
  bool refuses(std::size_t bytes) const;
  void expect_room(std::size_t bytes);
  void make_room(std::size_t bytes, std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> held_;
  std::vector<std::size_t> asked_;
  std::vector<SegmentUser*> users_;
  std::size_t capacity_;
  std::size_t spacing_ = 0;
  std::size_t granularity_ = 512;
  bool asks_users_ = false;
  int asking_ = 0;  // calls of users in progress
  std::size_t bytes_ = 0;
  std::size_t given_ = 0;
  std::size_t given_back_ = 0;
  std::size_t largest_ = SIZE_MAX;
  std::size_t fail_first_ = 0;  // counted as asked_ is, from 1
  std::size_t fail_last_ = 0;
};

}  // namespace cgtree
