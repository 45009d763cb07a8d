// Builds, compares and prints shapes.
#include "interop/tensor/shape.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "base/error.h"
#include "base/format.h"

namespace cgtree {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

[[noreturn]] void throw_too_many(std::span<const std::int64_t> dims) {
  throw InvalidArgument(
      str_format("shape {{{}}} has more than {} elements", joined(dims, ", "), kMax));
}

[[noreturn]] void throw_too_far(std::span<const std::int64_t> dims,
                                std::span<const std::int64_t> strides) {
  throw InvalidArgument(
      str_format("shape {{{}}} with strides {{{}}} reaches over more than {} "
                 "elements",
                 joined(dims, ", "), joined(strides, ", "), kMax));
}

void check_dims(std::span<const std::int64_t> dims) {
  if (dims.size() > static_cast<std::size_t>(Shape::kMaxRank)) {
    throw InvalidArgument(str_format("shape {{{}}} has rank {}; at most {} is supported",
                                     joined(dims, ", "), dims.size(), Shape::kMaxRank));
  }
  for (const std::int64_t dim : dims) {
    if (dim < 0) {
      throw InvalidArgument(
          str_format("shape {{{}}} has a negative dimension", joined(dims, ", ")));
    }
  }
}

[[noreturn]] void throw_backwards(std::int64_t stride, std::size_t axis) {
  throw InvalidArgument(
      str_format("stride {} of axis {} is negative; reverse the data instead", stride, axis));
}

// FNV-1a over whole words, then a mix, so that similar shapes have distant hashes.
std::uint64_t mix(std::uint64_t hash, std::int64_t value) {
  hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3ULL;
  return hash ^ (hash >> 29);
}

}  // namespace

Shape::Shape(std::span<const std::int64_t> dims) : record_(make(dims, nullptr)) {
}

Shape::Shape(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides)
    : record_(nullptr) {
  if (dims.size() != strides.size()) {
    throw InvalidArgument(
        str_format("{} dimensions given, but {} strides", dims.size(), strides.size()));
  }
  record_ = make(dims, strides.data());
}

Shape::Record* Shape::make(std::span<const std::int64_t> dims, const std::int64_t* strides) {
  check_dims(dims);
  if (dims.empty()) return nullptr;
  auto record = std::make_unique_for_overwrite<Record>();
  std::int64_t step = 1;  // row-major stride of this axis
  std::int64_t extent = 1;
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  bool contiguous = true;
  bool is_empty = false;
  for (std::size_t axis = dims.size(); axis-- > 0;) {
    const std::int64_t dim = dims[axis];
    const std::int64_t stride = strides == nullptr ? step : strides[axis];
    if (stride < 0) throw_backwards(stride, axis);
    if (dim > 1) {
      contiguous = contiguous && stride == step;
      // In a row-major shape this is also the extent.
      if (__builtin_mul_overflow(step, dim, &step)) throw_too_many(dims);
      std::int64_t reach = 0;
      if (__builtin_mul_overflow(dim - 1, stride, &reach) ||
          __builtin_add_overflow(extent, reach, &extent)) {
        throw_too_far(dims, {strides, dims.size()});
      }
    }
    is_empty = is_empty || dim == 0;
    hash = mix(mix(hash, dim), stride);
    record->dims[axis] = dim;
    record->strides[axis] = stride;
  }
  record->rank = static_cast<int>(dims.size());
  record->contiguous = contiguous || is_empty;
  record->elements = is_empty ? 0 : step;
  record->extent = is_empty ? 0 : extent;
  record->hash = hash;
  return record.release();
}

bool Shape::equal(const Record* a, const Record* b) noexcept {
  if (a == nullptr || b == nullptr) return a == b;
  if (a->rank != b->rank) return false;
  // Replays compare shapes of few dimensions: two calls of memcmp would take longer.
  std::int64_t difference = 0;
  for (int axis = 0; axis < a->rank; ++axis) {
    difference |= a->dims[axis] ^ b->dims[axis];
    difference |= a->strides[axis] ^ b->strides[axis];
  }
  return difference == 0;
}

std::string to_string(const Shape& shape) {
  std::string text = str_format("{{{}}}", joined(shape.dims(), ", "));
  if (!shape.is_contiguous()) {
    text += str_format(" strides {{{}}}", joined(shape.strides(), ", "));
  }
  return text;
}

}  // namespace cgtree
