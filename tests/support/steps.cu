// Bodies of the small step functions.
#include "interop/device/kernel.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"
#include "tests/support/steps.h"

namespace cgtree::testing {
namespace {

// The addresses of a strided tensor's elements, as a kernel argument passed by value.
struct Strided {
  float* data = nullptr;
  std::int64_t rank = 0;  // of 8 bytes: without padding, captures are equal byte by byte
  std::int64_t dims[4] = {};
  std::int64_t strides[4] = {};

  explicit Strided(const Tensor& x) : data(x.data<float>()), rank(x.rank()) {
    for (int axis = 0; axis < x.rank(); ++axis) {
      dims[axis] = x.shape().dim(axis);
      strides[axis] = x.shape().stride(axis);
    }
  }
  CGTREE_HOST_DEVICE float& operator[](std::int64_t i) const {
    std::int64_t offset = 0;
    for (std::int64_t axis = rank - 1; axis >= 0; --axis) {
      offset += i % dims[axis] * strides[axis];
      i /= dims[axis];
    }
    return data[offset];
  }
};

struct Affine {
  Strided x;
  Strided y;
  float scale;
  float shift;
  // With scale 0, x may be anything, including NaN.
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    y[i] = scale == 0 ? shift : scale * x[i] + shift;
  }
};

struct Add {
  Strided x;
  Strided y;
  Strided z;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const { z[i] = x[i] + y[i]; }
};

}  // namespace

Tensor affine(const Tensor& x, float scale, float shift) {
  Tensor y = empty(Shape(x.shape().dims()), DType::kFloat32);
  parallel_for(current_stream(), x.elements(), Affine{Strided(x), Strided(y), scale, shift});
  return y;
}

Tensor add(const Tensor& x, const Tensor& y) {
  Tensor z = empty(Shape(x.shape().dims()), DType::kFloat32);
  parallel_for(current_stream(), x.elements(), Add{Strided(x), Strided(y), Strided(z)});
  return z;
}

void update(const Tensor& x, float scale, float shift) {
  parallel_for(current_stream(), x.elements(), Affine{Strided(x), Strided(x), scale, shift});
}

}  // namespace cgtree::testing
