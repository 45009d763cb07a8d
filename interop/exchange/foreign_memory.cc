// Checks foreign memory, and synchronizes with its library when a tensor ends.
#include "interop/exchange/foreign_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream.h"
#include "interop/exchange/lent_memory.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

[[noreturn]] void refuse_dims(BoundaryFault fault, std::span<const std::int64_t> dims,
                              std::string_view why) {
  throw BoundaryError(fault, fmt::format("shape ({}) has {}", fmt::join(dims, ", "), why));
}

// Returns the product of the dims. Throws if they are no shape, or an int64 cannot count the
// elements.
std::int64_t checked_elements(std::span<const std::int64_t> dims) {
  if (dims.size() > static_cast<std::size_t>(Shape::kMaxRank)) {
    // The dims are not printed: if the count is wrong, they may not exist.
    throw BoundaryError(BoundaryFault::kNotSupported,
                        fmt::format("the shape has {} dimensions: at most {} are supported",
                                    dims.size(), static_cast<int>(Shape::kMaxRank)));
  }
  std::int64_t least = 1;
  for (const std::int64_t dim : dims)
    least = std::min(least, dim);
  if (least < 0) refuse_dims(BoundaryFault::kWrongValue, dims, "a negative dimension");
  std::int64_t elements = 1;
  for (const std::int64_t dim : dims) {
    if (__builtin_mul_overflow(elements, std::max<std::int64_t>(dim, 1), &elements)) {
      refuse_dims(BoundaryFault::kWrongValue, dims, "more elements than there are");
    }
  }
  return least == 0 ? 0 : elements;
}

// Requires dims without a 0, and strides in elements that are not negative.
void check_bytes(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides,
                 DType dtype) {
  __int128 elements = 1;
  for (std::size_t axis = 0; axis < dims.size(); ++axis)
    elements += static_cast<__int128>(dims[axis] - 1) * strides[axis];
  if (elements <= INT64_MAX / static_cast<std::int64_t>(size_of(dtype))) return;
  refuse_dims(BoundaryFault::kWrongValue, dims,
              fmt::format("with strides ({}) more bytes than there are", fmt::join(strides, ", ")));
}

// Requires an axis with at least two indices.
std::int64_t checked_stride(std::span<const std::int64_t> strides, std::size_t axis,
                            std::int64_t unit) {
  const std::int64_t stride = strides[axis];
  if (stride < 0) {
    throw BoundaryError(BoundaryFault::kNotSupported,
                        fmt::format("strides ({}): {} of axis {} is negative, which is not "
                                    "supported; make a copy in the order of the axes first",
                                    fmt::join(strides, ", "), stride, axis));
  }
  if (stride % unit != 0) {
    throw BoundaryError(BoundaryFault::kNotSupported,
                        fmt::format("strides ({}): {} of axis {} is no multiple of the {} bytes of "
                                    "an element, which is not supported; make a dense copy first",
                                    fmt::join(strides, ", "), stride, axis, unit));
  }
  return stride / unit;
}

}  // namespace

StreamRef consumer_or_current(StreamRef given) {
  return given ? given : current_stream_or_none();
}

Device locate(DeviceAPI& api, Device first, const void* data, bool is_wanted) {
  PointerAttributes found;
  const Code code = api.pointer_attributes(data, &found);
  if (code == Code::kNotSupported) return first;
  if (!ok(code)) throw_code(code, fmt::format("query whose memory {} is", data));
  if (found.kind == PointerKind::kUnknown) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        fmt::format("data at {} is not memory of {}: it is ordinary memory of the "
                                    "host, or was freed; allocate it there, with "
                                    "allocate_device_memory() or with empty()",
                                    data, to_string(first)));
  }
  if (found.kind != PointerKind::kDevice) return first;
  const Device device{first.type, found.device};
  if (is_wanted && device != first) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        fmt::format("data at {} lies on {}, but is to be used on a stream of {}",
                                    data, to_string(device), to_string(first)));
  }
  return device;
}

void check_alignment(std::uintptr_t address, DType dtype) {
  if ((address & (alignment_of(dtype) - 1)) == 0) return;  // alignments are powers of two
  throw BoundaryError(BoundaryFault::kNotSupported,
                      fmt::format("data at {:#x} is not aligned to the {} bytes of {}", address,
                                  alignment_of(dtype), name(dtype)));
}

