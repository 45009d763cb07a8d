// Shapes: strides, sizes, equality, refusals.
#include "interop/tensor/shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "base/error.h"

namespace cgtree {
namespace {

using Dims = std::vector<std::int64_t>;

Dims to_vector(std::span<const std::int64_t> values) {
  return {values.begin(), values.end()};
}

TEST(ShapeTest, RowMajorStridesFollowFromTheDimensions) {
  const Shape shape{2, 3, 4};

  EXPECT_EQ(to_vector(shape.strides()), (Dims{12, 4, 1}));
  EXPECT_EQ(shape.elements(), 24);
  EXPECT_EQ(shape.extent(), 24);
  EXPECT_TRUE(shape.is_contiguous());
}

TEST(ShapeTest, RankZeroIsOneElement) {
  const Shape shape;

  EXPECT_EQ(shape.rank(), 0);
  EXPECT_EQ(shape.elements(), 1);
  EXPECT_EQ(shape, Shape(std::span<const std::int64_t>()));
  EXPECT_EQ(to_string(shape), "{}");
}

TEST(ShapeTest, ADimensionOfZeroLeavesNothing) {
  const Shape shape{3, 0, 5};

  EXPECT_EQ(shape.elements(), 0);
  EXPECT_EQ(shape.extent(), 0);
  EXPECT_TRUE(shape.is_contiguous());
}

TEST(ShapeTest, TheExtentReachesToTheLastElementTouched) {
  const Shape transposed(Dims{3, 2}, Dims{1, 3});
  const Shape spaced(Dims{4}, Dims{10});
  const Shape repeated(Dims{1000, 2}, Dims{0, 1});

  EXPECT_EQ(transposed.extent(), 6);
  EXPECT_EQ(spaced.extent(), 31);
  EXPECT_EQ(repeated.extent(), 2);
  EXPECT_EQ(repeated.elements(), 2000);
}

TEST(ShapeTest, ElementsAndReachAreCountedOrRefused) {
  const std::int64_t half = std::int64_t{1} << 62;

  EXPECT_EQ(Shape(Dims{2, half - 1}).elements(), 2 * (half - 1));
  EXPECT_THROW(Shape(Dims{2, half}), InvalidArgument);
  EXPECT_THROW(Shape(Dims{2, half}, Dims{0, 0}), InvalidArgument);
  EXPECT_EQ(Shape(Dims{2}, Dims{2 * (half - 1)}).extent(), 2 * (half - 1) + 1);
  EXPECT_THROW(Shape(Dims{3}, Dims{half}), InvalidArgument);
  EXPECT_THROW(Shape(Dims{2, 2}, Dims{half, half}), InvalidArgument);
}

TEST(ShapeTest, StridesOfSingleElementsDoNotMatterForContiguity) {
  EXPECT_TRUE(Shape(Dims{1, 5}, Dims{77, 1}).is_contiguous());
  EXPECT_FALSE(Shape(Dims{2, 5}, Dims{6, 1}).is_contiguous());
}

TEST(ShapeTest, EqualMeansSameDimensionsAndStrides) {
  const Shape shape{2, 3};
  const Shape copy = shape;

  EXPECT_EQ(shape, copy);
  EXPECT_EQ(shape, (Shape{2, 3}));
  EXPECT_EQ(shape.hash(), (Shape{2, 3}).hash());
  EXPECT_NE(shape, (Shape{3, 2}));
  EXPECT_NE(shape, Shape(Dims{2, 3}, Dims{1, 2}));
  EXPECT_NE(shape, Shape());
}

TEST(ShapeTest, ImpossibleShapesAreRefused) {
  EXPECT_THROW((Shape{2, -1}), InvalidArgument);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), InvalidArgument);
  EXPECT_THROW((Shape{std::int64_t{1} << 40, std::int64_t{1} << 40}), InvalidArgument);
  EXPECT_THROW(Shape(Dims{2}, Dims{-1}), InvalidArgument);
  EXPECT_THROW(Shape(Dims{2, 2}, Dims{1}), InvalidArgument);
}

TEST(ShapeTest, PrintsStridesOnlyWhereTheySaySomething) {
  EXPECT_EQ(to_string(Shape{2, 3}), "{2, 3}");
  EXPECT_EQ(to_string(Shape(Dims{3, 2}, Dims{1, 3})), "{3, 2} strides {1, 3}");
}

// Small shapes with any strides, compared with a visit of each element.
TEST(ShapeTest, DenseAndReachAreWhatTheElementsSay) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t rank = 1 + random() % 3;
    Dims dims, strides;
    for (std::size_t axis = 0; axis < rank; ++axis) {
      dims.push_back(static_cast<std::int64_t>(random() % 4));
      strides.push_back(static_cast<std::int64_t>(random() % 8));
    }
    const Shape shape(dims, strides);
    const std::int64_t elements = Shape(dims).elements();
    bool is_dense = true;
    std::int64_t extent = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
      std::int64_t at = 0;
      std::int64_t rest = i;
      for (std::size_t axis = rank; axis-- > 0; rest /= dims[axis])
        at += rest % dims[axis] * strides[axis];
      is_dense = is_dense && at == i;
      extent = std::max(extent, at + 1);
    }
    EXPECT_EQ(shape.is_contiguous(), is_dense) << to_string(shape) << ", seed " << seed;
    EXPECT_EQ(shape.extent(), extent) << to_string(shape) << ", seed " << seed;
    EXPECT_EQ(shape.elements(), elements);
  }
}

}  // namespace
}  // namespace cgtree
