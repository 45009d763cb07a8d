// Synchronizes with the other library when its memory is released, or a stream ends.
#include "interop/exchange/foreign_memory.h"
#include "base/condition.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log_event.h"
#include "base/mutex.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream_identity.h"

namespace cgtree {
namespace {

// Also returns true if this is unknown: legacy streams refuse the query while others capture.
bool may_be_capturing(StreamRef stream) noexcept {
  GraphAPI* const graphs = stream.api().graphs();
  if (graphs == nullptr) return false;
  CaptureInfo info;
  return !ok(graphs->capture_info(stream.handle(), &info)) || info.status != CaptureStatus::kNone;
}

// An ImportedStorage is imported memory with the streams that use it.
class ImportedStorage final : private StorageOwner {
 public:
  ImportedStorage(ImportedMemory&& memory, StreamRef consumer);

  Storage& storage() noexcept { return storage_; }

  // The next two are called with the lock of the list.

  bool is_ordered_with(StreamIdentity stream) noexcept {
    if (stream == producer_) return true;
    const std::lock_guard lock(mutex_);
    return std::any_of(users_.begin(), users_.end(),
                       [&](const User& user) { return user.identity == stream; });
  }
  // Handles the retirement of a stream: `last` is after all its work. Returns true if it is the
  // producer's stream.
  bool leave(StreamIdentity stream, const std::shared_ptr<Event>& last) noexcept {
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

 private:
  friend class ImportList;
  struct User {
    StreamRef stream;  // null once it was retired
    StreamIdentity identity;
    std::shared_ptr<Event> last;  // for a retired stream, or one that only its thread can name
  };

  void release(Storage& storage) noexcept override;
  void used(Storage&, StreamRef stream) override {
    if (memory_.producer) add_user(stream);
  }
  StreamRef producer(const Storage&) const noexcept override {
    return has_producer_ended_.load(std::memory_order_acquire) ? StreamRef() : memory_.producer;
  }

  void add_user(StreamRef stream);
  std::vector<User> take_done_users();
  void synchronize_with(const User& user) noexcept;

  const ImportedMemory memory_;
  const StreamIdentity producer_;
  const std::thread::id thread_;
  std::atomic<bool> has_producer_ended_{false};
  Storage storage_;
  Mutex<LockRank::kForeignMemory> mutex_;
  std::vector<User> users_;  // each once, without the producer
  std::size_t next_look_ = 0;
  // In the list of imports that have a producer's stream; all guarded by the list's mutex.
  bool is_released_ = false;
  ImportedStorage* next_ = nullptr;
  ImportedStorage* previous_ = nullptr;
};

// ImportList: the imports that are ordered with a stream of another library. It tells them when a
// stream ends. It belongs to the process.
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
  // The streams of an import are used while it is released, so they must not end meanwhile.
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
  // Makes one event for all imports that the stream uses. It is recorded and waited for without the
  // lock.
  void retire(StreamRef stream, StreamIdentity identity) noexcept {
    if (identity == StreamIdentity::kNone) return;
    std::unique_lock lock(mutex_);
    if (!any_of([&](ImportedStorage& import) { return import.is_ordered_with(identity); })) return;
    lock.unlock();
    const auto last = std::make_shared<Event>();
    log_failures([&] {
      const RelaxedCapture relaxed(stream.api().graphs());
      if (!may_be_capturing(stream)) last->record(stream);
    });
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
    if (must_wait) log_failures([&] { last->synchronize(); });
  }
  template <typename Predicate>
  bool any_of(Predicate predicate) noexcept {
    for (ImportedStorage* import = first_; import != nullptr; import = import->next_) {
      if (predicate(*import)) return true;
    }
    return false;
  }
  template <typename Run>
  static void log_failures(const Run& run) noexcept {
    try {
      run();
    } catch (const std::exception& error) {
      log_event(LogLevel::kError, "synchronization_lost error=\"{}\"", error.what());
    }
  }

  Mutex<LockRank::kImports> mutex_;  // guards the list
  Condition removed_;
  ImportedStorage* first_ = nullptr;
  const StreamWatch watch_{
      [this](StreamRef stream, StreamIdentity identity) { retire(stream, identity); }};
};

ImportedStorage::ImportedStorage(ImportedMemory&& memory, StreamRef consumer)
    : memory_(std::move(memory)),
      producer_(recent_identity_of(memory_.producer)),
      thread_(std::this_thread::get_id()),
      storage_(*this, memory_.device, consumer, memory_.data, memory_.bytes) {
  storage_.keep_valid();
  if (memory_.producer && consumer) add_user(consumer);
  if (memory_.producer || memory_.is_read_only) storage_.lend(memory_.is_read_only);
  if (memory_.producer) ImportList::get().add(*this);
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

// Long-lived memory may have been used on many streams that have ended since. For each added
// stream, as many are examined as in ContextStream. Requires: the mutex is held.
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

void ImportedStorage::release(Storage&) noexcept {
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

}  // namespace

StorageRef import_memory(ImportedMemory&& memory, StreamRef consumer) {
  return StorageRef((new ImportedStorage(std::move(memory), consumer))->storage());
}

}  // namespace cgtree
