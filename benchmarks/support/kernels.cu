// The trivial kernel, for both devices.
#include "benchmarks/support/kernels.h"

#include <cstdint>

#include "interop/device/kernel.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"

namespace cgtree::benchmarks {
namespace {

struct AddOne {
  const float* x;  // may be null
  float* y;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    y[i] = (x == nullptr ? 0.0f : x[i]) + 1.0f;
  }
};

}  // namespace

void launch_trivial_kernel(StreamRef stream, float* x) {
  parallel_for(stream, 1, AddOne{nullptr, x});
}

Tensor trivial_step(std::span<const Tensor> inputs) {
  Tensor y = empty(Shape{1}, DType::kFloat32);
  const float* const x = inputs.empty() ? nullptr : inputs[0].data<float>();
  parallel_for(current_stream(), 1, AddOne{x, y.data<float>()});
  return y;
}

std::vector<Tensor> many_readers(std::span<const Tensor> inputs, int consumers) {
  std::vector<Tensor> outputs;
  for (int i = 0; i < consumers; ++i)
    outputs.push_back(trivial_step(inputs));
  return outputs;
}

}  // namespace cgtree::benchmarks
