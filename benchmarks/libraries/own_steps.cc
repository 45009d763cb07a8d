// Kernels of this repository, each with a struct of pointers by value.
#include <cstddef>

#include "benchmarks/libraries/library_steps.h"
#include "benchmarks/support/kernels.h"
#include "interop/device/device_api.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"

namespace cgtree::benchmarks {
namespace {

constexpr int kKernels = 100;

Tensor chain(const Tensor& x) {
  Tensor y = trivial_step({&x, 1});
  for (int i = 1; i < kKernels; ++i)
    y = trivial_step({&y, 1});
  return y;
}

Tensor copies(const Tensor& x) {
  Tensor y = empty(x.shape(), x.dtype());
  const StreamRef stream = current_stream();
  check(stream.graphs().memset(stream.handle(), y.data(), 0, y.bytes()), "memset");
  check(stream.api().copy(stream.handle(), y.data(), x.data(), y.bytes() / 2), "copy");
  return y;
}

}  // namespace

std::vector<LibraryStep> own_steps() {
  return {{"cgtree", "a chain of 100 kernels", chain}, {"cgtree", "a memset and a copy", copies}};
}

}  // namespace cgtree::benchmarks
