// Orders, copies if need be, and describes.
#include "interop/exchange/dlpack_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "interop/exchange/boundary_error.h"
#include "interop/tensor/copy_row.h"
#include "interop/device/current_stream.h"
#include "interop/device/device_memory.h"
#include "interop/exchange/dlpack_type.h"
#include "interop/exchange/stream_synchronization.h"
#include "interop/exchange/import_order.h"
#include "interop/exchange/imported_storage.h"
#include "interop/device/registry.h"

namespace cgtree {
namespace {

[[noreturn]] void refuse(BoundaryFault fault, std::string_view what) {
  throw BoundaryError(fault, what);
}

// Where work on the tensor may be pending.
struct Pending {
  std::vector<StreamRef> streams;
  std::vector<StreamRef> capturing;  // those of them that are
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

// Names none for -1. Requires a device that has streams.
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

// Makes the consumer's stream wait for what is pending; inside a capture, for what is captured.
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

// Row-major, of no pool: it stays whatever a context does.
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

// The tensor as the consumer wants it, or throws with nothing enqueued that would be in the way.
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
    return {tensor, false};  // -1: what is pending is not asked
  const Pending pending = pending_on(tensor);
  if (!moves && !is_host) order(pending, options.stream, consumer);
  if (is_host && !moves) wait_for_all(pending);
  if (is_copied) return make_copy(tensor, device, pending, consumer);
  return {tensor, false};
}

template <typename Managed>
struct Exported {
  Managed managed = {};
  Tensor tensor;
  std::array<std::int64_t, Shape::kMaxRank> shape;  // as many are set as there are dimensions
  std::array<std::int64_t, Shape::kMaxRank> strides;
};

template <typename Managed>
void drop(Managed* managed) {
  delete static_cast<Exported<Managed>*>(managed->context);
}

template <typename Managed>
std::unique_ptr<Exported<Managed>> exported(Tensor tensor) {
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
  made->tensor = std::move(tensor);
  return made;
}

}  // namespace

DlpackTensor to_dlpack(const Tensor& tensor, const DlpackExportOptions& options) {
  const bool is_read_only = cgtree::is_read_only(tensor);
  Ready ready = prepare(tensor, options);
  auto made = exported<dlpack::ManagedVersioned>(std::move(ready.tensor));
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
