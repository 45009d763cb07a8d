// InputList: the inputs of a call, borrowed; a span of tensors or of their addresses.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

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
  // The tensors where they lie side by side, else null.
  const Tensor* contiguous() const noexcept { return tensors_; }
  const Tensor& operator[](std::size_t i) const noexcept {
    return addresses_ == nullptr ? tensors_[i] : *addresses_[i];
  }

 private:
  const Tensor* tensors_ = nullptr;
  const Tensor* const* addresses_ = nullptr;
  std::size_t size_ = 0;
};

// The same tensors, held: what a step function is given.
inline std::vector<Tensor> hold(InputList inputs) {
  std::vector<Tensor> held;
  held.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    held.push_back(inputs[i]);
  return held;
}

}  // namespace cgtree
