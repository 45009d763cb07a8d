// The bodies of the kernels that write flags.
#include "tests/support/flags.h"

#include "interop/device/kernel.h"
#include "interop/device/stream.h"

namespace cgtree::testing {
namespace {

struct Compare {
  const float* x;
  std::int32_t* flag;
  double limit;  // of 8 bytes: no padding between arguments
  CGTREE_HOST_DEVICE void operator()(std::int64_t) const { *flag = *x > limit ? 1 : 0; }
};

struct RoundDown {
  const float* x;
  std::int32_t* index;
  CGTREE_HOST_DEVICE void operator()(std::int64_t) const {
    const auto whole = static_cast<std::int32_t>(*x);
    *index = static_cast<float>(whole) > *x ? whole - 1 : whole;
  }
};

}  // namespace

void compare(const Tensor& x, float limit, const Tensor& flag) {
  parallel_for(current_stream(), 1, Compare{x.data<float>(), flag.data<std::int32_t>(), limit});
}

void round_down(const Tensor& x, const Tensor& index) {
  parallel_for(current_stream(), 1, RoundDown{x.data<float>(), index.data<std::int32_t>()});
}

}  // namespace cgtree::testing
