// Shape: the dimensions and strides of a tensor, in elements. It is an immutable value and cheap to
// copy.
//
// Copies share one record, so that shapes with a common origin compare equal by one pointer. A
// ShapeSupply takes references in bulk, for code that hands out many copies.
//
// Invariants:
//   rank <= kMaxRank, dims[i] >= 0, strides[i] >= 0, elements = product of dims,
//   extent = 1 + sum of (dims[i] - 1) * strides[i], or 0 when elements == 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

namespace cgtree {

// A Shape holds the size and the stride of each axis, and values derived from them.
class Shape {
 public:
  // The largest number of axes. A record has room for all of them, so that a shape is one
  // allocation.
  static constexpr int kMaxRank = 8;

  Shape() noexcept : record_(nullptr) {}  // rank 0: one element
  // Makes a row-major shape. Throws InvalidArgument for a negative dimension, for more than
  // kMaxRank dimensions, and for more elements than an int64 counts.
  explicit Shape(std::span<const std::int64_t> dims);
  Shape(std::initializer_list<std::int64_t> dims)
      : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}
  // A stride of 0 repeats an element. Throws InvalidArgument as above, for a negative stride, and
  // for an extent that exceeds an int64.
  Shape(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides);

  Shape(const Shape& other) noexcept : record_(other.record_) { retain(record_); }
  Shape(Shape&& other) noexcept : record_(other.record_) { other.record_ = nullptr; }
  Shape& operator=(const Shape& other) noexcept {
    retain(other.record_);
    release(record_);
    record_ = other.record_;
    return *this;
  }
  Shape& operator=(Shape&& other) noexcept {
    std::swap(record_, other.record_);
    return *this;
  }
  ~Shape() { release(record_); }

  // The number of axes.
  int rank() const noexcept { return record_ == nullptr ? 0 : record_->rank; }
  // Requires: 0 <= axis < rank().
  std::int64_t dim(int axis) const noexcept { return record_->dims[axis]; }
  // In elements. Requires: 0 <= axis < rank().
  std::int64_t stride(int axis) const noexcept { return record_->strides[axis]; }
  // The next two are valid while a copy of the shape lives.
  std::span<const std::int64_t> dims() const noexcept { return list(&Record::dims); }
  std::span<const std::int64_t> strides() const noexcept { return list(&Record::strides); }

  // The product of the dimensions; 1 for rank 0.
  std::int64_t elements() const noexcept { return record_ == nullptr ? 1 : record_->elements; }
  // Returns the number of elements from the first to the last of the tensor, both included.
  std::int64_t extent() const noexcept { return record_ == nullptr ? 1 : record_->extent; }
  // Returns whether elements lie row by row without gaps; axes of size 1 may have any stride.
  bool is_contiguous() const noexcept { return record_ == nullptr || record_->contiguous; }
  // Equal shapes have equal hashes.
  std::uint64_t hash() const noexcept { return record_ == nullptr ? 0 : record_->hash; }

  // Returns 0 for copies of each other, which are equal. Equal shapes that are not copies differ
  // here.
  std::uintptr_t difference(const Shape& other) const noexcept {
    return reinterpret_cast<std::uintptr_t>(record_) ^
           reinterpret_cast<std::uintptr_t>(other.record_);
  }

  // Compares dims and strides.
  bool operator==(const Shape& other) const noexcept {
    return record_ == other.record_ || (hash() == other.hash() && equal(record_, other.record_));
  }

 private:
  friend class ShapeSupply;

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

  std::span<const std::int64_t> list(std::int64_t (Record::*of)[kMaxRank]) const noexcept {
    if (record_ == nullptr) return {};
    return {record_->*of, static_cast<std::size_t>(record_->rank)};
  }
  static void retain(Record* record) noexcept {
    if (record != nullptr) record->references.fetch_add(1, std::memory_order_relaxed);
  }
  static void release(Record* record) noexcept {
    if (record != nullptr && record->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete record;
    }
  }
  // Null strides make a row-major shape.
  static Record* make(std::span<const std::int64_t> dims, const std::int64_t* strides);
  static bool equal(const Record* a, const Record* b) noexcept;

  Record* record_;  // null: rank 0
};

// A ShapeSupply hands out copies of one shape without an atomic operation for each. Thread safety:
// one thread; the copies have no restriction.
class ShapeSupply {
 public:
  ShapeSupply() = default;
  // Supplies copies of `shape`, and holds one itself.
  explicit ShapeSupply(const Shape& shape) noexcept : shape_(shape) {}
  ShapeSupply(ShapeSupply&& other) noexcept
      : shape_(std::move(other.shape_)), left_(std::exchange(other.left_, 0)) {}
  ShapeSupply& operator=(ShapeSupply&& other) noexcept {
    std::swap(shape_, other.shape_);
    std::swap(left_, other.left_);
    return *this;
  }
  ~ShapeSupply() {
    if (left_ > 0) shape_.record_->references.fetch_sub(left_, std::memory_order_acq_rel);
  }

  // Returns a copy.
  Shape take() noexcept {
    Shape copy;
    if (shape_.record_ == nullptr) return copy;
    if (left_ == 0) [[unlikely]] {
      shape_.record_->references.fetch_add(kBulk, std::memory_order_relaxed);
      left_ = kBulk;
    }
    --left_;
    copy.record_ = shape_.record_;
    return copy;
  }

 private:
  static constexpr std::uint32_t kBulk = 1024;

  Shape shape_;  // keeps one reference, so that no supplied copy is the last
  std::uint32_t left_ = 0;
};

// Returns "{2, 3}", or "{2, 3} strides {1, 2}" if the shape is not row-major.
std::string to_string(const Shape& shape);

}  // namespace cgtree
