// Tensors from and to PyTorch in C++: at::Tensor and Tensor of the same memory.
//
// Compiled where PyTorch's headers are; it is not a part of the library. Nothing waits here: both
// sides must use the memory on the same stream, as bindings/torch/torch.h makes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "interop/exchange/foreign_array.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

namespace detail {

// By DType.
inline constexpr std::array<at::ScalarType, kDTypeCount> kTorchTypes = {
    at::kBool,
    at::kChar,
    at::kShort,
    at::kInt,
    at::kLong,
    at::kByte,
    at::kUInt16,
    at::kUInt32,
    at::kUInt64,
    at::kHalf,
    at::kBFloat16,
    at::kFloat,
    at::kDouble,
    at::kFloat8_e4m3fn,
    at::kFloat8_e4m3fnuz,
    at::kFloat8_e5m2,
    at::kFloat8_e5m2fnuz,
    at::kFloat8_e8m0fnu,
    at::kComplexFloat,
    at::kComplexDouble,
};

// By PyTorch's type.
inline constexpr auto kOurTypes = [] {
  std::array<std::optional<DType>, static_cast<std::size_t>(at::ScalarType::NumOptions)> types = {};
  for (std::size_t i = 0; i < kTorchTypes.size(); ++i)
    types[static_cast<std::size_t>(kTorchTypes[i])] = static_cast<DType>(i);
  return types;
}();

}  // namespace detail

// Throws BoundaryError for types that a Tensor cannot have.
inline DType from_torch_type(at::ScalarType type) {
  const auto number = static_cast<std::size_t>(type);
  if (number < detail::kOurTypes.size() && detail::kOurTypes[number]) [[likely]] {
    return *detail::kOurTypes[number];
  }
  throw BoundaryError(BoundaryFault::kNotSupported,
                      std::string("a tensor of PyTorch has elements of type ") +
                          c10::toString(type) + ", which is not supported");
}

// Returns PyTorch's name of the type.
inline at::ScalarType to_torch_type(DType dtype) noexcept {
  return detail::kTorchTypes[static_cast<std::size_t>(dtype)];
}

// Throws BoundaryError for other devices than the CPU and CUDA's.
inline Device from_torch_device(c10::Device device) {
  if (device.is_cpu()) return Device::host();
  if (device.is_cuda()) return Device::cuda(device.has_index() ? device.index() : 0);
  throw BoundaryError(BoundaryFault::kNotSupported, "a tensor of PyTorch lies on " + device.str() +
                                                        ": expected the CPU, or CUDA");
}

// Returns the CPU, or the device of CUDA with the same number.
inline c10::Device to_torch_device(Device device) {
  if (device.type == DeviceType::kHost) return c10::Device(c10::kCPU);
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device.id));
}

namespace detail {

// A LentStorage keeps a storage of cgtree for PyTorch, as the context of a c10::DataPtr.
struct LentStorage {
  StorageRef storage;
  std::size_t offset = 0;  // from the beginning of PyTorch's storage

  static void release(void* context) noexcept { delete static_cast<LentStorage*>(context); }

  // Returns the storage that was lent to PyTorch with this pointer, or null.
  static const LentStorage* find(const c10::DataPtr& data) noexcept {
    return data.get_deleter() == &release ? static_cast<const LentStorage*>(data.get_context())
                                          : nullptr;
  }
};

// Makes a pointer for PyTorch that keeps the storage until PyTorch frees it. Throws StaleTensor.
inline c10::DataPtr lend(StorageRef storage, std::size_t offset, c10::Device device) {
  std::byte* const data = static_cast<std::byte*>(storage->data()) + offset;
  auto lent = std::make_unique<LentStorage>(LentStorage{std::move(storage), offset});
  return {data, lent.release(), &LentStorage::release, device};
}

// A TorchStorage is memory of PyTorch as a storage of cgtree. PyTorch frees it on the stream of its
// allocation, which must be the stream of its use, as for any tensor of PyTorch.
class TorchStorage final : private StorageOwner {
 public:
  static StorageRef make(c10::Storage memory, Device device, StreamRef stream) {
    return StorageRef((new TorchStorage(std::move(memory), device, stream))->storage_);
  }
  // Returns the PyTorch memory of a storage, or null.
  static const c10::Storage* find(const Storage& storage) noexcept {
    if (storage.domain() != nullptr) return nullptr;
    const auto* const owner = dynamic_cast<const TorchStorage*>(&storage.owner());
    return owner == nullptr ? nullptr : &owner->memory_;
  }

