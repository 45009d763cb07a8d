// Arithmetic of the model and small helpers, for all files of World.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "interop/tensor/tensor.h"
#include "tests/system/model_tensor.h"
#include "tests/system/world_program.h"

namespace cgtree::testing {

inline constexpr int kNobodys = ModelTensor::kNobodys;
inline constexpr int kOwnStreams = 7;  // the option of a context with a stream given by the caller
inline const Shape kRow{6};

inline bool same_dims(const Shape& a, const Shape& b) {
  return std::ranges::equal(a.dims(), b.dims());
}

// A difference between device and model.
struct Difference : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline ModelTensor affine_of(const ModelTensor& x, float scale, float shift) {
  return model_affine(x, scale, shift, kNobodys);
}

inline ModelTensor view_of(const ModelTensor& x, const Tensor& from, const Tensor& view) {
  const auto moved = static_cast<std::int64_t>(view.byte_offset() - from.byte_offset());
  return {x.buffer, x.offset + moved / 4, view.shape()};
}

inline WorldOperation without_fault(WorldOperation operation) {
  operation.fault = 0;
  return operation;
}

// Returns true if the library refuses the action of `body`, as it must inside a call.
template <typename Body>
bool is_refused(const Body& body) {
  try {
    body();
    return false;
  } catch (const ConcurrentUse&) {
  } catch (const InvalidArgument&) {
  }
  return true;
}

// Returns the fault, with a late one replaced by an early one: a late fault throws after the step
// has written mutated tensors.
inline std::uint8_t without_late(std::uint8_t fault) {
  return fault == 2 ? std::uint8_t{1} : fault;
}

// The results of kFork on its two streams.
inline ModelTensor left_of(const ModelTensor& x) {
  return affine_of(affine_of(x, 0.5f, 0), -1, 0);
}
inline ModelTensor right_of(const ModelTensor& x) {
  return affine_of(x, 1, 1);
}

// Returns the results of plain calls, and applies their writes. `number`: the value in a block or
// table.
std::vector<ModelTensor> results_of(Deed deed, const ModelTensor& x, const ModelTensor& y,
                                    float number);

}  // namespace cgtree::testing
