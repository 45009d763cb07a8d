// Draws with a PhiloxRange in the body of a test kernel.
#include "tests/support/random_steps.h"

#include <stdexcept>

#include "interop/device/kernel.h"
#include "interop/device/stream.h"
#include "interop/random/philox.h"
#include "interop/tensor/empty.h"

namespace cgtree::testing {
namespace {

struct AddNoise {
  PhiloxRange range;
  const float* x;
  float* y;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    y[i] = x[i] + to_uniform(range.block(static_cast<std::uint64_t>(i)).words[0]);
  }
};

void throw_if(const LaunchDims&, const bool* refused) {
  if (*refused) throw std::runtime_error("refused by the test");
}

}  // namespace

Tensor add_noise(const Tensor& x, const Generator& generator) {
  Tensor y = empty(Shape(x.shape().dims()), DType::kFloat32);
  const PhiloxRange range = generator.reserve(static_cast<std::uint64_t>(x.elements()));
  parallel_for(current_stream(), x.elements(), AddNoise{range, x.data<float>(), y.data<float>()});
  return y;
}

void launch_refusable(const bool* refused) {
  launch(current_stream(), make_kernel<throw_if>("throw_if"), {}, refused);
}

}  // namespace cgtree::testing
