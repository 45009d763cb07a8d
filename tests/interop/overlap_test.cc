// may_overlap() against sets of bytes.
#include "interop/tensor/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <random>
#include <set>

#include "interop/tensor/empty.h"

namespace cgtree::testing {
namespace {

// Inserts the bytes of the tensor; returns false if two elements share a byte.
bool bytes_of(const Tensor& tensor, std::set<std::uintptr_t>& bytes) {
  bool once = true;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    std::int64_t rest = i, offset = 0;
    for (int axis = tensor.rank() - 1; axis >= 0; --axis) {
      offset += rest % tensor.dim(axis) * tensor.shape().stride(axis);
      rest /= tensor.dim(axis);
    }
    const auto size = static_cast<std::int64_t>(size_of(tensor.dtype()));
    for (std::int64_t byte = 0; byte < size; ++byte)
      once = bytes.insert(tensor.address() + offset * size + byte).second && once;
  }
  return once;
}

TEST(Overlap, NeverMissesASharedByte) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto up_to = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random);
  };
  const Tensor memory = empty({4096}, DType::kInt8, Device::host());
  const auto draw = [&] {
    std::vector<std::int64_t> dims(up_to(3)), strides(dims.size());
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
      dims[axis] = up_to(4);
      strides[axis] = up_to(3) * (up_to(1) == 0 ? 1 : 5);
    }
    const DType dtype = up_to(1) == 0 ? DType::kInt8 : DType::kInt32;
    return Tensor(memory.storage(), up_to(100), Shape(dims, strides), dtype);
  };
  int apart = 0;
  for (int i = 0; i < 5000; ++i) {
    const Tensor a = draw(), b = draw();
    std::set<std::uintptr_t> of_a, of_b;
    const bool a_once = bytes_of(a, of_a);
    (void)bytes_of(b, of_b);
    bool shared = false;
    for (const std::uintptr_t byte : of_a)
      shared = shared || of_b.contains(byte);
    if (shared) {
      ASSERT_TRUE(may_overlap(a, b)) << describe(a) << ", " << describe(b) << ", seed " << seed;
    }
    if (!a_once) {
      ASSERT_TRUE(may_overlap_itself(a.shape())) << describe(a) << ", seed " << seed;
    }
    apart += !may_overlap(a, b);
  }
  EXPECT_GT(apart, 100);
}

TEST(Overlap, DifferentColumnsAreApart) {
  const Tensor table = empty({6, 8}, DType::kFloat32, Device::host());
  EXPECT_FALSE(may_overlap(table.slice(1, 0, 3), table.slice(1, 3, 8)));
  EXPECT_TRUE(may_overlap(table.slice(1, 0, 4), table.slice(1, 3, 8)));
  EXPECT_FALSE(may_overlap(table.slice(0, 0, 3), table.slice(0, 3, 6)));
  EXPECT_TRUE(may_overlap(table, table.transpose(0, 1)));
  EXPECT_FALSE(may_overlap(table, table.slice(0, 2, 2)));
}

TEST(Overlap, ABroadcastTensorOverlapsItself) {
  const std::array<std::int64_t, 2> dims = {3, 4};
  EXPECT_FALSE(may_overlap_itself(Shape(dims)));
  EXPECT_FALSE(may_overlap_itself(Shape(dims, std::array<std::int64_t, 2>{1, 3})));
  EXPECT_TRUE(may_overlap_itself(Shape(dims, std::array<std::int64_t, 2>{0, 1})));
  EXPECT_TRUE(may_overlap_itself(Shape(dims, std::array<std::int64_t, 2>{3, 1})));
}

class NoOwner final : public StorageOwner {
  void release(Storage&) noexcept override {}
};

TEST(Overlap, MemoryOfTwoDevicesIsApartEvenAtOneAddress) {
  std::array<float, 4> memory;
  NoOwner owner;
  Storage first(owner, Device::host(0), {}, memory.data(), sizeof(memory));
  Storage second(owner, Device::host(1), {}, memory.data(), sizeof(memory));
  const Tensor a(StorageRef(first), 0, Shape{4}, DType::kFloat32);
  const Tensor b(StorageRef(second), 0, Shape{4}, DType::kFloat32);

  EXPECT_TRUE(may_overlap(a, a));
  EXPECT_FALSE(may_overlap(a, b));
}

}  // namespace
}  // namespace cgtree::testing