 private:
  TorchStorage(c10::Storage memory, Device device, StreamRef stream)
      : memory_(std::move(memory)),
        storage_(*this, device, stream, memory_.mutable_data(), memory_.nbytes()) {
    storage_.keep_valid();
  }

  void release(Storage&) noexcept override { delete this; }

  const c10::Storage memory_;
  Storage storage_;
};

inline std::span<const std::int64_t> as_span(c10::IntArrayRef values) noexcept {
  return {values.data(), values.size()};
}

inline c10::IntArrayRef as_array(std::span<const std::int64_t> values) noexcept {
  return {values.data(), values.size()};
}

// Makes the shape of a tensor, or copies `known`, if it is the same.
inline Shape shape_of(const at::Tensor& tensor, DType dtype, const Shape* known) {
  const auto dims = as_span(tensor.sizes());
  const auto strides = as_span(tensor.strides());
  if (known != nullptr && std::ranges::equal(known->dims(), dims) &&
      std::ranges::equal(known->strides(), strides)) {
    return *known;
  }
  return shape_of_layout(dims, strides.data(), StrideUnit::kElements, dtype);
}

inline void check_is_plain(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_conj() ||
      tensor.is_neg()) [[unlikely]] {
    throw BoundaryError(BoundaryFault::kNotSupported,
                        "a tensor of PyTorch is sparse, has no storage, or is a lazy conjugate or "
                        "negative: pass it dense, after resolve_conj() and resolve_neg()");
  }
}

}  // namespace detail

// Makes a tensor of the same memory, which it keeps alive; an undefined tensor of an undefined one.
// Memory of cgtree, or memory that came from to_torch(), becomes a tensor of that storage. `stream`
// orders the contents. `known`: a shape that the tensor is likely to have, which saves making it;
// may be null. Throws BoundaryError for types, devices, layouts and numbers of dimensions that are
// not supported.
inline Tensor from_torch(const at::Tensor& tensor, StreamRef stream, const Shape* known = nullptr) {
  if (!tensor.defined()) return {};
  detail::check_is_plain(tensor);
  const DType dtype = from_torch_type(tensor.scalar_type());
  Shape shape = detail::shape_of(tensor, dtype, known);
  const c10::Storage& memory = tensor.storage();
  const std::size_t begin = static_cast<std::size_t>(tensor.storage_offset()) * size_of(dtype);
  if (const detail::LentStorage* lent = detail::LentStorage::find(memory.data_ptr())) {
    return Tensor(lent->storage, lent->offset + begin, std::move(shape), dtype);
  }
  StorageRef storage =
      detail::TorchStorage::make(memory, from_torch_device(tensor.device()), stream);
  return Tensor(std::move(storage), begin, std::move(shape), dtype);
}

// Makes a tensor of PyTorch of the same memory, which it keeps. Memory of PyTorch comes back as
// such. Throws StaleTensor.
inline at::Tensor to_torch(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  (void)tensor.data();  // throws where there is none
  const c10::Device device = to_torch_device(tensor.device());
  const at::ScalarType type = to_torch_type(tensor.dtype());
  const std::size_t item = size_of(tensor.dtype());
  const std::size_t shift = tensor.byte_offset() % item;  // of a storage that is not aligned
  c10::Storage storage;
  const c10::Storage* const memory = detail::TorchStorage::find(*tensor.storage());
  if (memory != nullptr && shift == 0) {
    storage = *memory;
  } else {
    storage = c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage()->bytes() - shift,
                           detail::lend(tensor.storage(), shift, device));
  }
  const auto key = device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), caffe2::TypeMeta::fromScalarType(type));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(
      detail::as_array(tensor.shape().dims()), detail::as_array(tensor.shape().strides()),
      static_cast<std::int64_t>(tensor.byte_offset() / item));
  return made;
}

}  // namespace cgtree
