// StepFunction: the untyped form of the user's function. InputList: the inputs of a call, borrowed.
// HeldInputs: the same, owned.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "cgtree/values/key.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A StepFunction takes the inputs of a call and returns its outputs.
using StepFunction = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

// A PaddedInput says how the step function sees one input of a padded call.
struct PaddedInput {
  const Shape* shape = nullptr;  // the padded shape; null if the input is seen unchanged
  // True if the input's own memory may be seen with that shape: its storage holds all elements.
  bool in_place = false;
};

// An InputList is a span of tensors or of their addresses; passing it on copies no tensor, however
// many there are. The inputs of the step function come first, then the caller's buffers: buffer i
// receives output i, and a null buffer asks for an ordinary output.
class InputList {
 public:
  InputList() = default;
  // Borrows the tensors, as the next constructor does. There are no buffers.
  InputList(std::span<const Tensor> tensors) noexcept
      : tensors_(tensors.data()), size_(tensors.size()) {}
  // The last `buffers` of the tensors are buffers. Requires: buffers <= addresses.size().
  InputList(std::span<const Tensor* const> addresses, std::size_t buffers = 0) noexcept
      : addresses_(addresses.data()), size_(addresses.size()), buffers_(buffers) {}

  // Returns the same inputs with the handles in `tensors`, which is borrowed. Requires: the same
  // number of tensors.
  InputList at(std::span<const Tensor> tensors) const noexcept {
    InputList list = *this;
    list.tensors_ = tensors.data();
    list.addresses_ = nullptr;
    return list;
  }
  // Returns the same inputs with the shapes of `padded`, which is borrowed and has size() entries.
  InputList padded_as(const PaddedInput* padded) const noexcept {
    InputList list = *this;
    list.padded_ = padded;
    return list;
  }

  // Returns the same inputs with the text of a Key, which is borrowed.
  InputList with_key(std::string_view key) const noexcept {
    InputList list = *this;
    list.key_ = key;
    return list;
  }

  // The text of the call's Key; "" for none.
  std::string_view key() const noexcept { return key_; }
  // The number of all tensors, buffers included.
  std::size_t size() const noexcept { return size_; }
  // The number of buffers, null ones included. They are the last tensors.
  std::size_t buffers() const noexcept { return buffers_; }
  // The number of tensors that the step function takes.
  std::size_t step_size() const noexcept { return size_ - buffers_; }
  // Returns tensor i as the caller passed it, whatever shape the step function sees. Requires: i <
  // size().
  const Tensor& operator[](std::size_t i) const noexcept {
    return addresses_ == nullptr ? tensors_[i] : *addresses_[i];
  }
  // Returns the tensors if they are contiguous in memory, else null.
  const Tensor* contiguous() const noexcept { return tensors_; }
  // The shape that the step function sees.
  const Shape& shape(std::size_t i) const noexcept {
    return is_padded(i) ? *padded_[i].shape : (*this)[i].shape();
  }
  // Returns whether the step function may see another shape than the tensor's.
  bool is_padded(std::size_t i) const noexcept {
    return padded_ != nullptr && padded_[i].shape != nullptr;
  }
  // Returns whether the step function may be given the tensor's own memory.
  bool in_place(std::size_t i) const noexcept { return !is_padded(i) || padded_[i].in_place; }
  // Returns whether tensor i is the caller's buffer for an output. Requires: i < size().
  bool is_buffer(std::size_t i) const noexcept { return i >= step_size(); }
  // Returns whether there is a buffer for output i.
  bool has_buffer(std::size_t i) const noexcept { return i < buffers_ && buffer(i).defined(); }
  // Requires: i < buffers().
  const Tensor& buffer(std::size_t i) const noexcept { return (*this)[step_size() + i]; }

 private:
  const Tensor* tensors_ = nullptr;
  const Tensor* const* addresses_ = nullptr;
  std::size_t size_ = 0;
  std::size_t buffers_ = 0;
  const PaddedInput* padded_ = nullptr;
  std::string_view key_;
};

// A HeldInputs owns handles to the inputs of a call, and copies of the key and of inputs that are
// passed by value. Code of the caller (a step function, the function of a break) may assign the
// variables that it passed, so a call must not read those while such code runs.
class HeldInputs {
 public:
  // Copies inputs that are passed by value. Null tensors stay null. Requires: inputs.key() is
  // text() of a Key.
  explicit HeldInputs(const InputList& inputs)
      : key_(Key::of_text(inputs.key())), inputs_(inputs.with_key(key_.text())) {
    tensors_.reserve(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i)
      tensors_.push_back(held(inputs[i]));
  }
  HeldInputs(const HeldInputs&) = delete;
  HeldInputs& operator=(const HeldInputs&) = delete;

  // Valid while this lives.
  InputList list() const noexcept { return inputs_.at(tensors_); }

 private:
  // A value may lie in a struct of the caller's. Values with gaps are refused later, before they
  // are read.
  static Tensor held(const Tensor& input) {
    if (!input.defined() || !is_by_value(input) || !input.is_contiguous()) return input;
    return by_value(reinterpret_cast<const void*>(input.address()), input.bytes(), input.shape(),
                    input.dtype());
  }

  const Key key_;
  const InputList inputs_;
  std::vector<Tensor> tensors_;
};

}  // namespace cgtree
