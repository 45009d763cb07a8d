// Checks an array, orders our work with that of its producer, and makes the tensor.
#include "interop/exchange/foreign_array.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/device_api.h"
#include "interop/exchange/foreign_memory.h"
#include "interop/exchange/lent_memory.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

[[noreturn]] void refuse_dims(std::span<const std::int64_t> dims, std::string_view why) {
  throw BoundaryError(BoundaryFault::kWrongValue,
                      str_format("shape ({}): {}", joined(dims, ", "), why));
}

// Returns the product of the dims. Throws if they are not a valid shape, or if their product
// exceeds an int64.
std::int64_t checked_elements(std::span<const std::int64_t> dims) {
  if (dims.size() > static_cast<std::size_t>(Shape::kMaxRank)) {
    // The dims are not printed: if the count is wrong, they may not exist.
    throw BoundaryError(BoundaryFault::kNotSupported,
                        str_format("the shape has {} dimensions: at most {} are supported",
                                   dims.size(), static_cast<int>(Shape::kMaxRank)));
  }
  std::int64_t elements = 1;
  bool is_empty = false;
  for (const std::int64_t dim : dims) {
    if (dim < 0) refuse_dims(dims, str_format("{} is negative", dim));
    is_empty = is_empty || dim == 0;
    if (__builtin_mul_overflow(elements, std::max<std::int64_t>(dim, 1), &elements)) {
      refuse_dims(dims, "more elements than there are");
    }
  }
  return is_empty ? 0 : elements;
}

// Requires an axis with at least two indices.
std::int64_t checked_stride(std::span<const std::int64_t> strides, std::size_t axis,
                            std::int64_t unit) {
  const std::int64_t stride = strides[axis];
  if (stride < 0) {
    throw BoundaryError(BoundaryFault::kNotSupported,
                        str_format("strides ({}): {} of axis {} is negative, which is not "
                                   "supported; make a copy in the order of the axes first",
                                   joined(strides, ", "), stride, axis));
  }
  if (stride % unit != 0) {
    throw BoundaryError(BoundaryFault::kNotSupported,
                        str_format("strides ({}): {} of axis {} is no multiple of the {} bytes of "
                                   "an element, which is not supported; make a dense copy first",
                                   joined(strides, ", "), stride, axis, unit));
  }
  return stride / unit;
}

}  // namespace

Shape shape_of_layout(std::span<const std::int64_t> dims, const std::int64_t* strides,
                      StrideUnit unit, DType dtype) {
  const std::int64_t elements = checked_elements(dims);
  if (elements == 0) return Shape(dims);
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  // An axis with one index may have any stride that an int64 can hold in bytes.
  const std::int64_t most = INT64_MAX / size;
  if (strides == nullptr) {
    if (elements > most) refuse_dims(dims, "more bytes than there are");
    return Shape(dims);
  }
  const std::span<const std::int64_t> given(strides, dims.size());
  std::array<std::int64_t, Shape::kMaxRank> steps;
  __int128 extent = 1;
  std::int64_t dense = 1;
  for (std::size_t axis = dims.size(); axis-- > 0; dense *= dims[axis]) {
    steps[axis] = dims[axis] > 1
                      ? checked_stride(given, axis, unit == StrideUnit::kBytes ? size : 1)
                      : std::min(dense, most);
    extent += static_cast<__int128>(dims[axis] - 1) * steps[axis];
  }
  if (extent > most) {
    refuse_dims(dims,
                str_format("with strides ({}) more bytes than there are", joined(given, ", ")));
  }
  return Shape(dims, std::span(steps).first(dims.size()));
}

void check_alignment(std::uintptr_t address, DType dtype) {
  if ((address & (alignment_of(dtype) - 1)) == 0) return;  // alignments are powers of two
  throw BoundaryError(BoundaryFault::kNotSupported,
                      str_format("data at {:#x} is not aligned to the {} bytes of {}", address,
                                 alignment_of(dtype), name(dtype)));
}

namespace {

std::size_t extent_bytes(const ForeignArray& array) {
  return static_cast<std::size_t>(array.shape.extent()) * size_of(array.dtype);
}

void check_address(const ForeignArray& array, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(array.data);
  if (address == 0) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        str_format("data is null, but the shape is {}: give the address of the "
                                   "first element",
                                   to_string(array.shape)));
  }
  if (address + bytes < address) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        str_format("data at {:#x}, {} bytes, reaches beyond the addresses there "
                                   "are",
                                   address, bytes));
  }
  check_alignment(address, array.dtype);
}

