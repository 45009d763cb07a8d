// Compares ranges first, and then the runs that repeat with the strides.
#include "interop/tensor/overlap.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "interop/tensor/gather_row.h"

namespace cgtree {
namespace {

// A Comb is the length of a tensor's runs, and the greatest common divisor of the distances between
// them; 0 if there is only one run.
struct Comb {
  std::uint64_t run = 0;
  std::uint64_t step = 0;
};

Comb comb_of(const Tensor& tensor) noexcept {
  const Shape& shape = tensor.shape();
  const GatherRow row = strided_row(GatherDirection::kIn, 0, shape.dims(), shape.strides(),
                                    shape.strides(), size_of(tensor.dtype()));
  Comb comb{row.element, 0};
  for (std::uint32_t axis = 0; axis < row.rank; ++axis)
    comb.step = std::gcd(comb.step, static_cast<std::uint64_t>(row.strides[axis]));
  return comb;
}

std::size_t extent_bytes(const Tensor& tensor) noexcept {
  return static_cast<std::size_t>(tensor.shape().extent()) * size_of(tensor.dtype());
}

}  // namespace

bool may_overlap(const Tensor& a, const Tensor& b) noexcept {
  const std::uintptr_t at_a = a.address();
  const std::uintptr_t at_b = b.address();
  if (a.device() != b.device()) return false;
  if (at_a + extent_bytes(a) <= at_b || at_b + extent_bytes(b) <= at_a) return false;
  if (a.elements() == 0 || b.elements() == 0) return false;
  if (a.is_contiguous() && b.is_contiguous()) return true;
  const Comb comb_a = comb_of(a);
  const Comb comb_b = comb_of(b);
  const std::uint64_t step = std::gcd(comb_a.step, comb_b.step);
  if (step == 0) return true;
  // Modulo `step`, all runs of a tensor begin at the same offset.
  const std::uint64_t from_a_to_b = (at_b % step + step - at_a % step) % step;
  return from_a_to_b < comb_a.run || step - from_a_to_b < comb_b.run;
}

bool may_overlap_itself(const Shape& shape) noexcept {
  std::array<std::pair<std::int64_t, std::int64_t>, Shape::kMaxRank> axes;  // stride, dim
  std::size_t count = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape.dim(axis) == 0) return false;
    if (shape.dim(axis) > 1) axes[count++] = {shape.stride(axis), shape.dim(axis)};
  }
  std::sort(axes.begin(), axes.begin() + count);
  std::int64_t reach = 0;  // of the axes with smaller strides
  for (std::size_t i = 0; i < count; ++i) {
    if (axes[i].first <= reach) return true;
    reach += axes[i].first * (axes[i].second - 1);
  }
  return false;
}

}  // namespace cgtree
