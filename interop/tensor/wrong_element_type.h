// WrongElementType: a tensor was accessed as elements of another type than its own.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// It has the tensor's address, so that the caller of a step function can name the input.
class WrongElementType : public InvalidArgument {
 public:
  WrongElementType(const Tensor& tensor, DType accessed);

  std::uintptr_t address() const noexcept { return address_; }

 private:
  std::uintptr_t address_;
};

}  // namespace cgtree
