// InputList: the inputs of a call, borrowed; a span of tensors or of their addresses.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "interop/tensor/tensor.h"

namespace cgtree {

// How a step function is to see an input.
struct SeenInput {
  const Shape* shape = nullptr;  // null: as it is
  // Not of null: the input's own memory may be seen so: its storage holds all of the shape there.
  bool in_place = false;
};

// Nothing is copied to pass inputs on, however many there are. Behind what the step function takes
// there may be buffers: buffer i is where the caller wants output i; one that holds nothing means
// "an output as usual".
class InputList {
 public:
  InputList() = default;
  InputList(std::span<const Tensor> tensors) noexcept
      : tensors_(tensors.data()), size_(tensors.size()) {}
  // The last `buffers` of them are buffers. Requires buffers <= addresses.size().
  InputList(std::span<const Tensor* const> addresses, std::size_t buffers = 0) noexcept
      : addresses_(addresses.data()), size_(addresses.size()), buffers_(buffers) {}

  // The same inputs, to be seen as `seen` says, which has as many entries; borrowed too.
  InputList seen_as(const SeenInput* seen) const noexcept {
    InputList list = *this;
    list.seen_ = seen;
    return list;
  }

  // Of all, buffers included.
  std::size_t size() const noexcept { return size_; }
  std::size_t buffers() const noexcept { return buffers_; }
  // What the step function takes.
  std::size_t step_size() const noexcept { return size_ - buffers_; }
  const Tensor& operator[](std::size_t i) const noexcept {
    return addresses_ == nullptr ? tensors_[i] : *addresses_[i];
  }
  // The tensors where they lie side by side, else null.
  const Tensor* contiguous() const noexcept { return tensors_; }
  // The shape that the step function sees.
  const Shape& shape(std::size_t i) const noexcept {
    return is_padded(i) ? *seen_[i].shape : (*this)[i].shape();
  }
  // Whether it is another than the tensor's, or may be.
  bool is_padded(std::size_t i) const noexcept {
    return seen_ != nullptr && seen_[i].shape != nullptr;
  }
  // Whether the step function may be given the tensor's own memory.
  bool in_place(std::size_t i) const noexcept { return !is_padded(i) || seen_[i].in_place; }
  bool is_buffer(std::size_t i) const noexcept { return i >= step_size(); }
  // Whether there is a buffer for output i.
  bool has_buffer(std::size_t i) const noexcept { return i < buffers_ && buffer(i).defined(); }
  // Requires i < buffers().
  const Tensor& buffer(std::size_t i) const noexcept { return (*this)[step_size() + i]; }

 private:
  const Tensor* tensors_ = nullptr;
  const Tensor* const* addresses_ = nullptr;
  std::size_t size_ = 0;
  std::size_t buffers_ = 0;
  const SeenInput* seen_ = nullptr;
};

}  // namespace cgtree
