// The names and explanations of the error numbers.
#include "interop/device/code.h"

#include "base/error.h"
#include "base/format.h"
#include "interop/device/refusal.h"

namespace cgtree {
namespace {

struct CodeRow {
  Code code;
  std::string_view name;
  std::string_view explanation;
};

constexpr CodeRow kCodeRows[] = {
    {Code::kSuccess, "cudaSuccess", "success"},
    {Code::kInvalidValue, "cudaErrorInvalidValue", "an argument is out of range"},
    {Code::kMemoryAllocation, "cudaErrorMemoryAllocation", "the device has no room for it"},
    {Code::kInsufficientDriver, "cudaErrorInsufficientDriver",
     "no driver, or one older than the toolkit: install a newer one, or use the host device"},
    {Code::kInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction",
     "the kernel was not compiled for this device"},
    {Code::kNoDevice, "cudaErrorNoDevice", "no device is visible: use the host device"},
    {Code::kNoKernelImage, "cudaErrorNoKernelImageForDevice",
     "the kernel was not compiled for the compute capability of this GPU"},
    {Code::kInvalidPtx, "cudaErrorInvalidPtx",
     "the driver cannot compile the kernel's PTX for this GPU: compile machine code for it"},
    {Code::kUnsupportedPtxVersion, "cudaErrorUnsupportedPtxVersion",
     "the kernel's PTX was made by a newer toolkit than the driver knows: update the driver, or "
     "compile machine code for this GPU"},
    {Code::kInvalidDevice, "cudaErrorInvalidDevice", "there is no device of this number"},
    {Code::kInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
     "the stream, event or graph does not exist, or belongs to another device"},
    {Code::kIllegalState, "cudaErrorIllegalState", "the stream is not in the state this needs"},
    {Code::kNotReady, "cudaErrorNotReady", "work is still pending"},
    {Code::kIllegalAddress, "cudaErrorIllegalAddress",
     "a kernel touched memory that is not its own"},
    {Code::kContextIsDestroyed, "cudaErrorContextIsDestroyed", "the stream was destroyed"},
    {Code::kLaunchFailure, "cudaErrorLaunchFailure", "a kernel failed while it ran"},
    {Code::kNotPermitted, "cudaErrorNotPermitted", "not permitted here"},
    {Code::kNotSupported, "cudaErrorNotSupported", "not supported on this device"},
    {Code::kStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "not permitted while a stream is capturing: synchronising, querying and allocating must "
     "happen outside of the work that is captured"},
    {Code::kStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "an earlier call has invalidated the capture"},
    {Code::kStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "the wait would have merged two captures"},
    {Code::kStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "the capture did not begin on this stream"},
    {Code::kStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "work on a side stream was not joined to the capturing stream: record an event there and "
     "wait for it"},
    {Code::kStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "a capturing stream may not wait for work outside the capture"},
    {Code::kStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "the legacy stream was used while a blocking stream captures: launch on current_stream()"},
    {Code::kCapturedEvent, "cudaErrorCapturedEvent",
     "the event was recorded inside a capture and has no time of its own"},
    {Code::kStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "the capture was begun by another thread"},
};

const CodeRow* find(Code code) noexcept {
  for (const CodeRow& row : kCodeRows)
    if (row.code == code) return &row;
  return nullptr;
}

}  // namespace

std::string_view name(Code code) noexcept {
  const CodeRow* row = find(code);
  return row != nullptr ? row->name : "cudaErrorUnknown";
}

std::string_view explain(Code code) noexcept {
  const CodeRow* row = find(code);
  return row != nullptr ? row->explanation : "see the CUDA runtime's list of error numbers";
}

void throw_code(Code code, std::string_view action, std::source_location where) {
  const int number = static_cast<int>(code);
  const std::string message =
      str_format("{}: {} ({}): {}", action, name(code), number, explain(code));
  if (code == Code::kMemoryAllocation) throw OutOfMemory(message, where);
  if (number >= 900 && number <= 908) {
    Refusals::note(code, message);
    throw CaptureError(number, message, where);
  }
  throw DeviceError(number, message, where);
}

}  // namespace cgtree
