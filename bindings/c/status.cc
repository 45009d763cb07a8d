// Maps exceptions to statuses and back, and keeps the last error of each thread.
#include "bindings/c/status.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/error.h"
#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "extensions/watch/spelling.h"
#include "interop/device/code.h"
#include "interop/device/stream.h"

namespace cgtree::capi {
namespace {

cgt_status status_of(const BoundaryError& error) noexcept {
  switch (error.fault()) {
    case BoundaryFault::kMissing:
      return CGT_MISSING_FIELD;
    case BoundaryFault::kWrongType:
      return CGT_WRONG_TYPE;
    case BoundaryFault::kWrongValue:
      return CGT_WRONG_VALUE;
    case BoundaryFault::kNotSupported:
      return CGT_NOT_SUPPORTED;
  }
  return CGT_INVALID_ARGUMENT;
}

cgt_status status_of(const Error& error) noexcept {
  if (const auto* own = dynamic_cast<const StatusError*>(&error)) return own->status();
  if (dynamic_cast<const HandleError*>(&error) != nullptr) return CGT_INVALID_HANDLE;
  if (const auto* fault = dynamic_cast<const BoundaryError*>(&error)) return status_of(*fault);
  if (dynamic_cast<const InvalidArgument*>(&error) != nullptr) return CGT_INVALID_ARGUMENT;
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr) return CGT_OUT_OF_MEMORY;
  if (dynamic_cast<const StaleTensor*>(&error) != nullptr) return CGT_STALE_TENSOR;
  if (dynamic_cast<const ConcurrentUse*>(&error) != nullptr) return CGT_CONCURRENT_USE;
  if (dynamic_cast<const CaptureError*>(&error) != nullptr) return CGT_CAPTURE_FAILED;
  if (dynamic_cast<const DeviceError*>(&error) != nullptr) return CGT_DEVICE_FAILED;
  if (dynamic_cast<const GroupError*>(&error) != nullptr) return CGT_GROUP_FAILED;
  if (dynamic_cast<const VerifyError*>(&error) != nullptr) return CGT_VERIFY_FAILED;
  return CGT_INTERNAL;
}

void fill(ErrorRecord& record, const Error& error) {
  record.status = status_of(error);
  const auto* const device = dynamic_cast<const DeviceError*>(&error);
  record.cuda_code = device != nullptr ? device->code() : 0;
  if (record.status == CGT_OUT_OF_MEMORY) {
    record.cuda_code = static_cast<std::int32_t>(Code::kMemoryAllocation);
  }
  // A step's own text stays.
  const bool is_ours = dynamic_cast<const StatusError*>(&error) == nullptr;
  record.message = is_ours ? spelled(error.message(), Spelling::kC) : std::string(error.message());
  const std::string_view what = error.what();
  const std::size_t prefix = what.size() - error.message().size();
  record.where = what.substr(0, prefix < 2 ? 0 : prefix - 2);  // without ": "
}

// Describes the exception that is being handled.
void fill(ErrorRecord& record) {
  record.cuda_code = 0;
  record.where.clear();
  try {
    throw;
  } catch (const Error& error) {
    fill(record, error);
  } catch (const std::bad_alloc&) {
    record.status = CGT_OUT_OF_MEMORY;
    record.message = "the host has no memory left";
  } catch (const std::exception& error) {
    record.status = CGT_INTERNAL;
    record.message = error.what();
  } catch (...) {
    record.status = CGT_INTERNAL;
    record.message = "an exception of unknown type";
  }
}

constexpr const char* kNames[] = {"CGT_OK",
                                  "CGT_INVALID_ARGUMENT",
                                  "CGT_INVALID_HANDLE",
                                  "CGT_STALE_TENSOR",
                                  "CGT_CONCURRENT_USE",
                                  "CGT_OUT_OF_MEMORY",
                                  "CGT_CAPTURE_FAILED",
                                  "CGT_DEVICE_FAILED",
                                  "CGT_MISSING_FIELD",
                                  "CGT_WRONG_TYPE",
                                  "CGT_WRONG_VALUE",
                                  "CGT_NOT_SUPPORTED",
                                  "CGT_BUFFER_TOO_SMALL",
                                  "CGT_STEP_FAILED",
                                  "CGT_STEP_THREW",
                                  "CGT_GROUP_FAILED",
                                  "CGT_INTERNAL",
                                  "CGT_VERIFY_FAILED"};
static_assert(std::size(kNames) == CGT_VERIFY_FAILED + 1);

}  // namespace

