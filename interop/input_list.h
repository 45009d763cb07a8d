// InputList: the inputs of a call, borrowed; a span of tensors or of their addresses.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "interop/tensor.h"

namespace cgtree {

// How a step function is to see an input.
struct SeenInput {
  const Shape* shape = nullptr;  // null: as it is
  // Not of null: the input's own memory may be seen so: its storage holds all of the shape there.
  bool in_place = false;
};

// Nothing is copied to pass inputs on, however many there are.
class InputList {
 public:
  InputList() = default;
  InputList(std::span<const Tensor> tensors) noexcept
      : tensors_(tensors.data()), size_(tensors.size()) {}
  InputList(std::span<const Tensor* const> addresses) noexcept
      : addresses_(addresses.data()), size_(addresses.size()) {}

  // The same inputs, to be seen as `seen` says, which has as many entries; borrowed too.
  InputList seen_as(const SeenInput* seen) const noexcept {
    InputList list = *this;
    list.seen_ = seen;
    return list;
  }

  std::size_t size() const noexcept { return size_; }
  // The tensors where they lie side by side, else null.
  const Tensor* contiguous() const noexcept { return tensors_; }
  const Tensor& operator[](std::size_t i) const noexcept {
    return addresses_ == nullptr ? tensors_[i] : *addresses_[i];
  }
  // The shape that the step function sees.
  const Shape& shape(std::size_t i) const noexcept {
    return is_padded(i) ? *seen_[i].shape : (*this)[i].shape();
  }
  // Whether the shape seen is another than the tensor's.
  bool is_padded(std::size_t i) const noexcept {
    return seen_ != nullptr && seen_[i].shape != nullptr;
  }
  // Whether the step function may be given the tensor's own memory.
  bool in_place(std::size_t i) const noexcept { return !is_padded(i) || seen_[i].in_place; }

 private:
  const Tensor* tensors_ = nullptr;
  const Tensor* const* addresses_ = nullptr;
  std::size_t size_ = 0;
  const SeenInput* seen_ = nullptr;
};

// The same tensors, held, each as it is: what a step function that runs eagerly is given.
inline std::vector<Tensor> hold(InputList inputs) {
  std::vector<Tensor> held;
  held.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    held.push_back(inputs[i]);
  return held;
}

}  // namespace cgtree
