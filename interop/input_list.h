// InputList: the inputs of a call, borrowed; a span of tensors or of their addresses.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "interop/tensor.h"

namespace cgtree {

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

  // Of all, buffers included.
  std::size_t size() const noexcept { return size_; }
  // The tensors where they lie side by side, else null.
  const Tensor* contiguous() const noexcept { return tensors_; }
  std::size_t buffers() const noexcept { return buffers_; }
  // What the step function takes.
  std::size_t step_size() const noexcept { return size_ - buffers_; }
  const Tensor& operator[](std::size_t i) const noexcept {
    return addresses_ == nullptr ? tensors_[i] : *addresses_[i];
  }
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
};

}  // namespace cgtree