bool is_failure(cgt_status status) noexcept {
  const bool is_named = status > CGT_OK && status < static_cast<cgt_status>(std::size(kNames));
  return is_named || status >= CGT_USER_STATUS;
}

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

cgt_capture_state capture_state_now() noexcept {
  const StreamRef stream = current_stream_or_none();
  GraphAPI* const graphs = stream ? stream.api().graphs() : nullptr;
  CaptureInfo info;
  if (graphs == nullptr || !ok(graphs->capture_info(stream.handle(), &info))) {
    return CGT_CAPTURE_NONE;
  }
  return static_cast<cgt_capture_state>(info.status);
}

void throw_missing(std::string_view what) {
  throw InvalidArgument(fmt::format("{} is NULL", what));
}

cgt_status note_failure() noexcept {
  try {
    ThreadState& thread = thread_state();
    ErrorRecord record;
    fill(record);
    record.number = thread.error.number + 1;
    record.capture = std::exchange(thread.step_capture, CGT_CAPTURE_NONE);
    if (marks.frame != nullptr) record.capture = capture_state_now();
    thread.error = std::move(record);
    return thread.error.status;
  } catch (...) {  // there is no memory for the text
    return CGT_OUT_OF_MEMORY;
  }
}

void rethrow(const ErrorRecord& error, std::string_view before) {
  const std::string message = fmt::format("{}: {}", before, error.message);
  switch (error.status) {
    case CGT_INVALID_ARGUMENT:
      throw InvalidArgument(message);
    case CGT_INVALID_HANDLE:
      throw HandleError(message);
    case CGT_STALE_TENSOR:
      throw StaleTensor(message);
    case CGT_CONCURRENT_USE:
      throw ConcurrentUse(message);
    case CGT_OUT_OF_MEMORY:
      throw OutOfMemory(message);
    case CGT_CAPTURE_FAILED:
      throw CaptureError(error.cuda_code, message);
    case CGT_DEVICE_FAILED:
      throw DeviceError(error.cuda_code, message);
    case CGT_GROUP_FAILED:
      throw GroupError(message);
    case CGT_MISSING_FIELD:
      throw BoundaryError(BoundaryFault::kMissing, message);
    case CGT_WRONG_TYPE:
      throw BoundaryError(BoundaryFault::kWrongType, message);
    case CGT_WRONG_VALUE:
      throw BoundaryError(BoundaryFault::kWrongValue, message);
    case CGT_NOT_SUPPORTED:
      throw BoundaryError(BoundaryFault::kNotSupported, message);
    default:
      throw StatusError(error.status, message);
  }
}

void write_text(std::string_view text, char* buffer, std::size_t capacity, std::size_t* length) {
  if (length != nullptr) *length = text.size();
  if (capacity == 0 && buffer == nullptr && length != nullptr) return;
  if (text.size() >= capacity) {
    throw StatusError(
        CGT_BUFFER_TOO_SMALL,
        fmt::format("the text has {} bytes and a final 0, the buffer {}", text.size(), capacity));
  }
  required(buffer, "the buffer");
  std::memcpy(buffer, text.data(), text.size());
  buffer[text.size()] = '\0';
}

}  // namespace cgtree::capi

using namespace cgtree::capi;

extern "C" {

uint32_t cgt_abi_version(void) {
  return CGT_ABI_VERSION;
}

const char* cgt_status_name(cgt_status status) {
  if (status >= 0 && status < static_cast<cgt_status>(std::size(kNames))) return kNames[status];
  return status >= CGT_USER_STATUS ? "a step function's own status" : "unknown status";
}

cgt_status cgt_last_error(cgt_error* error) {
  // Does not use guarded(), which would replace the error that is asked for.
  try {
    const ErrorRecord& record = thread_state().error;
    write_struct(cgt_error{0, record.status, record.cuda_code, record.capture,
                           record.message.c_str(), record.where.c_str()},
                 error, "cgt_error");
    return CGT_OK;
  } catch (...) {
    return CGT_INVALID_ARGUMENT;
  }
}

void cgt_set_error(const char* message) {
  if (marks.frame == nullptr || message == nullptr) return;
  try {
    marks.frame->said = message;
  } catch (...) {  // without memory for the text, the status alone is told
  }
}

size_t cgt_live_handles(void) {
  return ContextTable::live() + FunctionTable::live() + TensorTable::live() +
         GeneratorTable::live() + WatchTable::live() + LoopStreamTable::live();
}

}  // extern "C"
