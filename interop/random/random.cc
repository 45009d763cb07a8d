// Checks a tensor, advances the generator, and launches the fill.
#include "interop/random/random.h"

#include "base/error.h"
#include "base/format.h"
#include "interop/device/stream.h"
#include "interop/random/random_kernels.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

// Makes all checks, before the generator moves.
template <typename T>
T* expect_fillable(const Tensor& tensor, StreamRef stream) {
  T* const data = tensor.data<T>();
  if (tensor.storage()->is_read_only())
    throw InvalidArgument(str_format("cannot fill {}: it is read-only", describe(tensor)));
  if (!tensor.is_contiguous()) {
    throw InvalidArgument(
        str_format("cannot fill {} with random numbers: it is not contiguous", describe(tensor)));
  }
  if (tensor.device() != stream.device()) {
    throw InvalidArgument(str_format("cannot fill {} on a stream of {}", describe(tensor),
                                     to_string(stream.device())));
  }
  expect_use(tensor.storage(), stream);
  return data;
}

PhiloxRange reserve_for(const Tensor& tensor, std::int64_t per_block, const Generator& generator) {
  const std::int64_t blocks = (tensor.elements() + per_block - 1) / per_block;
  return generator.reserve(static_cast<std::uint64_t>(blocks));
}

}  // namespace

void fill_uniform(const Tensor& tensor, const Generator& generator) {
  const StreamRef stream = current_stream();
  auto* const data = expect_fillable<float>(tensor, stream);
  const PhiloxRange range = reserve_for(tensor, kFloatsPerPhiloxBlock, generator);
  launch_fill_uniform(stream, range, data, tensor.elements());
  note_use(tensor.storage(), stream);
}

void fill_normal(const Tensor& tensor, const Generator& generator, float mean, float deviation) {
  const StreamRef stream = current_stream();
  auto* const data = expect_fillable<float>(tensor, stream);
  const PhiloxRange range = reserve_for(tensor, kFloatsPerPhiloxBlock, generator);
  launch_fill_normal(stream, range, data, tensor.elements(), mean, deviation);
  note_use(tensor.storage(), stream);
}

void fill_integers(const Tensor& tensor, std::int64_t low, std::int64_t high,
                   const Generator& generator) {
  const StreamRef stream = current_stream();
  auto* const data = expect_fillable<std::int64_t>(tensor, stream);
  if (low >= high) {
    throw InvalidArgument(
        str_format("random integers are wanted from {} up to, but not including, {}: there are "
                   "none",
                   low, high));
  }
  const auto span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  const PhiloxRange range = reserve_for(tensor, kIntegersPerPhiloxBlock, generator);
  launch_fill_integers(stream, range, data, tensor.elements(), low, span);
  note_use(tensor.storage(), stream);
}

Tensor uniform(const Shape& shape, const Generator& generator, std::optional<Device> device) {
  Tensor tensor = empty(shape, DType::kFloat32, device);
  fill_uniform(tensor, generator);
  return tensor;
}

Tensor normal(const Shape& shape, const Generator& generator, std::optional<Device> device) {
  Tensor tensor = empty(shape, DType::kFloat32, device);
  fill_normal(tensor, generator);
  return tensor;
}

Tensor random_integers(const Shape& shape, std::int64_t low, std::int64_t high,
                       const Generator& generator, std::optional<Device> device) {
  Tensor tensor = empty(shape, DType::kInt64, device);
  fill_integers(tensor, low, high, generator);
  return tensor;
}

}  // namespace cgtree
