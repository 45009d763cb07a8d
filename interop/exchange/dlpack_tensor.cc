// Imports check the arguments of another library, and order our work with its work. Exports copy if
// necessary, and describe the tensor.
#include "interop/exchange/dlpack_tensor.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/device/stream.h"
#include "interop/exchange/dlpack.h"
#include "interop/exchange/lent_memory.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/outside_of_steps.h"
#include "interop/tensor/stream_synchronization.h"

namespace cgtree {
namespace {

[[noreturn]] void refuse(BoundaryFault fault, std::string_view what) {
  throw BoundaryError(fault, what);
}

template <typename T>
std::shared_ptr<void> own(T* stolen) {
  return std::shared_ptr<void>(stolen, [](T* tensor) {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  });
}

// Throws unless there are as many sizes as dimensions, and strides if they are needed.
void check_fields(const dlpack::TensorView& view, bool needs_strides) {
  if (view.ndim < 0) {
    refuse(BoundaryFault::kWrongValue, str_format("ndim is {}: it is negative", view.ndim));
  }
  if (view.ndim == 0) return;
  if (view.shape == nullptr) {
    refuse(BoundaryFault::kMissing, str_format("shape is null, but ndim is {}", view.ndim));
  }
  if (view.strides == nullptr && needs_strides) {
    refuse(BoundaryFault::kMissing,
           str_format("strides are null, but ndim is {}: from DLPack 1.2 on they must be given",
                      view.ndim));
  }
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
         str_format("data is on {}: expected the CPU, CUDA, or a device that was registered",
                    to_string(device)));
}

Device device_of(dlpack::DeviceRef device, StreamRef consumer) {
  const DeviceType type = type_of(device);
  if (type == DeviceType::kHost) return Device::host();
  if (device.type != dlpack::kCudaManaged) return {type, device.id};
  return consumer && consumer.device().type == type ? consumer.device() : Device{type, 0};
}

// Returns null for null data.
void* first_element(const dlpack::TensorView& view) {
  auto address = reinterpret_cast<std::uintptr_t>(view.data);
  if (address == 0) return nullptr;
  if (view.byte_offset > PTRDIFF_MAX ||
      __builtin_add_overflow(address, view.byte_offset, &address)) {
    refuse(BoundaryFault::kWrongValue,
           str_format("data at {} + {} is beyond the addresses there are", view.data,
                      view.byte_offset));
  }
  return reinterpret_cast<void*>(address);
}

}  // namespace

ForeignArray read_view(const dlpack::TensorView& view, bool needs_strides, StreamRef consumer) {
  ForeignArray array;
  array.dtype = from_dlpack_type(view.dtype);
  check_fields(view, needs_strides);
  array.shape = shape_of_layout({view.shape, static_cast<std::size_t>(view.ndim)}, view.strides,
                                StrideUnit::kElements, array.dtype);
  if (array.shape.elements() > 0) array.data = first_element(view);
  array.device = device_of(view.device, consumer);
  array.is_machine_memory = array.device->type == DeviceType::kHost;
  return array;
}

namespace {

Tensor take(ForeignArray&& array, std::shared_ptr<void> owner, bool is_read_only,
            const ImportOptions& options) {
  array.owner = std::move(owner);
  array.is_read_only = is_read_only;
  return import_array(std::move(array), options);
}

StreamRef consumer_of(const ImportOptions& options) {
  return options.consumer ? options.consumer : current_stream_or_none();
}

}  // namespace

Tensor from_dlpack(dlpack::ManagedVersioned* stolen, const ImportOptions& options) {
  if (stolen == nullptr) refuse(BoundaryFault::kMissing, "no tensor was given: a null pointer was");
  std::shared_ptr<void> owner = own(stolen);
  const dlpack::Version version = stolen->version;
  if (version.major != dlpack::kVersion.major) {
    refuse(BoundaryFault::kNotSupported,
           str_format("the tensor speaks DLPack {}.{}: expected {}.x, which is what a producer is "
                      "asked for with max_version=({}, {})",
                      version.major, version.minor, dlpack::kVersion.major, dlpack::kVersion.major,
                      dlpack::kVersion.minor));
  }
  return take(read_view(stolen->tensor, version.minor >= 2, consumer_of(options)), std::move(owner),
              (stolen->flags & dlpack::kReadOnly) != 0, options);
}

Tensor from_dlpack(dlpack::Managed* stolen, const ImportOptions& options) {
  if (stolen == nullptr) refuse(BoundaryFault::kMissing, "no tensor was given: a null pointer was");
  std::shared_ptr<void> owner = own(stolen);
  return take(read_view(stolen->tensor, false, consumer_of(options)), std::move(owner), false,
              options);
}

