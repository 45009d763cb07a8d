// Checks foreign memory, and synchronizes with its library when a tensor ends.
#include "interop/exchange/foreign_memory.h"
#include "base/condition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/log_event.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream_identity.h"
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

// ImportList: the imports that are ordered with a stream of another library, so that they learn
// when a stream ends. It belongs to the process.
class ImportList {
 public:
  static ImportList& get() {
    static auto* const made = new ImportList;  // outlives every static that uses it
    return *made;
  }

  void add(ImportedStorage& import) noexcept {
    const std::lock_guard lock(mutex_);
    import.next_ = first_;
    if (first_ != nullptr) first_->previous_ = &import;
    first_ = &import;
  }
  // While an import is released, the streams that it names are used, so they must not end.
  void begin_release(ImportedStorage& import) noexcept {
    const std::lock_guard lock(mutex_);
    import.is_released_ = true;
  }
  void remove(ImportedStorage& import) noexcept {
    const std::lock_guard lock(mutex_);
    removed_.notify_all();
    if (import.next_ != nullptr) import.next_->previous_ = import.previous_;
    (import.previous_ != nullptr ? import.previous_->next_ : first_) = import.next_;
  }

 private:
  // Has one event for all imports that the stream uses. It is recorded and waited for without the
  // lock.
  void retire(StreamRef stream, StreamIdentity identity) noexcept {
    if (identity == StreamIdentity::kNone) return;
    std::unique_lock lock(mutex_);
    if (!any_of([&](ImportedStorage& import) { return import.is_ordered_with(identity); })) return;
    lock.unlock();
    const std::shared_ptr<Event> last = record(stream);
    lock.lock();
    removed_.wait(lock, [&] {
      return !any_of([&](ImportedStorage& import) {
        return import.is_released_ && import.is_ordered_with(identity);
      });
    });
    bool must_wait = false;
    for (ImportedStorage* import = first_; import != nullptr; import = import->next_)
      must_wait = import->leave(identity, last) || must_wait;
    lock.unlock();
    if (must_wait) wait_for(*last);
  }
  template <typename Predicate>
  bool any_of(Predicate predicate) noexcept {
    for (ImportedStorage* import = first_; import != nullptr; import = import->next_) {
      if (predicate(*import)) return true;
    }
    return false;
  }
  static std::shared_ptr<Event> record(StreamRef stream) noexcept {
    auto last = std::make_shared<Event>();
    try {
      const RelaxedCapture relaxed(stream.api().graphs());
      if (!may_be_capturing(stream)) last->record(stream);
    } catch (const std::exception& error) {
      log_failure(error);
    }
    return last;
  }
  static void wait_for(const Event& last) noexcept {
    try {
      last.synchronize();
    } catch (const std::exception& error) {
      log_failure(error);
    }
  }
  static void log_failure(const std::exception& error) noexcept {
    log_event(LogLevel::kError, "synchronization_lost error=\"{}\"", error.what());
  }

  Mutex<LockRank::kImports> mutex_;  // guards the list
  Condition removed_;
  ImportedStorage* first_ = nullptr;
  const StreamWatch watch_{
      [this](StreamRef stream, StreamIdentity identity) { retire(stream, identity); }};
};

StorageRef ImportedStorage::make(ImportedMemory&& memory, StreamRef consumer) {
  return StorageRef((new ImportedStorage(std::move(memory), consumer))->storage_);
}

ImportedStorage::ImportedStorage(ImportedMemory&& memory, StreamRef consumer)
    : memory_(std::move(memory)),
      producer_(recent_identity_of(memory_.producer)),
      thread_(std::this_thread::get_id()),
      storage_(*this, memory_.device, consumer, memory_.data, memory_.bytes) {
  if (memory_.producer && consumer) add_user(consumer);
  if (memory_.producer || memory_.is_read_only) storage_.lend();
  if (memory_.producer) ImportList::get().add(*this);
}

void ImportedStorage::used(Storage&, StreamRef stream) {
  if (memory_.producer) add_user(stream);
}

