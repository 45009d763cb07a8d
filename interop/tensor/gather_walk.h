// GatherWalk: how both bodies of gather go through a row that is not linear.
//
// A row's bytes are counted as if its fixed side had no gaps ("packed"). What lies together on both
// sides and is all there is a run; a run never needs to be divided into elements, except to know
// the fill.
#pragma once

#include <cstdint>

#include "interop/tensor/gather_row.h"
#include "interop/device/kernel_function.h"

namespace cgtree {

struct GatherWalk {
  std::uint64_t moving;         // address
  std::uint64_t run;            // bytes
  std::uint64_t width;          // the widest word, in bytes up to 16, that may be used throughout
  std::int32_t axes;            // of the row, from the first, that are not part of a run
  bool has_elements;            // on the moving side
  const std::int64_t* sizes;    // of the moving side
  const std::int64_t* strides;  // of the moving side, in bytes
};

// Where a run is: bytes from either side's address.
struct GatherPlace {
  std::int64_t fixed = 0;
  std::int64_t moving = 0;  // where it is not there: of the nearest run that is
  bool is_there = true;     // on the moving side
};

CGTREE_HOST_DEVICE inline GatherWalk walk_of(const GatherRow& row, const std::uint64_t* words) {
  const auto* ridden = reinterpret_cast<const std::int64_t*>(words + 1);
  GatherWalk walk = {words[0],
                     row.element,
                     16,
                     static_cast<std::int32_t>(row.rank),
                     true,
                     row.is_padded ? ridden : row.dims,
                     row.is_padded ? ridden + row.rank : row.strides};
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

// Of a division that is mostly of small numbers: a GPU has no instruction for either.
CGTREE_HOST_DEVICE inline std::uint64_t quotient(std::uint64_t a, std::uint64_t b) {
  if ((a | b) >> 32 == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}

// Of run number `run`.
CGTREE_HOST_DEVICE inline GatherPlace place_of(const GatherRow& row, const GatherWalk& walk,
                                               std::uint64_t run) {
  GatherPlace place;
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

// What is done with a run.
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
