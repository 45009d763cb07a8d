// uniform(), normal(), random_integers(): tensors of random numbers.
//
// The numbers depend on the generator's position and the element's number in row-major order only,
// not on how a device cuts the work. Uniform numbers and integers are the same on every device.
//
// All work is launched on current_stream(). In a step function, see Generator for what replays
// draw.
#pragma once

#include <cstdint>
#include <optional>

#include "interop/random/generator.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// New tensors, made as empty() makes them, and throwing what it and the fills below throw.

// float32 in [0, 1).
Tensor uniform(const Shape& shape, const Generator& generator,
               std::optional<Device> device = std::nullopt);
// float32 of mean 0 and standard deviation 1.
Tensor normal(const Shape& shape, const Generator& generator,
              std::optional<Device> device = std::nullopt);
// int64 in [low, high).
Tensor random_integers(const Shape& shape, std::int64_t low, std::int64_t high,
                       const Generator& generator, std::optional<Device> device = std::nullopt);

// The same into a tensor there is. Four float32 elements use one block of the generator, and two
// int64; a last block that is not used up is not used again. Throw InvalidArgument for another
// element type, for a tensor that is not contiguous or lies on another device than the stream, and
// for low >= high; then the generator has not moved.
void fill_uniform(const Tensor& tensor, const Generator& generator);
void fill_normal(const Tensor& tensor, const Generator& generator, float mean = 0,
                 float deviation = 1);
void fill_integers(const Tensor& tensor, std::int64_t low, std::int64_t high,
                   const Generator& generator);

}  // namespace cgtree
