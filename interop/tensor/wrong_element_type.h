// WrongElementType: a tensor was accessed as elements of another type than it has.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// It says where the tensor lies, so that the caller of a step function can name the input.
class WrongElementType : public InvalidArgument {
 public:
  WrongElementType(const Tensor& tensor, DType accessed);

  std::uintptr_t address() const noexcept { return address_; }

 private:
  std::uintptr_t address_;
};

}  // namespace cgtree
