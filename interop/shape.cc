// Builds, compares and prints shapes.
#include "interop/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "base/error.h"

namespace cgtree {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

std::int64_t checked_multiply(std::int64_t a, std::int64_t b, std::span<const std::int64_t> dims) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    throw InvalidArgument(
        fmt::format("shape {{{}}} has more than {} elements", fmt::join(dims, ", "), kMax));
  }
  return product;
}

void check_dims(std::span<const std::int64_t> dims) {
  if (dims.size() > static_cast<std::size_t>(Shape::kMaxRank)) {
    throw InvalidArgument(fmt::format("shape {{{}}} has rank {}; at most {} is supported",
                                      fmt::join(dims, ", "), dims.size(), Shape::kMaxRank));
  }
  for (const std::int64_t dim : dims) {
    if (dim < 0) {
      throw InvalidArgument(
          fmt::format("shape {{{}}} has a negative dimension", fmt::join(dims, ", ")));
    }
  }
}

// FNV-1a over whole words, then a mix, so that near shapes land far apart.
std::uint64_t mix(std::uint64_t hash, std::int64_t value) {
  hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3ULL;
  return hash ^ (hash >> 29);
}

}  // namespace

Shape::Shape() noexcept : record_(nullptr) {
}

Shape::Shape(std::span<const std::int64_t> dims) : record_(nullptr) {
  check_dims(dims);
  std::int64_t strides[kMaxRank] = {};
  std::int64_t step = 1;
  for (int axis = static_cast<int>(dims.size()) - 1; axis >= 0; --axis) {
    strides[axis] = step;
    step = checked_multiply(step, std::max<std::int64_t>(dims[axis], 1), dims);
  }
  *this = Shape(dims, std::span<const std::int64_t>(strides, dims.size()));
}

Shape::Shape(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides)
    : record_(nullptr) {
  check_dims(dims);
  if (dims.size() != strides.size()) {
    throw InvalidArgument(
        fmt::format("{} dimensions given, but {} strides", dims.size(), strides.size()));
  }
  if (dims.empty()) return;
  auto record = std::make_unique<Record>();
  record->rank = static_cast<int>(dims.size());
  std::int64_t step = 1;
  record->hash = 0xcbf29ce484222325ULL;
  for (int axis = record->rank - 1; axis >= 0; --axis) {
    if (strides[axis] < 0) {
      throw InvalidArgument(fmt::format(
          "stride {} of axis {} is negative; reverse the data instead", strides[axis], axis));
    }
    record->dims[axis] = dims[axis];
    record->strides[axis] = strides[axis];
    record->elements = checked_multiply(record->elements, dims[axis], dims);
    if (dims[axis] > 1) {
      record->extent += checked_multiply(dims[axis] - 1, strides[axis], dims);
      record->contiguous = record->contiguous && strides[axis] == step;
    }
    step = checked_multiply(step, std::max<std::int64_t>(dims[axis], 1), dims);
    record->hash = mix(mix(record->hash, dims[axis]), strides[axis]);
  }
  if (record->elements == 0) {
    record->extent = 0;
    record->contiguous = true;
  }
  record_ = record.release();
}

Shape& Shape::operator=(const Shape& other) noexcept {
  retain(other.record_);
  release(record_);
  record_ = other.record_;
  return *this;
}

Shape& Shape::operator=(Shape&& other) noexcept {
  std::swap(record_, other.record_);
  return *this;
}

std::span<const std::int64_t> Shape::dims() const noexcept {
  if (record_ == nullptr) return {};
  return {record_->dims, static_cast<std::size_t>(record_->rank)};
}

std::span<const std::int64_t> Shape::strides() const noexcept {
  if (record_ == nullptr) return {};
  return {record_->strides, static_cast<std::size_t>(record_->rank)};
}

bool Shape::equal(const Record* a, const Record* b) noexcept {
  if (a == nullptr || b == nullptr) return a == b;
  return a->hash == b->hash && a->rank == b->rank &&
         std::equal(a->dims, a->dims + a->rank, b->dims) &&
         std::equal(a->strides, a->strides + a->rank, b->strides);
}

std::string to_string(const Shape& shape) {
  std::string text = fmt::format("{{{}}}", fmt::join(shape.dims(), ", "));
  if (!shape.is_contiguous()) {
    text += fmt::format(" strides {{{}}}", fmt::join(shape.strides(), ", "));
  }
  return text;
}

}  // namespace cgtree
