// Budget: how many bytes may be reserved, as a tree of limits.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

namespace cgtree {

// A Budget is a limit on reserved bytes. Budgets form a tree, process over device for instance.
//
// Invariants: current() == bytes reserved here + the sum of the children's current();
// current() <= max_bytes(), except after the limit was lowered below what was in use.
//
// Thread safety: all functions may be called from any thread. One lock for the whole tree makes a
// reservation exact: it is refused only if there is no room. Reservations are as rare as segments.
class Budget {
 public:
  // `parent` must outlive the budget.
  explicit Budget(std::string name, std::size_t max_bytes = SIZE_MAX, Budget* parent = nullptr);
  // Aborts while bytes are reserved.
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Reserves at every level up to the root, or at none. Returns the lowest level that refused, or
  // null if all have room.
  [[nodiscard]] const Budget* try_reserve(std::size_t bytes) noexcept;

  // Aborts if more is released than was reserved.
  void release(std::size_t bytes) noexcept;

  const std::string& name() const { return name_; }
  std::size_t max_bytes() const;
  std::size_t current() const;
  std::size_t peak() const;  // of current()
  // Returns what this level alone would still allow.
  std::size_t available() const;

  // What is reserved stays reserved, even above the new limit.
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
