// The drawing kernel, with the arithmetic of bindings/c/c_api.h.
#include "tests/c_api/draw_kernels.h"

#include "interop/device/kernel.h"

namespace cgtree::testing {
namespace {

struct Draw {
  cgt_philox_range range;
  float* y;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    std::uint32_t words[4];
    cgt_philox_block(&range, static_cast<std::uint64_t>(i), words);
    y[i] = static_cast<float>(words[0] >> 8) / 16777216.0f;
  }
};

}  // namespace

void launch_draws(StreamRef stream, const cgt_philox_range& range, float* y, std::int64_t count) {
  parallel_for(stream, count, Draw{range, y});
}

}  // namespace cgtree::testing
