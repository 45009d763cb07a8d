// Maps exceptions to statuses and back, and keeps the last error of each thread.
#include "bindings/c/status.h"

#include <exception>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "extensions/watch/spelling.h"
#include "interop/device/code.h"
#include "interop/device/device_api.h"
#include "interop/device/stream.h"

namespace cgtree::capi {
namespace {

// A row X(status, exception, arguments) for each status of exactly one exception, which is thrown
// with these arguments. A derived class stands before its base.
#define CGTREE_ERRORS(X)                                        \
  X(CGT_INVALID_HANDLE, HandleError, message)                   \
  X(CGT_INVALID_ARGUMENT, InvalidArgument, message)             \
  X(CGT_OUT_OF_MEMORY, OutOfMemory, message)                    \
  X(CGT_STALE_TENSOR, StaleTensor, message)                     \
  X(CGT_CONCURRENT_USE, ConcurrentUse, message)                 \
  X(CGT_CAPTURE_FAILED, CaptureError, error.cuda_code, message) \
  X(CGT_DEVICE_FAILED, DeviceError, error.cuda_code, message)   \
  X(CGT_GROUP_FAILED, GroupError, message)

// The statuses of a BoundaryError, by its fault.
constexpr int kFirstFault = CGT_MISSING_FIELD;
static_assert(kFirstFault + static_cast<int>(BoundaryFault::kNotSupported) == CGT_NOT_SUPPORTED);

cgt_status status_of(const Error& error) noexcept {
  if (const auto* own = dynamic_cast<const StatusError*>(&error)) return own->status();
  if (const auto* foreign = dynamic_cast<const BoundaryError*>(&error)) {
    return kFirstFault + static_cast<int>(foreign->fault());
  }
#define CGTREE_IS(status, Exception, ...) \
  if (dynamic_cast<const Exception*>(&error) != nullptr) return status;
  CGTREE_ERRORS(CGTREE_IS)
#undef CGTREE_IS
  return dynamic_cast<const VerifyError*>(&error) != nullptr ? CGT_VERIFY_FAILED : CGT_INTERNAL;
}

void fill(ErrorRecord& record, const Error& error) {
  record.status = status_of(error);
  const auto* const device = dynamic_cast<const DeviceError*>(&error);
  record.cuda_code = device != nullptr ? device->code() : 0;
  if (record.status == CGT_OUT_OF_MEMORY) {
    record.cuda_code = static_cast<std::int32_t>(Code::kMemoryAllocation);
  }
  // The text of a step's own error stays.
  const bool is_ours = dynamic_cast<const StatusError*>(&error) == nullptr;
  record.message = is_ours ? spelled(error.message(), Spelling::kC) : std::string(error.message());
  const std::string_view what = error.what();
  const std::size_t prefix = what.size() - error.message().size();
  record.where = what.substr(0, prefix < 2 ? 0 : prefix - 2);  // without ": "
}

// Describes the exception in flight.
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
                                  "CGT_VERIFY_FAILED",
                                  "CGT_STEP_FAILED",
                                  "CGT_STEP_THREW",
                                  "CGT_GROUP_FAILED",
                                  "CGT_INTERNAL"};
static_assert(std::size(kNames) == CGT_INTERNAL + 1);

}  // namespace

bool is_failure(cgt_status status) noexcept {
  const bool is_named = status > CGT_OK && status < static_cast<cgt_status>(std::size(kNames));
  return is_named || status >= CGT_USER_STATUS;
}

ThreadState& thread_state() noexcept {
  return of_thread<ThreadState>();
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
  throw InvalidArgument(str_format("{} is NULL", what));
}

cgt_status note_failure() noexcept {
  try {
    ThreadState& thread = thread_state();
    ErrorRecord record;
    fill(record);
    record.number = thread.error.number + 1;
    record.capture = std::exchange(thread.step_capture, CGT_CAPTURE_NONE);
    if (marks().frame != nullptr) record.capture = capture_state_now();
    thread.error = std::move(record);
    return thread.error.status;
  } catch (...) {  // there is no memory for the text
    return CGT_OUT_OF_MEMORY;
  }
}

void rethrow(const ErrorRecord& error, std::string_view before) {
  const std::string message = str_format("{}: {}", before, error.message);
  if (error.status >= CGT_MISSING_FIELD && error.status <= CGT_NOT_SUPPORTED) {
    throw BoundaryError(static_cast<BoundaryFault>(error.status - kFirstFault), message);
  }
#define CGTREE_THROW(number, Exception, ...) \
  if (error.status == number) throw Exception(__VA_ARGS__);
  CGTREE_ERRORS(CGTREE_THROW)
#undef CGTREE_THROW
  throw StatusError(error.status, message);
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
  // Does not use guarded(), which would replace the error to be returned.
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
  if (marks().frame == nullptr || message == nullptr) return;
  try {
    marks().frame->said = message;
  } catch (...) {  // without memory for the text, only the status is returned
  }
}

size_t cgt_live_handles(void) {
  return ContextTable::live() + FunctionTable::live() + TensorTable::live() +
         GeneratorTable::live() + WatchTable::live() + LoopStreamTable::live();
}

}  // extern "C"
