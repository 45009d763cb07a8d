// uniform(), normal(), random_integers(): tensors of random numbers.
//
// The numbers depend only on the generator's position and the element's number in row-major order,
// and not on how a device divides the work. Uniform numbers and integers are the same on every
// device.
//
// All work is launched on current_stream(). Generator describes the draws of a step function's
// replays.
#pragma once

#include <cstdint>
#include <optional>

#include "interop/random/generator.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// These functions make new tensors as empty() does. They throw as empty() and as the fills below.

// Returns float32 in [0, 1).
Tensor uniform(const Shape& shape, const Generator& generator,
               std::optional<Device> device = std::nullopt);
// Returns float32 of mean 0 and standard deviation 1.
Tensor normal(const Shape& shape, const Generator& generator,
              std::optional<Device> device = std::nullopt);
// Returns int64 in [low, high).
Tensor random_integers(const Shape& shape, std::int64_t low, std::int64_t high,
                       const Generator& generator, std::optional<Device> device = std::nullopt);

// The next three fill an existing tensor. Four float32 elements use one block of the generator, as
// do two int64; the rest of the last block is not used. Throw InvalidArgument for another element
// type, for a tensor that is read-only, not contiguous or on another device than the stream, and
// for low >= high; then the generator has not moved.
void fill_uniform(const Tensor& tensor, const Generator& generator);
void fill_normal(const Tensor& tensor, const Generator& generator, float mean = 0,
                 float deviation = 1);
void fill_integers(const Tensor& tensor, std::int64_t low, std::int64_t high,
                   const Generator& generator);

}  // namespace cgtree
