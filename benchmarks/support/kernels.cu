// The trivial kernel, for both devices.
#include "benchmarks/support/kernels.h"

#include <cstddef>
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

// As AddOne, with a parameter of many bytes.
template <std::size_t kBytes>
struct AddOneOfMany {
  float* y;
  char rest[kBytes - sizeof(float*)];
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const { y[i] += 1.0f; }
};

template <std::size_t kBytes>
void launch_wide(StreamRef stream, float* x) {
  AddOneOfMany<kBytes> body = {};
  body.y = x;
  parallel_for(stream, 1, body);
}

}  // namespace

void launch_wide_kernel(StreamRef stream, float* x, int parameter_bytes) {
  if (parameter_bytes <= 256) return launch_wide<256>(stream, x);
  if (parameter_bytes <= 1024) return launch_wide<1024>(stream, x);
  launch_wide<4000>(stream, x);
}

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