// Returns the stream on which the tensor is used first; null for the legacy stream of its device.
// Host memory may be imported while a stream of another device is current, to copy from it.
StreamRef consumer_of(const ForeignArray& array, const ImportOptions& options) {
  const StreamRef consumer = options.consumer ? options.consumer : current_stream_or_none();
  if (!consumer || !array.device) return consumer;
  const bool fits = array.is_machine_memory ? consumer.device() == *array.device
                                            : consumer.device().type == array.device->type;
  return fits ? consumer : StreamRef();
}

// Returns the legacy stream of the memory's device, which is the consumer's device unless any
// device is accepted.
StreamRef legacy_stream_of(const ForeignArray& array, StreamRef consumer, bool on_any_device) {
  const Device said = array.device ? *array.device : consumer ? consumer.device() : Device::best();
  const bool is_wanted = !on_any_device && (array.device || consumer);
  if (is_wanted && consumer && consumer.device() != said) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        str_format("data is on {}, but is to be used on a stream of {}",
                                   to_string(said), to_string(consumer.device())));
  }
  DeviceAPI& api = device_api(said);
  const bool is_known = array.data == nullptr || array.is_machine_memory;
  return {api, is_known ? said : locate(api, said, array.data, is_wanted), StreamHandle::kLegacy};
}

}  // namespace

Tensor import_array(ForeignArray&& array, const ImportOptions& options) {
  const std::size_t bytes = extent_bytes(array);
  if (bytes == 0) {
    array.data = nullptr;
  } else {
    check_address(array, bytes);
  }
  const StreamRef consumer = consumer_of(array, options);
  const StreamRef legacy = legacy_stream_of(array, consumer, options.on_any_device);
  const Device device = legacy.device();
  const SyncPolicy sync = options.sync.value_or(SyncPolicy::kEventWait);
  StreamRef producer;
  if (bytes > 0 && sync != SyncPolicy::kIgnore) {
    producer = array.stream ? StreamRef(legacy.api(), device, *array.stream) : options.producer;
  }
  const StreamRef order = order_import(producer, consumer ? consumer : legacy, sync);
  if (current_allocator() != nullptr && bytes > 0) {
    const auto address = reinterpret_cast<std::uintptr_t>(array.data);
    if (StorageRef lent = find_lent(device, address, bytes)) {
      const std::size_t offset = address - lent->address();
      return Tensor(std::move(lent), offset, std::move(array.shape), array.dtype);
    }
  }
  array.device = device;
  return wrap_array(std::move(array), producer, order);
}

Tensor wrap_array(ForeignArray&& array, StreamRef producer, StreamRef order) {
  StorageRef storage = import_memory({*array.device, array.data, extent_bytes(array),
                                      std::move(array.owner), producer, array.is_read_only},
                                     order);
  return Tensor(std::move(storage), 0, std::move(array.shape), array.dtype);
}

ForeignArray array_of(const Tensor& tensor) {
  return {.device = tensor.device(),
          .data = tensor.data(),
          .shape = tensor.shape(),
          .dtype = tensor.dtype(),
          .is_read_only = is_read_only(tensor)};
}

PendingStreams pending_streams(const Tensor& tensor, std::span<const StreamRef> given) {
  PendingStreams pending;
  const auto add = [&](StreamRef stream) {
    std::vector<StreamRef>& streams = pending.streams;
    if (!stream || std::find(streams.begin(), streams.end(), stream) != streams.end()) return;
    streams.push_back(stream);
    if (capture_of(stream) != 0) pending.capturing.push_back(stream);
  };
  add(tensor.storage()->stream());
  for (const StreamRef stream : given)
    add(stream);
  const StreamRef current = current_stream_or_none();
  if (current && current.device() == tensor.device()) add(current);
  return pending;
}

void expect_same_device(const Tensor& tensor, StreamRef stream) {
  if (stream && stream.device() == tensor.device()) return;
  throw InvalidArgument(str_format(
      "{} cannot be exported with {}", describe(tensor),
      stream ? "a stream of " + to_string(stream.device()) : std::string("a stream that is null")));
}

Tensor on_stream(const Tensor& tensor, std::shared_ptr<const Stream> stream) {
  ForeignArray array = array_of(tensor);
  if (stream == nullptr) throw InvalidArgument("on_stream() was given no stream");
  if (tensor.storage()->may_be_invalidated()) {
    throw InvalidArgument(
        str_format("{} belongs to a context, which may invalidate its memory: copy it first",
                   describe(tensor)));
  }
  const StreamRef order = stream->ref();
  expect_same_device(tensor, order);
  const StreamRef before = tensor.storage()->stream();
  if (before) order.wait_for(before);
  // The stream is destroyed last: the synchronization at the release needs it.
  array.owner =
      std::make_shared<std::pair<std::shared_ptr<const Stream>, Tensor>>(std::move(stream), tensor);
  return wrap_array(std::move(array), before, order);
}

}  // namespace cgtree
