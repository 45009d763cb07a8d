// Shape: dimensions and strides of a tensor, in elements; an immutable value that is cheap to copy.
//
// Copies share one record, so two tensors of one producer compare equal by one pointer. Invariants:
//   rank <= kMaxRank, dims[i] >= 0, strides[i] >= 0, elements = product of dims,
//   extent = 1 + sum of (dims[i] - 1) * strides[i], or 0 when elements == 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace cgtree {

class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() noexcept;  // rank 0: one element
  // Row-major strides. Throws InvalidArgument: a negative dimension, more than kMaxRank of them, or
  // more elements than an int64 counts.
  explicit Shape(std::span<const std::int64_t> dims);
  Shape(std::initializer_list<std::int64_t> dims)
      : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}
  // Any strides that are not negative; 0 repeats an element. Throws as above, and where the extent
  // is more than an int64 counts.
  Shape(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides);

  Shape(const Shape& other) noexcept : record_(other.record_) { retain(record_); }
  Shape(Shape&& other) noexcept : record_(other.record_) { other.record_ = nullptr; }
  Shape& operator=(const Shape& other) noexcept;
  Shape& operator=(Shape&& other) noexcept;
  ~Shape() { release(record_); }

  int rank() const noexcept { return record_ == nullptr ? 0 : record_->rank; }
  // Requires 0 <= axis < rank().
  std::int64_t dim(int axis) const noexcept { return record_->dims[axis]; }
  std::int64_t stride(int axis) const noexcept { return record_->strides[axis]; }
  std::span<const std::int64_t> dims() const noexcept;
  std::span<const std::int64_t> strides() const noexcept;

  std::int64_t elements() const noexcept { return record_ == nullptr ? 1 : record_->elements; }
  // Elements from the first to the last that the tensor touches, both included.
  std::int64_t extent() const noexcept { return record_ == nullptr ? 1 : record_->extent; }
  bool is_contiguous() const noexcept { return record_ == nullptr || record_->contiguous; }
  std::uint64_t hash() const noexcept { return record_ == nullptr ? 0 : record_->hash; }

  // 0 for copies of one another, which are equal; equal shapes may be no copies.
  std::uintptr_t difference(const Shape& other) const noexcept {
    return reinterpret_cast<std::uintptr_t>(record_) ^
           reinterpret_cast<std::uintptr_t>(other.record_);
  }

  // Same dims and same strides.
  bool operator==(const Shape& other) const noexcept {
    return record_ == other.record_ || equal(record_, other.record_);
  }

 private:
  struct Record {
    std::atomic<std::uint32_t> references{1};
    int rank = 0;
    bool contiguous = true;
    std::int64_t elements = 1;
    std::int64_t extent = 1;
    std::uint64_t hash = 0;
    std::int64_t dims[kMaxRank];  // the first `rank` are set
    std::int64_t strides[kMaxRank];
  };

  static void retain(Record* record) noexcept {
    if (record != nullptr) record->references.fetch_add(1, std::memory_order_relaxed);
  }
  static void release(Record* record) noexcept {
    if (record != nullptr && record->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete record;
    }
  }
  // Without strides: row-major.
  static Record* make(std::span<const std::int64_t> dims, const std::int64_t* strides);
  static bool equal(const Record* a, const Record* b) noexcept;

  Record* record_;  // null: rank 0
};

// "{2, 3}", and "{2, 3} strides {1, 2}" when not row-major.
std::string to_string(const Shape& shape);

}  // namespace cgtree
