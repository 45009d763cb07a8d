// Work of steps that launches kernels directly, as an engine does, and the addresses that it is
// bound to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cgtree/steps.h"
#include "interop/device/graph_api.h"
#include "interop/tensor/tensor.h"
#include "tests/support/test_kernels.h"

namespace cgtree::testing {

// An address. The constructor from a tensor avoids data(), whose calls a recording notes.
struct Place {
  Place(const void* place) : address(reinterpret_cast<std::uintptr_t>(place)) {}
  Place(std::uintptr_t place) : address(place) {}
  Place(const Tensor& tensor) : address(tensor.address()) {}

  void* data() const { return reinterpret_cast<void*>(address); }

  std::uintptr_t address;
};

inline Binding binding_of(const Tensor& tensor) {
  return {Place(tensor).data(), tensor.bytes()};
}

// Enqueues y += a * x for `count` floats on the stream of the step.
inline void axpy(float a, Place x, Place y, std::int64_t count) {
  const StreamRef stream = current_stream();
  const void* const from = x.data();
  void* const to = y.data();
  check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(count),
                                      arguments_of(a, from, to, count)),
        "launch axpy");
}

}  // namespace cgtree::testing
