// GatherWalk: the order in which the host body and the kernels process a row that is not linear.
//
// The bytes of a row are counted as if its fixed side had no gaps ("packed"). A run is a range of
// bytes that are contiguous on both sides and all present; only a fill divides a run into elements.
#pragma once

#include <cstdint>

#include "interop/device/kernel_function.h"
#include "interop/tensor/gather_row.h"

namespace cgtree {

struct GatherWalk {
  std::uint64_t moving;         // address
  std::uint64_t run;            // bytes
  std::uint64_t width;          // the widest word, in bytes up to 16, for all accesses
  std::int32_t axes;            // the leading axes of the row, which are not part of a run
  bool has_elements;            // true if the moving side has elements
  const std::int64_t* sizes;    // of the moving side
  const std::int64_t* strides;  // of the moving side, in bytes
};

// A GatherPlace is the position of a run: bytes from the address of each side.
struct GatherPlace {
  std::int64_t fixed = 0;
  std::int64_t moving = 0;  // of a missing run: that of the nearest present run
  bool is_there = true;     // true if the moving side has this run
};

CGTREE_HOST_DEVICE inline GatherWalk walk_of(const GatherRow& row, const std::uint64_t* words) {
  const auto* passed = reinterpret_cast<const std::int64_t*>(words + 1);
  GatherWalk walk = {words[0],
                     row.element,
                     16,
                     static_cast<std::int32_t>(row.rank),
                     true,
                     row.is_padded ? passed : row.dims,
                     row.is_padded ? passed + row.rank : row.strides};
  for (std::int32_t a = 0; a < walk.axes; ++a)
    walk.has_elements = walk.has_elements && walk.sizes[a] > 0;
  for (; walk.axes > 0; --walk.axes) {
    const std::int32_t a = walk.axes - 1;
    if (walk.sizes[a] != row.dims[a]) break;
    const auto run = static_cast<std::int64_t>(walk.run);
    if (row.dims[a] != 1 && (row.fixed_strides[a] != run || walk.strides[a] != run)) break;
    walk.run *= static_cast<std::uint64_t>(row.dims[a]);
  }
  std::uint64_t bits = 16 | walk.run | row.fixed | walk.moving;
  for (std::int32_t a = 0; a < walk.axes; ++a)
    bits |= static_cast<std::uint64_t>(row.fixed_strides[a] | walk.strides[a]);
  walk.width = bits & (~bits + 1);
  return walk;
}

// Returns a / b. Most operands are small, and a GPU divides 32 bits much faster than 64.
CGTREE_HOST_DEVICE inline std::uint64_t quotient(std::uint64_t a, std::uint64_t b) {
  if ((a | b) >> 32 == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}

// Returns the position of run number `run`.
CGTREE_HOST_DEVICE inline GatherPlace place_of(const GatherRow& row, const GatherWalk& walk,
                                               std::uint64_t run) {
  GatherPlace place;
#ifdef __CUDA_ARCH__
#pragma unroll 1  // each copy divides
#endif
  for (std::int32_t a = walk.axes - 1; a >= 0; --a) {
    const std::uint64_t rest = quotient(run, static_cast<std::uint64_t>(row.dims[a]));
    auto i = static_cast<std::int64_t>(run - rest * static_cast<std::uint64_t>(row.dims[a]));
    run = rest;
    place.fixed += i * row.fixed_strides[a];
    if (i >= walk.sizes[a]) {
      place.is_there = false;
      i = walk.sizes[a] - 1;
    }
    place.moving += i * walk.strides[a];
  }
  return place;
}

// The action of a kernel on a run.
enum class GatherAct : std::uint8_t { kLeave, kCopy, kZero, kValue };

CGTREE_HOST_DEVICE inline GatherAct act_on(const GatherRow& row, const GatherWalk& walk,
                                           const GatherPlace& place) {
  if (place.is_there) return GatherAct::kCopy;
  if (row.direction == GatherDirection::kOut || row.fill == GatherFill::kAny) {
    return GatherAct::kLeave;
  }
  if (row.fill == GatherFill::kValue) return GatherAct::kValue;
  return row.fill == GatherFill::kLast && walk.has_elements ? GatherAct::kCopy : GatherAct::kZero;
}

}  // namespace cgtree
