// The end of an import: the return edges, then the owner.
#include "interop/exchange/imported_storage.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "interop/device/device_scope.h"
#include "interop/device/relaxed_capture.h"

namespace cgtree {
namespace {

// Also where that cannot be told: legacy streams refuse the question while others capture.
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
  throw StaleTensor("memory of another library is never given up by this one");
}

void ImportedStorage::release(Storage&, bool) noexcept {
  for (const StreamRef user : users_)
    return_from(user);
  delete this;
}

void ImportedStorage::return_from(StreamRef user) noexcept {
  const StreamRef producer = memory_.producer;
  if (may_be_capturing(user) || may_be_capturing(producer)) {
    log_event(LogLevel::kWarn,
              "return_edge_lost device={} producer={:#x} consumer={:#x} reason=capturing",
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
    log_event(LogLevel::kError, "return_edge_lost device={} error=\"{}\"",
              to_string(memory_.device), error.what());
  }
}

}  // namespace cgtree
