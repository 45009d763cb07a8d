// How many bytes may be reserved: a tree of limits, process over device over pool.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

namespace cgtree {

// Invariants: current() == what was reserved here + the sum of the children's current();
// current() <= max_bytes(), except after the limit was lowered below what was in use.
//
// Threads: any. One lock for the whole tree makes a reservation exact: it is refused only when
// there really is no room. Reservations are as rare as segments.
class Budget {
 public:
  // `parent` must outlive it.
  explicit Budget(std::string name, std::size_t max_bytes = SIZE_MAX, Budget* parent = nullptr);
  // Aborts while anything is reserved.
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Reserves at every level up to the root, or nowhere. Returns the level that refused, the lowest
  // of several; null when all have room.
  [[nodiscard]] const Budget* try_reserve(std::size_t bytes) noexcept;

  // Aborts when more is released than was reserved.
  void release(std::size_t bytes) noexcept;

  const std::string& name() const { return name_; }
  std::size_t max_bytes() const;
  std::size_t current() const;
  std::size_t peak() const;  // of current()
  // What a reservation could have at this level alone.
  std::size_t available() const;

  // What is in use stays, even above the new limit.
  void set_max_bytes(std::size_t max_bytes) noexcept;

 private:
  const std::string name_;
  Budget* const parent_;
  const std::shared_ptr<std::mutex> mutex_;  // the tree's; guards all below, at every level
  std::size_t max_bytes_;
  std::size_t current_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace cgtree