// The per-thread default stream cannot be named by the thread that releases the memory, so its
// event is recorded now, before the lock is taken.
void ImportedStorage::add_user(StreamRef stream) {
  const StreamIdentity identity = recent_identity_of(stream);
  if (identity == producer_) return;
  std::shared_ptr<Event> last;
  if (stream.is_per_thread()) {
    last = std::make_shared<Event>();
    last->record(stream);
  }
  std::vector<User> done;  // their events end without the lock
  const std::lock_guard lock(mutex_);
  auto known = std::find_if(users_.begin(), users_.end(),
                            [&](const User& user) { return user.identity == identity; });
  if (known == users_.end()) {
    done = take_done_users();
    known = users_.insert(users_.end(), {stream, identity, nullptr});
  }
  if (last != nullptr) known->last.swap(last);
}

// Memory that lives long may have been used on many streams that have ended since. As many are
// looked at for each that is added as ContextStream does. Requires: the mutex is held.
std::vector<ImportedStorage::User> ImportedStorage::take_done_users() {
  std::vector<User> done;
  const RelaxedCapture relaxed(memory_.producer.api().graphs());
  for (int looks = 0; looks < 2 && !users_.empty(); ++looks) {
    next_look_ %= users_.size();
    User& user = users_[next_look_];
    if (user.last == nullptr || !user.last->is_reached()) {
      ++next_look_;
      continue;
    }
    done.push_back(std::move(user));
    user = std::move(users_.back());
    users_.pop_back();
  }
  return done;
}

bool ImportedStorage::is_read_only(const Storage&) const noexcept {
  return memory_.is_read_only;
}

StreamRef ImportedStorage::producer(const Storage&) const noexcept {
  return has_producer_ended_.load(std::memory_order_acquire) ? StreamRef() : memory_.producer;
}

void ImportedStorage::throw_stale(const Storage&) const {
  throw StaleTensor("memory of another library is never invalidated by this one");
}

bool ImportedStorage::is_ordered_with(StreamIdentity stream) noexcept {
  if (stream == producer_) return true;
  const std::lock_guard lock(mutex_);
  return std::any_of(users_.begin(), users_.end(),
                     [&](const User& user) { return user.identity == stream; });
}

// The stream is retired: `last` is behind all its work. Returns true if it is the producer's.
bool ImportedStorage::leave(StreamIdentity stream, const std::shared_ptr<Event>& last) noexcept {
  if (stream == producer_) {
    has_producer_ended_.store(true, std::memory_order_release);
    Storage::note_change();
    return true;
  }
  const std::lock_guard lock(mutex_);
  for (User& user : users_) {
    if (user.identity != stream) continue;
    user.stream = StreamRef();
    user.last = last;
  }
  return false;
}

void ImportedStorage::release(Storage&, bool) noexcept {
  if (memory_.producer) {
    ImportList::get().begin_release(*this);
    for (const User& user : users_)
      synchronize_with(user);
    ImportList::get().remove(*this);
  }
  delete this;
}

void ImportedStorage::synchronize_with(const User& user) noexcept {
  const StreamRef producer = ImportedStorage::producer(storage_);
  const bool is_capturing = (user.last == nullptr && may_be_capturing(user.stream)) ||
                            (producer && may_be_capturing(producer));
  if (is_capturing) {
    log_event(LogLevel::kWarn,
              "synchronization_lost device={} producer={:#x} consumer={:#x} reason=capturing",
              to_string(memory_.device), static_cast<std::uintptr_t>(memory_.producer.handle()),
              static_cast<std::uintptr_t>(user.stream.handle()));
    return;
  }
  const RelaxedCapture relaxed(memory_.producer.api().graphs());
  try {
    const bool is_elsewhere = producer.is_per_thread() && thread_ != std::this_thread::get_id();
    if (!producer || is_elsewhere || producer.api().graphs() == nullptr) {
      user.last != nullptr ? user.last->synchronize() : user.stream.synchronize();
    } else if (user.last != nullptr) {
      user.last->make_wait(producer);
    } else {
      const DeviceScope current(producer.api(), memory_.device.id);
      producer.wait_for(user.stream);
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
