// Makes rows, joins their axes, and copies them on the host.
#include "interop/tensor/gather_row.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "interop/tensor/gather_walk.h"

namespace cgtree {
namespace {

struct Axis {
  std::int64_t dim;
  std::int64_t fixed_stride;  // bytes
  std::int64_t stride;        // bytes
};

// The axes of a copy that have an effect, the axis with the largest stride first. A copy without
// fill may process them in any order.
struct Axes {
  std::array<Axis, kMaxGatherRank> list;
  std::size_t count = 0;

  void add(const Axis& axis) {
    if (axis.dim == 1 || (axis.fixed_stride == 0 && axis.stride == 0)) return;
    list[count++] = axis;
  }
  void sort() {
    const auto end = list.begin() + count;
    // Not sort(): GCC 14 warns that its code for more than 16 elements exceeds the array.
    std::partial_sort(list.begin(), end, end, [](const Axis& a, const Axis& b) {
      if (a.fixed_stride != b.fixed_stride) return a.fixed_stride > b.fixed_stride;
      return a.stride > b.stride;
    });
  }
  // Joins each axis to the next outer one if the two are equivalent to one axis.
  void join() {
    for (std::size_t i = count; i-- > 1;) {
      Axis& outer = list[i - 1];
      const Axis& inner = list[i];
      if (outer.fixed_stride != inner.fixed_stride * inner.dim ||
          outer.stride != inner.stride * inner.dim) {
        continue;
      }
      outer = {outer.dim * inner.dim, inner.fixed_stride, inner.stride};
      std::copy(list.begin() + i + 1, list.begin() + count, list.begin() + i);
      --count;
    }
  }
};

void fill_value(const GatherRow& row, std::byte* to, std::uint64_t bytes, std::uint64_t packed) {
  for (std::uint64_t i = 0; i < bytes; ++i)
    to[i] = static_cast<std::byte>(row.value[(packed + i) % row.element]);
}

void do_part(const GatherRow& row, GatherAct act, std::byte* fixed, std::byte* moving,
             std::uint64_t bytes, std::uint64_t packed) {
  switch (act) {
    case GatherAct::kLeave:
      return;
    case GatherAct::kCopy:
      // memmove: source and destination may be the same.
      if (row.direction == GatherDirection::kIn) std::memmove(fixed, moving, bytes);
      if (row.direction == GatherDirection::kOut) std::memmove(moving, fixed, bytes);
      return;
    case GatherAct::kZero:
      std::memset(fixed, 0, bytes);
      return;
    case GatherAct::kValue:
      return fill_value(row, fixed, bytes, packed);
  }
}

}  // namespace

std::uint64_t GatherRow::bytes() const noexcept {
  std::uint64_t bytes = element;
  for (std::uint32_t axis = 0; axis < rank; ++axis)
    bytes *= static_cast<std::uint64_t>(dims[axis]);
  return bytes;
}

GatherRow linear_row(GatherDirection direction, std::uintptr_t fixed, std::uint64_t bytes) {
  GatherRow row;
  row.fixed = fixed;
  row.element = bytes;
  row.direction = direction;
  return row;
}

GatherRow strided_row(GatherDirection direction, std::uintptr_t fixed,
                      std::span<const std::int64_t> dims,
                      std::span<const std::int64_t> fixed_strides,
                      std::span<const std::int64_t> strides, std::size_t element) {
  CGTREE_CHECK(dims.size() <= kMaxGatherRank);
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return linear_row(direction, fixed, 0);
  const auto size = static_cast<std::int64_t>(element);
  Axes axes;
  for (std::size_t i = 0; i < dims.size(); ++i)
    axes.add({dims[i], fixed_strides[i] * size, strides[i] * size});
  axes.sort();
  axes.join();
  GatherRow row = linear_row(direction, fixed, element);
  if (axes.count > 0) {
    const Axis& last = axes.list[axes.count - 1];
    if (last.fixed_stride == size && last.stride == size) {
      row.element *= static_cast<std::uint64_t>(last.dim);
      --axes.count;
    }
  }
  row.rank = static_cast<std::uint32_t>(axes.count);
  for (std::size_t i = 0; i < axes.count; ++i) {
    row.dims[i] = axes.list[i].dim;
    row.fixed_strides[i] = axes.list[i].fixed_stride;
    row.strides[i] = axes.list[i].stride;
  }
  return row;
}

GatherRow padded_row(GatherDirection direction, std::uintptr_t fixed,
                     std::span<const std::int64_t> dims, std::size_t element, GatherFill fill,
                     std::span<const std::byte> value) {
  CGTREE_CHECK(dims.size() <= kMaxGatherRank && element <= kMaxGatherElement);
  CGTREE_CHECK(fill != GatherFill::kValue || value.size() == element);
  GatherRow row = linear_row(direction, fixed, element);
  row.is_padded = !dims.empty();  // a single element is always valid
  row.fill = fill;
  // The value is repeated as often as it fits, so that a kernel can read any aligned word of the
  // pattern.
  for (std::size_t i = 0; i < kMaxGatherElement && !value.empty(); ++i)
    row.value[i] = static_cast<std::uint8_t>(value[i % element]);
  row.rank = static_cast<std::uint32_t>(dims.size());
  auto step = static_cast<std::int64_t>(element);
  for (std::size_t i = dims.size(); i-- > 0;) {
    row.dims[i] = dims[i];
    row.fixed_strides[i] = step;
    step *= std::max<std::int64_t>(dims[i], 1);
  }
  return row;
}

void copy_packed(const GatherRow& row, const std::uint64_t* words, std::uint64_t begin,
                 std::uint64_t end) noexcept {
  const GatherWalk walk = walk_of(row, words);
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t within = at % walk.run;
    const std::uint64_t bytes = std::min(walk.run - within, end - at);
    const GatherPlace place = place_of(row, walk, at / walk.run);
    const std::uint64_t fixed = row.fixed + static_cast<std::uint64_t>(place.fixed) + within;
    const std::uint64_t moving = walk.moving + static_cast<std::uint64_t>(place.moving) + within;
    do_part(row, act_on(row, walk, place), reinterpret_cast<std::byte*>(fixed),
            reinterpret_cast<std::byte*>(moving), bytes, at);
    at += bytes;
  }
}

void write_words(const GatherRow& row, std::uintptr_t moving, std::span<const std::int64_t> sizes,
                 std::span<const std::int64_t> strides, std::span<std::uint64_t> words) noexcept {
  words[0] = moving;
  if (!row.is_padded) return;
  for (std::uint32_t axis = 0; axis < row.rank; ++axis) {
    words[1 + axis] = static_cast<std::uint64_t>(sizes[axis]);
    words[1 + row.rank + axis] = static_cast<std::uint64_t>(strides[axis]) * row.element;
  }
}

}  // namespace cgtree
