// InputList: the inputs of a call, borrowed; a span of tensors or of their addresses.
#pragma once

#include <cstddef>
#include <span>

#include "interop/tensor.h"

namespace cgtree {

// Nothing is copied to pass inputs on, however many there are.
class InputList {
 public:
  InputList() = default;
  InputList(std::span<const Tensor> tensors) noexcept
      : tensors_(tensors.data()), size_(tensors.size()) {}
  InputList(std::span<const Tensor* const> addresses) noexcept
      : addresses_(addresses.data()), size_(addresses.size()) {}

  std::size_t size() const noexcept { return size_; }
  const Tensor& operator[](std::size_t i) const noexcept {
    return addresses_ == nullptr ? tensors_[i] : *addresses_[i];
  }

 private:
  const Tensor* tensors_ = nullptr;
  const Tensor* const* addresses_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace cgtree
