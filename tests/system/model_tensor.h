// ModelTensor: a tensor in host memory with the values that a tensor of the library must have.
#pragma once

#include <memory>
#include <vector>

#include "interop/tensor/shape.h"

namespace cgtree::testing {

// A view of a buffer, as a Tensor is a view of a Storage: a write through one view shows in all
// views of the buffer.
struct ModelTensor {
  // `context`: the context whose mark_step() ends the memory, or kNobodys: memory outside contexts.
  static constexpr int kNobodys = -1;
  struct Buffer {
    std::vector<float> values;
    int context = kNobodys;
    bool is_stale = false;
  };

  static ModelTensor make(const Shape& shape, int context) {
    const Shape dense(shape.dims());
    return {std::make_shared<Buffer>(
                Buffer{std::vector<float>(static_cast<std::size_t>(dense.elements())), context}),
            0, dense};
  }

  float& operator[](std::int64_t i) const {
    std::int64_t at = offset;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      at += i % shape.dim(axis) * shape.stride(axis);
      i /= shape.dim(axis);
    }
    return buffer->values[static_cast<std::size_t>(at)];
  }

  std::shared_ptr<Buffer> buffer;
  std::int64_t offset = 0;  // elements
  Shape shape;
};

inline ModelTensor model_affine(const ModelTensor& x, float scale, float shift, int context) {
  const ModelTensor y = ModelTensor::make(x.shape, context);
  for (std::int64_t i = 0; i < x.shape.elements(); ++i)
    y[i] = scale * x[i] + shift;
  return y;
}

inline ModelTensor model_add(const ModelTensor& x, const ModelTensor& y, int context) {
  const ModelTensor z = ModelTensor::make(x.shape, context);
  for (std::int64_t i = 0; i < x.shape.elements(); ++i)
    z[i] = x[i] + y[i];
  return z;
}

inline void model_update(const ModelTensor& x, float scale, float shift) {
  for (std::int64_t i = 0; i < x.shape.elements(); ++i)
    x[i] = scale * x[i] + shift;
}

// Requires: `to` and `from` have the same dims.
inline void model_copy(const ModelTensor& to, const ModelTensor& from) {
  for (std::int64_t i = 0; i < from.shape.elements(); ++i)
    to[i] = from[i];
}

}  // namespace cgtree::testing