namespace {

// Returns null for -1. Requires a device that has streams.
StreamRef stream_of(Device device, std::optional<std::intptr_t> stream) {
  if (stream == 0) {
    refuse(BoundaryFault::kWrongValue,
           "stream is 0, which could mean either default stream: expected -1, 1 (legacy), 2 (per "
           "thread) or a cudaStream_t");
  }
  if (stream && *stream < -1) {
    refuse(BoundaryFault::kWrongValue,
           str_format("stream is {}: expected -1, 1, 2 or a cudaStream_t", *stream));
  }
  if (stream == -1) return {};
  return {device, static_cast<StreamHandle>(stream.value_or(1))};
}

void expect_no_stream(const Tensor& tensor, std::optional<std::intptr_t> stream) {
  if (!stream) return;
  refuse(BoundaryFault::kWrongValue,
         str_format("stream is {}, but {} goes out as memory of the host, which has no streams: "
                    "expected None",
                    *stream, describe(tensor)));
}

// Makes the consumer's stream wait for pending work or, inside a capture, for captured work.
void order(const PendingStreams& pending, std::optional<std::intptr_t> stream, StreamRef consumer) {
  if (!consumer || (!stream && !pending.capturing.empty())) return;
  for (const StreamRef other : pending.capturing.empty() ? pending.streams : pending.capturing)
    (void)order_import(other, consumer, SyncPolicy::kEventWait);
}

void wait_for_all(const PendingStreams& pending) {
  for (const StreamRef stream : pending.streams) {
    if (pending.capturing.empty()) stream.synchronize();
  }
}

// Makes a row-major tensor outside of every pool, so that no context can invalidate it.
Tensor own_memory(const Tensor& like, Device device) {
  const OutsideOfSteps outside;
  return empty(Shape(like.shape().dims()), like.dtype(), device);
}

Tensor copied(const Tensor& tensor, StreamRef stream) {
  Tensor copy = own_memory(tensor, tensor.device());
  if (tensor.elements() > 0) copy_elements(stream, copy, tensor);
  return copy;
}

Tensor copied_to_host(const Tensor& tensor, StreamRef stream) {
  const Tensor dense = tensor.is_contiguous() ? tensor : copied(tensor, stream);
  Tensor copy = own_memory(tensor, Device::host());
  if (tensor.elements() == 0) return copy;
  dense.copy_to_host(copy.data(), copy.bytes(), stream);
  return copy;
}

// Returns a stream of the tensor's device that waits for all pending work.
StreamRef join_streams(const Tensor& tensor, const PendingStreams& pending) {
  const auto own = std::find_if(pending.streams.begin(), pending.streams.end(),
                                [&](StreamRef one) { return one.device() == tensor.device(); });
  const StreamRef stream =
      own != pending.streams.end() ? *own : StreamRef(tensor.device(), StreamHandle::kLegacy);
  for (const StreamRef other : pending.streams)
    stream.wait_for(other);
  return stream;
}

struct Ready {
  Tensor tensor;
  bool is_copied = false;
};

Ready make_copy(const Tensor& tensor, Device device, const PendingStreams& pending,
                StreamRef consumer) {
  if (!pending.capturing.empty() || (consumer && capture_of(consumer) != 0)) {
    throw CaptureError(static_cast<int>(Code::kStreamCaptureUnsupported),
                       str_format("a copy of {} for another library cannot be made while a "
                                  "capture is open: export it before or after",
                                  describe(tensor)));
  }
  const StreamRef stream = consumer ? consumer : join_streams(tensor, pending);
  if (device != tensor.device()) return {copied_to_host(tensor, stream), true};
  Tensor copy = copied(tensor, stream);
  if (device.type == DeviceType::kHost) stream.synchronize();
  return {std::move(copy), true};
}

// Returns the tensor in the form that the consumer wants, or throws before any significant work is
// enqueued.
Ready prepare(const Tensor& tensor, const DlpackExportOptions& options) {
  (void)tensor.data();  // throws if there is none
  const Device device = options.device.value_or(tensor.device());
  const bool moves = device != tensor.device();
  if (moves && device != Device::host()) {
    refuse(BoundaryFault::kNotSupported,
           str_format("{} was asked for on {}: expected its own device, or {}", describe(tensor),
                      to_string(device), to_string(Device::host())));
  }
  if (moves && options.copy == false) {
    refuse(BoundaryFault::kWrongValue,
           str_format("{} was asked for on {} without a copy: that takes one", describe(tensor),
                      to_string(device)));
  }
  const bool is_host = device.type == DeviceType::kHost;
  if (is_host) expect_no_stream(tensor, options.stream);
  const StreamRef consumer = is_host ? StreamRef() : stream_of(device, options.stream);
  const bool is_copied = moves || options.copy == true;
  if (!is_host && !consumer && !is_copied)
    return {tensor, false};  // -1: pending work is not queried
  const PendingStreams pending = pending_streams(tensor);
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
  dlpack::TensorView& view = made->managed.tensor;
  view = view_of(tensor);
  std::copy_n(view.shape, view.ndim, made->shape.begin());
  std::copy_n(view.strides, view.ndim, made->strides.begin());
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
           str_format("{} is read-only, which DLPack before 1.0 cannot say: ask with max_version="
                      "({}, {}), or for a copy",
                      describe(tensor), dlpack::kVersion.major, dlpack::kVersion.minor));
  }
  auto made = exported<dlpack::Managed>(prepare(tensor, options).tensor);
  return UnversionedDlpackTensor(&made.release()->managed);
}

DlpackTensor to_unordered_dlpack(const Tensor& tensor) {
  DlpackExportOptions options;
  if (tensor.device().type != DeviceType::kHost) options.stream = -1;
  return to_dlpack(tensor, options);
}

dlpack::TensorView view_of(const Tensor& tensor) {
  dlpack::TensorView view = {};
  if (tensor.elements() > 0) view.data = tensor.data();
  view.device = to_dlpack_device(tensor.device());
  if (tensor.device().type == DeviceType::kHost) view.device.id = 0;  // there is one CPU
  view.ndim = tensor.rank();
  view.dtype = to_dlpack_type(tensor.dtype());
  view.shape = const_cast<std::int64_t*>(tensor.shape().dims().data());
  view.strides = const_cast<std::int64_t*>(tensor.shape().strides().data());
  return view;
}

}  // namespace cgtree
