// Tensor: a typed, shaped view of a storage, passed by value; TensorList: the outputs of a call;
// may_overlap(): a test for shared bytes.
//
// Copying a tensor copies the handle, not the data. Views share the storage, so a stale storage is
// stale through every view of it.
//
// Thread safety: a Tensor object is used by one thread at a time; its storage may be shared by any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "interop/tensor/dtype.h"
#include "interop/tensor/shape.h"
#include "interop/tensor/storage.h"

namespace cgtree {

// Returns the bytes of a dense tensor. Throws InvalidArgument if an int64 cannot count them.
std::size_t bytes_of(const Shape& shape, DType dtype);

// A Tensor is a handle to a view of a storage.
class Tensor {
 public:
  // Selects the constructor without checks.
  struct KnownToFit {};

  Tensor() = default;  // undefined: only defined() may be called
  Tensor(const Tensor&) = default;
  Tensor(Tensor&& other) noexcept = default;
  Tensor& operator=(const Tensor& other) noexcept { return *this = Tensor(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    if (this == &other) return *this;
    storage_.release_with(shape_);  // before the shape is destroyed
    storage_ = std::move(other.storage_);
    byte_offset_ = other.byte_offset_;
    shape_ = std::move(other.shape_);
    dtype_ = other.dtype_;
    return *this;
  }
  ~Tensor() { storage_.release_with(shape_); }
  // Throws InvalidArgument unless byte_offset + shape.extent() * size_of(dtype) <=
  // storage->bytes().
  Tensor(StorageRef storage, std::size_t byte_offset, Shape shape, DType dtype);
  // As above, without checks.
  Tensor(KnownToFit, StorageRef&& storage, std::size_t byte_offset, Shape&& shape,
         DType dtype) noexcept
      : storage_(std::move(storage)),
        byte_offset_(byte_offset),
        shape_(std::move(shape)),
        dtype_(static_cast<std::uint64_t>(dtype)) {}
  // Makes a tensor without checks. Requires: it fits, by the condition of the constructor.
  static Tensor known_to_fit(StorageRef storage, std::size_t byte_offset, Shape shape,
                             DType dtype) noexcept {
    return Tensor(KnownToFit(), std::move(storage), byte_offset, std::move(shape), dtype);
  }

  // Returns whether there is a storage. All other functions require one.
  bool defined() const noexcept { return static_cast<bool>(storage_); }
  // The next four have no side effects and read no memory of the device, stale or not.
  const Shape& shape() const noexcept { return shape_; }
  DType dtype() const noexcept { return static_cast<DType>(dtype_); }
  Device device() const noexcept { return storage_->device(); }
  int rank() const noexcept { return shape_.rank(); }
  // Returns the size of an axis; negative axes count from the last. Throws InvalidArgument.
  std::int64_t dim(int axis) const;
  // The product of the dimensions; 1 for rank 0.
  std::int64_t elements() const noexcept { return shape_.elements(); }
  // Returns elements() * size_of(dtype()), the bytes of a row-major copy.
  std::size_t bytes() const noexcept;
  // Returns whether elements lie row by row without gaps.
  bool is_contiguous() const noexcept { return shape_.is_contiguous(); }
  // The next two return the beginning of the view: a storage, and a byte in it.
  const StorageRef& storage() const noexcept { return storage_; }
  std::size_t byte_offset() const noexcept { return byte_offset_; }

  // Returns the address of the first element, on device(). Throws StaleTensor; InvalidArgument if
  // the tensor is undefined.
  void* data() const;
  // As above. Throws InvalidArgument if T is not the element type.
  template <typename T>
  T* data() const {
    expect_dtype(dtype_of<std::remove_const_t<T>>);
    return static_cast<T*>(data());
  }
  // Returns the address, stale or not.
  std::uintptr_t address() const noexcept { return storage_->address() + byte_offset_; }

  // The next three return views, which share the data. They throw InvalidArgument.
  Tensor reshape(Shape shape) const;  // both contiguous, as many elements
  Tensor slice(int axis, std::int64_t begin, std::int64_t end) const;  // [begin, end)
  Tensor transpose(int axis, int other) const;

  // The next four copy from and to host memory and block until the data has arrived. They are
  // ordered after the work enqueued on `stream`, by default the stream that the storage was made
  // on. Throw InvalidArgument unless the tensor is contiguous and has `bytes` bytes; StaleTensor;
  // DeviceError.
  void copy_from_host(const void* source, std::size_t bytes, StreamRef stream = {}) const;
  void copy_to_host(void* destination, std::size_t bytes, StreamRef stream = {}) const;
  template <typename T>
  void copy_from(std::span<const T> values) const {
    expect_dtype(dtype_of<T>);
    copy_from_host(values.data(), values.size_bytes());
  }
  template <typename T>
  std::vector<T> to_vector() const;

 private:
  void expect_dtype(DType dtype) const;

  StorageRef storage_;
  std::size_t byte_offset_ = 0;
  Shape shape_;
  // A whole word, so that no byte of a tensor is undefined: InputRun compares them all.
  std::uint64_t dtype_ = static_cast<std::uint64_t>(DType::kFloat32);
};

template <typename T>
std::vector<T> Tensor::to_vector() const {
  expect_dtype(dtype_of<T>);
  std::vector<T> values(static_cast<std::size_t>(elements()));
  copy_to_host(values.data(), values.size() * sizeof(T));
  return values;
}

// Returns "float32 {2, 3} on cuda:0" and the like; reads no data.
std::string describe(const Tensor& tensor);

// As describe(), followed by the values: the first and last three of each axis longer than six.
std::string to_string(const Tensor& tensor);

// A TensorList holds the outputs of a call. Up to eight need no heap.
class TensorList {
 public:
  // The tensors that need no heap.
  static constexpr std::size_t kInline = 8;

