// Budget: the number of bytes that may be reserved. SegmentAccount: the budgets and the source that
// pools share.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "allocator/pool/segment_source.h"
#include "base/mutex.h"

namespace cgtree {

// A Budget is a limit on reserved bytes.
//
// Invariant: current() <= max_bytes(), except after the limit was lowered below the bytes in use.
//
// Thread safety: all functions may be called from any thread. Reservations are as rare as segments.
class Budget {
 public:
  explicit Budget(std::string name, std::size_t max_bytes = SIZE_MAX)
      : name_(std::move(name)), max_bytes_(max_bytes) {}
  // Aborts while bytes are reserved.
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Returns false, with nothing reserved, if there is no room.
  [[nodiscard]] bool try_reserve(std::size_t bytes) noexcept;
  // Aborts if more is released than was reserved.
  void release(std::size_t bytes) noexcept;

  const std::string& name() const { return name_; }
  std::size_t max_bytes() const;
  std::size_t current() const;
  std::size_t peak() const;  // of current()
  std::size_t available() const;

  // Reservations stay, even above the new limit.
  void set_max_bytes(std::size_t max_bytes) noexcept;

 private:
  const std::string name_;
  mutable Mutex<LockRank::kLeaf> mutex_;  // guards all below
  std::size_t max_bytes_;
  std::size_t current_ = 0;
  std::size_t peak_ = 0;
};

// A SegmentAccount determines the source of the segments of some pools, and the bytes that they may
// hold. The three pools of a context share one account, as do all pools that a program limits
// together.
//
// Two budgets are charged for a segment:
//
//   budget()   while a pool of the account holds it
//   reserve()  as long as the cache has it from the source, also while it is cached
//
// Example: a context with max_bytes = 64 MiB frees a segment of 20 MiB. Its budget has 20 MiB more
// room at once. The reserve, which is the device's budget, still has the segment, and any other
// pool of the device may take it from the cache.
//
// Thread safety: all functions may be called from any thread.
class SegmentAccount {
 public:
  using Source = std::shared_ptr<SegmentSource>;
  struct Options {
    std::string name = "pools";  // the budget's, for messages
    std::size_t max_bytes = SIZE_MAX;
    // The source of the segments; null for the cache's upstream. It lives as long as the cache has
    // a segment of it.
    Source source = nullptr;
    // The budget for all segments of the source; null for the cache's. An account of host memory
    // has its own, so that neither device pools nor recordings are released for it.
    std::shared_ptr<Budget> reserve = nullptr;
  };

  explicit SegmentAccount(Options options)
      : budget_(std::move(options.name), options.max_bytes),
        source_(std::move(options.source)),
        reserve_(std::move(options.reserve)) {}

  Budget& budget() noexcept { return budget_; }
  const Source& source() const noexcept { return source_; }
  const std::shared_ptr<Budget>& reserve() const noexcept { return reserve_; }

 private:
  Budget budget_;
  const Source source_;
  const std::shared_ptr<Budget> reserve_;
};

}  // namespace cgtree
