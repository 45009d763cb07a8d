// Random layouts stay the same through an export and an import by both protocols.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "base/error.h"
#include "interop/exchange/cuda_array_interface.h"
#include "interop/exchange/dlpack_tensor.h"
#include "interop/exchange/foreign_array.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t kBytes = 1 << 14;

Tensor pool() {
  return empty({kBytes}, DType::kUInt8, Device::host());
}

DType any_dtype() {
  return static_cast<DType>(*rc::gen::inRange(0, kDTypeCount));
}

// Dimensions and strides that fit into the pool: {dims, strides}.
std::pair<Numbers, Numbers> any_layout() {
  const int rank = *rc::gen::inRange(0, Shape::kMaxRank + 1);
  std::pair<Numbers, Numbers> layout;
  std::int64_t room = kBytes / 16;
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t dim = *rc::gen::inRange<std::int64_t>(0, 5);
    const std::int64_t stride = *rc::gen::inRange<std::int64_t>(0, room / 4 + 1);
    layout.first.push_back(dim);
    layout.second.push_back(stride);
    if (dim > 1) room -= (dim - 1) * stride;
  }
  return layout;
}

// A view of `memory` at a random element.
Tensor any_view(const Tensor& memory) {
  const DType dtype = any_dtype();
  const auto [dims, strides] = any_layout();
  const Shape shape(dims, strides);
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t last = kBytes / size - shape.extent();
  const std::int64_t begin = *rc::gen::inRange<std::int64_t>(0, last + 1);
  return Tensor(memory.storage(), static_cast<std::size_t>(begin * size), shape, dtype);
}

// The same elements at the same addresses; strides of axes with one index may differ.
void expect_same(const Tensor& a, const Tensor& b) {
  RC_ASSERT(a.dtype() == b.dtype());
  RC_ASSERT(a.device() == b.device());
  RC_ASSERT(Numbers(a.shape().dims().begin(), a.shape().dims().end()) ==
            Numbers(b.shape().dims().begin(), b.shape().dims().end()));
  if (a.elements() == 0) return;
  RC_ASSERT(a.address() == b.address());
  for (int axis = 0; axis < a.rank(); ++axis) {
    RC_ASSERT(a.dim(axis) < 2 || a.shape().stride(axis) == b.shape().stride(axis));
  }
}

// Acceptance: cai 4.
RC_GTEST_PROP(BoundaryPropertyTest, EveryLayoutComesThroughTheCudaArrayInterface, ()) {
  const Tensor memory = pool();
  const Tensor view = any_view(memory);
  const CudaArrayInterface array = to_cuda_array_interface(view);
  const Stream stream(Device::host());

  expect_same(
      from_cuda_array_interface(array, nullptr, {.consumer = stream, .dtype = view.dtype()}), view);
}

RC_GTEST_PROP(BoundaryPropertyTest, EveryLayoutComesThroughDlpack, ()) {
  const Tensor memory = pool();
  const Tensor view = any_view(memory);

  expect_same(from_dlpack(to_dlpack(view).release()), view);
  expect_same(from_dlpack(to_unversioned_dlpack(view).release()), view);
  const Tensor copy = from_dlpack(to_dlpack(view, {.copy = true}).release());
  RC_ASSERT(copy.is_contiguous());
  RC_ASSERT(copy.elements() == view.elements());
  RC_ASSERT(view.elements() == 0 || copy.data() != view.data());
}

// For any numbers, a layout is refused by name or lies within its declared bytes.
RC_GTEST_PROP(BoundaryPropertyTest, AnyNumbersAreRefusedOrAreAShape,
              (const Numbers& dims, const Numbers& strides)) {
  Numbers steps = strides;
  steps.resize(dims.size());
  const DType dtype = any_dtype();
  const auto unit = *rc::gen::element(StrideUnit::kBytes, StrideUnit::kElements);
  try {
    const Shape shape = shape_of_layout(dims, steps.data(), unit, dtype);
    RC_ASSERT(shape.rank() == static_cast<int>(dims.size()));
    RC_ASSERT(shape.extent() >= 0);
    RC_ASSERT(shape.extent() <= INT64_MAX / static_cast<std::int64_t>(size_of(dtype)));
  } catch (const BoundaryError&) {
    RC_SUCCEED("refused");
  }
}

}  // namespace
}  // namespace cgtree