  TensorList() noexcept {}  // leaves inline_ uninitialized: most calls have one output
  ~TensorList() { clear(); }
  TensorList(const TensorList&) = delete;
  TensorList& operator=(const TensorList&) = delete;

  // Drops the tensors, and makes room for `count`. Throws std::bad_alloc.
  void begin(std::size_t count) {
    if (size_ > 0 || !more_.empty()) [[unlikely]] {
      clear();
    }
    if (count > kInline) [[unlikely]] {
      more_.reserve(count);
    }
    is_inline_ = count <= kInline;
  }
  // Requires: begin() has made room for it.
  void add(Tensor&& tensor) noexcept {
    if (is_inline_) [[likely]] {
      std::construct_at(inline_ + size_++, std::move(tensor));
    } else {
      more_.push_back(std::move(tensor));
    }
  }
  // As add() of Tensor::known_to_fit(). Forced inline: runs once per output on every replay.
  [[gnu::always_inline]] void add(StorageRef&& storage, std::size_t byte_offset, Shape&& shape,
                                  DType dtype) noexcept {
    constexpr Tensor::KnownToFit kFits;
    if (is_inline_) [[likely]] {
      std::construct_at(inline_ + size_++, kFits, std::move(storage), byte_offset, std::move(shape),
                        dtype);
    } else {
      more_.emplace_back(kFits, std::move(storage), byte_offset, std::move(shape), dtype);
    }
  }

  // Returns the tensors, and leaves none. Allocates for up to eight of them.
  std::vector<Tensor> take() {
    if (!more_.empty()) return std::exchange(more_, {});
    std::vector<Tensor> taken(std::make_move_iterator(inline_),
                              std::make_move_iterator(inline_ + size_));
    clear();
    return taken;
  }
  // Valid until the next begin() or take().
  std::span<Tensor> tensors() noexcept {
    return more_.empty() ? std::span<Tensor>(inline_, size_) : std::span<Tensor>(more_);
  }

 private:
  void clear() noexcept {
    while (size_ > 0)
      std::destroy_at(inline_ + --size_);
    more_.clear();
  }

  std::size_t size_ = 0;  // tensors constructed in inline_
  bool is_inline_ = true;
  union {
    Tensor inline_[kInline];
  };
  std::vector<Tensor> more_;  // used instead of inline_ when there are more
};

// Returns the bytes from the first element to the end of the last.
std::size_t extent_bytes(const Tensor& tensor) noexcept;

// Returns false only if no byte belongs to both tensors. The result is exact for tensors that are
// dense, that lie apart, or that are different columns of one table; otherwise a true may be wrong.
// Reads no memory and does not allocate.
bool may_overlap(const Tensor& a, const Tensor& b) noexcept;

// Returns whether two elements of one tensor may share bytes, as those of a broadcast axis do.
bool may_overlap_itself(const Shape& shape) noexcept;

}  // namespace cgtree
