// Imports check what another library passed in, and order our work with its work. Exports copy if
// necessary, and describe the tensor.
#include "interop/exchange/dlpack_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "interop/device/device.h"
#include "interop/device/stream.h"
#include "interop/exchange/dlpack.h"
#include "interop/exchange/foreign_memory.h"
#include "interop/exchange/lent_memory.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/stream_synchronization.h"

namespace cgtree {
namespace {

// The common part of the two structs.
struct Given {
  const dlpack::TensorView& tensor;
  bool needs_strides;
  bool is_read_only;
  std::shared_ptr<void> owner;
};

[[noreturn]] void refuse(BoundaryFault fault, std::string_view what) {
  throw BoundaryError(fault, what);
}

template <typename T>
std::shared_ptr<void> own(T* stolen) {
  return std::shared_ptr<void>(stolen, [](T* tensor) {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  });
}

Shape shape_of(const dlpack::TensorView& tensor, bool needs_strides, DType dtype) {
  if (tensor.ndim < 0) {
    refuse(BoundaryFault::kWrongValue, fmt::format("ndim is {}: it is negative", tensor.ndim));
  }
  if (tensor.ndim == 0) return {};
  if (tensor.shape == nullptr) {
    refuse(BoundaryFault::kMissing, fmt::format("shape is null, but ndim is {}", tensor.ndim));
  }
  if (tensor.strides == nullptr && needs_strides) {
    refuse(BoundaryFault::kMissing,
           fmt::format("strides are null, but ndim is {}: from DLPack 1.2 on they must be given",
                       tensor.ndim));
  }
  const auto rank = static_cast<std::size_t>(tensor.ndim);
  std::optional<std::span<const std::int64_t>> strides;
  if (tensor.strides != nullptr) strides.emplace(tensor.strides, rank);
  return shape_of_layout({tensor.shape, rank}, strides, StrideUnit::kElements, dtype);
}

DeviceType type_of(dlpack::DeviceRef device) {
  switch (device.type) {
    case dlpack::kCpu:
    case dlpack::kCudaHost:
      return DeviceType::kHost;
    case dlpack::kCuda:
    case dlpack::kCudaManaged:
      return DeviceType::kCuda;
    default:
      break;
  }
  const auto type = static_cast<DeviceType>(device.type);
  if (type >= DeviceType::kFirstUserType && find_device_api(type) != nullptr) return type;
  refuse(BoundaryFault::kNotSupported,
         fmt::format("data is on {}: expected the CPU, CUDA, or a device that was registered",
                     to_string(device)));
}

// Returns the device of the memory. `consumer` may be null; it is of that device, or `anywhere`.
Device device_of(dlpack::DeviceRef given, const void* data, StreamRef consumer, bool anywhere) {
  const DeviceType type = type_of(given);
  if (type == DeviceType::kHost) return Device::host();
  const bool is_anywhere = given.type == dlpack::kCudaManaged;
  const Device said{type, is_anywhere ? 0 : given.id};
  const Device device = is_anywhere && consumer ? consumer.device() : said;
  DeviceAPI& api = device_api(device);
  if (consumer && consumer.device() != device && !anywhere) {
    refuse(BoundaryFault::kWrongValue,
           fmt::format("data is on {}, but is to be used on a stream of {}", to_string(device),
                       to_string(consumer.device())));
  }
  return data == nullptr ? device : locate(api, device, data, !anywhere);
}

// Throws if the data ends beyond the address space.
std::size_t bytes_to_end(const std::byte* data, std::uint64_t offset, std::size_t bytes) {
  std::uintptr_t end = reinterpret_cast<std::uintptr_t>(data);
  if (offset > PTRDIFF_MAX || __builtin_add_overflow(end, offset, &end) ||
      __builtin_add_overflow(end, bytes, &end)) {
    refuse(BoundaryFault::kWrongValue,
           fmt::format("data at {} + {}, {} bytes, reaches beyond the addresses there are",
                       static_cast<const void*>(data), offset, bytes));
  }
  return offset + bytes;
}

struct Place {
  std::byte* data;
  std::size_t offset;  // of the first element
  std::size_t bytes;   // from `data` on
};

Place place_of(const dlpack::TensorView& tensor, const Shape& shape, DType dtype) {
  if (shape.elements() == 0) return {nullptr, 0, 0};
  auto* const data = static_cast<std::byte*>(tensor.data);
  if (data == nullptr) {
    refuse(BoundaryFault::kWrongValue,
           fmt::format("data is null, but the shape is {}", to_string(shape)));
  }
  const std::size_t bytes = static_cast<std::size_t>(shape.extent()) * size_of(dtype);
  const Place place{data, tensor.byte_offset, bytes_to_end(data, tensor.byte_offset, bytes)};
  check_alignment(reinterpret_cast<std::uintptr_t>(data) + place.offset, dtype);
  return place;
}

Tensor take(Given given, const DlpackImportOptions& options) {
  const dlpack::TensorView& tensor = given.tensor;
  const DType dtype = from_dlpack_type(tensor.dtype);
  Shape shape = shape_of(tensor, given.needs_strides, dtype);
  const Place place = place_of(tensor, shape, dtype);
  StreamRef consumer = consumer_or_current(options.consumer);
  // Host memory may be used on the stream of any device, to copy from.
  if (consumer && consumer.device().type != type_of(tensor.device)) consumer = {};
  const void* const first = place.data == nullptr ? nullptr : place.data + place.offset;
  const Device device = device_of(tensor.device, first, consumer, options.on_any_device);
  const bool is_elsewhere = consumer && consumer.device() != device;
  if (!consumer || (is_elsewhere && !options.on_any_device)) {
    consumer = {device, StreamHandle::kLegacy};
  }
  const StreamRef order = order_import(options.producer, consumer, options.sync);
  const StreamRef producer = options.sync == SyncPolicy::kIgnore ? StreamRef() : options.producer;
  return imported(
      {device, place.data, place.bytes, std::move(given.owner), producer, given.is_read_only},
      order, place.offset, std::move(shape), dtype);
}

}  // namespace

Tensor from_dlpack(dlpack::ManagedVersioned* stolen, const DlpackImportOptions& options) {
  if (stolen == nullptr) refuse(BoundaryFault::kMissing, "no tensor was given: a null pointer was");
  std::shared_ptr<void> owner = own(stolen);
  const dlpack::Version version = stolen->version;
  if (version.major != dlpack::kVersion.major) {
    refuse(BoundaryFault::kNotSupported,
           fmt::format("the tensor speaks DLPack {}.{}: expected {}.x, which is what a producer is "
                       "asked for with max_version=({}, {})",
                       version.major, version.minor, dlpack::kVersion.major, dlpack::kVersion.major,
                       dlpack::kVersion.minor));
  }
  return take({stolen->tensor, version.minor >= 2, (stolen->flags & dlpack::kReadOnly) != 0,
               std::move(owner)},
              options);
}

Tensor from_dlpack(dlpack::Managed* stolen, const DlpackImportOptions& options) {
  if (stolen == nullptr) refuse(BoundaryFault::kMissing, "no tensor was given: a null pointer was");
  return take({stolen->tensor, false, false, own(stolen)}, options);
}

namespace {

// The streams on which work on the tensor may be pending.
struct Pending {
  std::vector<StreamRef> streams;
  std::vector<StreamRef> capturing;  // those of them that capture
};

Pending pending_on(const Tensor& tensor) {
  Pending pending;
  const auto add = [&](StreamRef stream) {
    auto& streams = pending.streams;
    if (!stream || stream.device() != tensor.device()) return;
    if (std::find(streams.begin(), streams.end(), stream) != streams.end()) return;
    streams.push_back(stream);
    if (capture_of(stream) != 0) pending.capturing.push_back(stream);
  };
  add(tensor.storage()->stream());
  add(current_stream_or_none());
  return pending;
}

// Returns null for -1. Requires a device that has streams.
StreamRef consumer_of(Device device, std::optional<std::intptr_t> stream) {
  if (stream == 0) {
    refuse(BoundaryFault::kWrongValue,
           "stream is 0, which could mean either default stream: expected -1, 1 (legacy), 2 (per "
           "thread) or a cudaStream_t");
  }
  if (stream && *stream < -1) {
    refuse(BoundaryFault::kWrongValue,
           fmt::format("stream is {}: expected -1, 1, 2 or a cudaStream_t", *stream));
  }
  if (stream == -1) return {};
  return {device, static_cast<StreamHandle>(stream.value_or(1))};
}

void expect_no_stream(const Tensor& tensor, std::optional<std::intptr_t> stream) {
  if (!stream) return;
  refuse(BoundaryFault::kWrongValue,
         fmt::format("stream is {}, but {} goes out as memory of the host, which has no streams: "
                     "expected None",
                     *stream, describe(tensor)));
}

// Makes the consumer's stream wait for pending work or, inside a capture, for captured work.
void order(const Pending& pending, std::optional<std::intptr_t> stream, StreamRef consumer) {
  if (!consumer || (!stream && !pending.capturing.empty())) return;
  for (const StreamRef other : pending.capturing.empty() ? pending.streams : pending.capturing)
    (void)order_import(other, consumer, SyncPolicy::kEventWait);
}

void wait_for_all(const Pending& pending) {
  for (const StreamRef stream : pending.streams) {
    if (pending.capturing.empty()) stream.synchronize();
  }
}

// Makes a row-major tensor outside of every pool, so that no context can invalidate it.
Tensor own_memory(const Tensor& like, Device device, StreamRef stream) {
  const std::size_t bytes = like.bytes();
  void* const data = bytes == 0 ? nullptr : allocate_device_memory(device, bytes);
  std::shared_ptr<void> owner(data, [device](void* memory) { free_device_memory(device, memory); });
  StorageRef storage =
      ImportedStorage::make({device, data, bytes, std::move(owner), {}, false}, stream);
  return Tensor(std::move(storage), 0, Shape(like.shape().dims()), like.dtype());
}

Tensor copied(const Tensor& tensor, StreamRef stream) {
  Tensor copy = own_memory(tensor, tensor.device(), stream);
  if (tensor.elements() > 0) copy_elements(stream, copy, tensor);
  return copy;
}

Tensor copied_to_host(const Tensor& tensor, const Pending& pending) {
  const Device host = Device::host();
  const StreamRef stream = pending.streams.empty()
                               ? StreamRef(tensor.device(), StreamHandle::kLegacy)
                               : pending.streams.front();
  for (const StreamRef other : pending.streams)
    stream.wait_for(other);
  const Tensor dense = tensor.is_contiguous() ? tensor : copied(tensor, stream);
  Tensor copy = own_memory(tensor, host, StreamRef(host, StreamHandle::kLegacy));
  if (tensor.elements() == 0) return copy;
  dense.copy_to_host(copy.data(), copy.bytes(), stream);
  return copy;
}

struct Ready {
  Tensor tensor;
  bool is_copied = false;
};

Ready make_copy(const Tensor& tensor, Device device, const Pending& pending, StreamRef consumer) {
  if (!pending.capturing.empty() || (consumer && capture_of(consumer) != 0)) {
    throw CaptureError(static_cast<int>(Code::kStreamCaptureUnsupported),
                       fmt::format("a copy of {} for another library cannot be made while a "
                                   "capture is open: export it before or after",
                                   describe(tensor)));
  }
  if (device != tensor.device()) return {copied_to_host(tensor, pending), true};
  const bool has_own = !consumer && !pending.streams.empty();
  const StreamRef stream = has_own    ? pending.streams.front()
                           : consumer ? consumer
                                      : StreamRef(device, StreamHandle::kLegacy);
  Tensor copy = copied(tensor, stream);
  if (device.type == DeviceType::kHost) stream.synchronize();
  return {std::move(copy), true};
}

// Returns the tensor as the consumer wants it, or throws before anything is enqueued that matters.
Ready prepare(const Tensor& tensor, const DlpackExportOptions& options) {
  (void)tensor.data();  // throws where there is none
  const Device device = options.device.value_or(tensor.device());
  const bool moves = device != tensor.device();
  if (moves && device != Device::host()) {
    refuse(BoundaryFault::kNotSupported,
           fmt::format("{} was asked for on {}: expected its own device, or {}", describe(tensor),
                       to_string(device), to_string(Device::host())));
  }
  if (moves && options.copy == false) {
    refuse(BoundaryFault::kWrongValue,
           fmt::format("{} was asked for on {} without a copy: that takes one", describe(tensor),
                       to_string(device)));
  }
  const bool is_host = device.type == DeviceType::kHost;
  if (is_host) expect_no_stream(tensor, options.stream);
  const StreamRef consumer = is_host ? StreamRef() : consumer_of(device, options.stream);
  const bool is_copied = moves || options.copy == true;
  if (!is_host && !consumer && !is_copied)
    return {tensor, false};  // -1: pending work is not queried
  const Pending pending = pending_on(tensor);
  if (!moves && !is_host) order(pending, options.stream, consumer);
  if (is_host && !moves) wait_for_all(pending);
  if (is_copied) return make_copy(tensor, device, pending, consumer);
  return {tensor, false};
}

template <typename Managed>
struct Exported {
  Managed managed = {};
  Lease memory;
  std::array<std::int64_t, Shape::kMaxRank> shape;  // only the first `ndim` are set
  std::array<std::int64_t, Shape::kMaxRank> strides;
};

template <typename Managed>
void drop(Managed* managed) {
  delete static_cast<Exported<Managed>*>(managed->context);
}

template <typename Managed>
std::unique_ptr<Exported<Managed>> exported(const Tensor& tensor) {
  auto made = std::make_unique_for_overwrite<Exported<Managed>>();
  const Shape& shape = tensor.shape();
  std::copy(shape.dims().begin(), shape.dims().end(), made->shape.begin());
  std::copy(shape.strides().begin(), shape.strides().end(), made->strides.begin());
  dlpack::TensorView& view = made->managed.tensor;
  view.data = tensor.elements() == 0 ? nullptr : tensor.data();
  view.device = to_dlpack_device(tensor.device());
  if (tensor.device().type == DeviceType::kHost) view.device.id = 0;  // there is one CPU
  view.ndim = shape.rank();
  view.dtype = to_dlpack_type(tensor.dtype());
  view.shape = made->shape.data();
  view.strides = made->strides.data();
  made->managed.context = made.get();
  made->managed.deleter = &drop<Managed>;
  made->memory = Lease(tensor.storage());
  return made;
}

}  // namespace

DlpackTensor to_dlpack(const Tensor& tensor, const DlpackExportOptions& options) {
  const bool is_read_only = cgtree::is_read_only(tensor);
  const Ready ready = prepare(tensor, options);
  auto made = exported<dlpack::ManagedVersioned>(ready.tensor);
  made->managed.version = dlpack::kVersion;
  if (ready.is_copied) made->managed.flags |= dlpack::kIsCopied;
  if (is_read_only && !ready.is_copied) made->managed.flags |= dlpack::kReadOnly;
  return DlpackTensor(&made.release()->managed);
}

UnversionedDlpackTensor to_unversioned_dlpack(const Tensor& tensor,
                                              const DlpackExportOptions& options) {
  const bool is_copied =
      options.copy == true || (options.device && options.device != tensor.device());
  if (!is_copied && is_read_only(tensor)) {
    refuse(BoundaryFault::kNotSupported,
           fmt::format("{} is read-only, which DLPack before 1.0 cannot say: ask with max_version="
                       "({}, {}), or for a copy",
                       describe(tensor), dlpack::kVersion.major, dlpack::kVersion.minor));
  }
  auto made = exported<dlpack::Managed>(prepare(tensor, options).tensor);
  return UnversionedDlpackTensor(&made.release()->managed);
}

}  // namespace cgtree