Shape shape_of_layout(std::span<const std::int64_t> dims,
                      std::optional<std::span<const std::int64_t>> strides, StrideUnit unit,
                      DType dtype) {
  const std::int64_t elements = checked_elements(dims);
  if (elements == 0) return Shape(dims);
  if (!strides) {
    if (elements > INT64_MAX / static_cast<std::int64_t>(size_of(dtype))) {
      refuse_dims(BoundaryFault::kWrongValue, dims, "more bytes than there are");
    }
    return Shape(dims);
  }
  std::array<std::int64_t, Shape::kMaxRank> of_axes;
  const std::span<std::int64_t> steps = std::span(of_axes).first(dims.size());
  const auto element =
      unit == StrideUnit::kBytes ? static_cast<std::int64_t>(size_of(dtype)) : std::int64_t{1};
  // An axis with one index may have any stride that an int64 can hold in bytes.
  const std::int64_t most = INT64_MAX / static_cast<std::int64_t>(size_of(dtype));
  std::int64_t dense = 1;
  for (std::size_t axis = dims.size(); axis-- > 0; dense *= dims[axis])
    steps[axis] = dims[axis] > 1 ? checked_stride(*strides, axis, element) : std::min(dense, most);
  check_bytes(dims, steps, dtype);
  return Shape(dims, steps);
}

namespace {

// Returns true also if that is unknown: legacy streams refuse the query while others capture.
bool may_be_capturing(StreamRef stream) noexcept {
  GraphAPI* const graphs = stream.api().graphs();
  if (graphs == nullptr) return false;
  CaptureInfo info;
  return !ok(graphs->capture_info(stream.handle(), &info)) || info.status != CaptureStatus::kNone;
}

}  // namespace

StorageRef ImportedStorage::make(ImportedMemory&& memory, StreamRef consumer) {
  return StorageRef((new ImportedStorage(std::move(memory), consumer))->storage_);
}

ImportedStorage::ImportedStorage(ImportedMemory&& memory, StreamRef consumer)
    : memory_(std::move(memory)),
      thread_(std::this_thread::get_id()),
      storage_(*this, memory_.device, consumer, memory_.data, memory_.bytes) {
  if (memory_.producer && consumer != memory_.producer) users_.push_back(consumer);
  if (memory_.producer || memory_.is_read_only) storage_.lend();
}

void ImportedStorage::used(Storage&, StreamRef stream) {
  if (!memory_.producer || stream == memory_.producer) return;
  const std::lock_guard lock(mutex_);
  if (std::find(users_.begin(), users_.end(), stream) == users_.end()) users_.push_back(stream);
}

bool ImportedStorage::is_read_only(const Storage&) const noexcept {
  return memory_.is_read_only;
}

StreamRef ImportedStorage::producer(const Storage&) const noexcept {
  return memory_.producer;
}

void ImportedStorage::throw_stale(const Storage&) const {
  throw StaleTensor("memory of another library is never invalidated by this one");
}

void ImportedStorage::release(Storage&, bool) noexcept {
  for (const StreamRef user : users_)
    synchronize_with(user);
  delete this;
}

void ImportedStorage::synchronize_with(StreamRef user) noexcept {
  const StreamRef producer = memory_.producer;
  if (may_be_capturing(user) || may_be_capturing(producer)) {
    log_event(LogLevel::kWarn,
              "synchronization_lost device={} producer={:#x} consumer={:#x} reason=capturing",
              to_string(memory_.device), static_cast<std::uintptr_t>(producer.handle()),
              static_cast<std::uintptr_t>(user.handle()));
    return;
  }
  const RelaxedCapture relaxed(producer.api().graphs());
  try {
    const bool is_elsewhere =
        producer.handle() == StreamHandle::kPerThread && thread_ != std::this_thread::get_id();
    if (is_elsewhere || producer.api().graphs() == nullptr) {
      user.synchronize();
    } else {
      const DeviceScope current(producer.api(), memory_.device.id);
      producer.wait_for(user);
    }
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "synchronization_lost device={} error=\"{}\"",
              to_string(memory_.device), error.what());
  }
}

Tensor imported(ImportedMemory&& memory, StreamRef consumer, std::size_t offset, Shape shape,
                DType dtype) {
  const bool has_elements = shape.elements() > 0;
  if (current_allocator() != nullptr && has_elements) {
    const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(memory.data) + offset;
    const std::size_t bytes = static_cast<std::size_t>(shape.extent()) * size_of(dtype);
    if (StorageRef lent = find_lent(memory.device, first, bytes)) {
      const std::size_t begin = first - lent->address();
      return Tensor(std::move(lent), begin, std::move(shape), dtype);
    }
  }
  return Tensor(ImportedStorage::make(std::move(memory), consumer), offset, std::move(shape),
                dtype);
}

}  // namespace cgtree
