// One kernel for both devices. Without CUDA a C++ compiler compiles this file too.
#include "examples/branching/steps.h"

#include "interop/device/kernel.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"

namespace cgtree::branching {
namespace {

struct Affine {
  const float* x;
  float* y;
  float scale;
  float shift;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const { y[i] = scale * x[i] + shift; }
};

}  // namespace

Tensor affine(const Tensor& x, float scale, float shift) {
  Tensor y = empty(x.shape(), DType::kFloat32);
  parallel_for(current_stream(), x.elements(),
               Affine{x.data<float>(), y.data<float>(), scale, shift});
  return y;
}

}  // namespace cgtree::branching
