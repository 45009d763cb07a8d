// What a device verb answers: the CUDA runtime's error numbers, used by every device.
//
// Source: cudaError_t (CUDA Runtime API 13.0, Data types). Runtime and driver agree on these
// numbers.
#pragma once

#include <source_location>
#include <string>
#include <string_view>

namespace cgtree {

enum class [[nodiscard]] Code : int{
    kSuccess = 0,
    kInvalidValue = 1,
    kMemoryAllocation = 2,
    kInsufficientDriver = 35,
    kInvalidDeviceFunction = 98,
    kNoDevice = 100,
    kInvalidDevice = 101,
    kInvalidResourceHandle = 400,
    kIllegalState = 401,
    kNotReady = 600,
    kIllegalAddress = 700,
    kLaunchFailure = 719,
    kNotPermitted = 800,
    kNotSupported = 801,
    kStreamCaptureUnsupported = 900,
    kStreamCaptureInvalidated = 901,
    kStreamCaptureMerge = 902,
    kStreamCaptureUnmatched = 903,
    kStreamCaptureUnjoined = 904,
    kStreamCaptureIsolation = 905,
    kStreamCaptureImplicit = 906,
    kCapturedEvent = 907,
    kStreamCaptureWrongThread = 908,
    kGraphExecUpdateFailure = 910,
    kUnknown = 999,
};

// CUDA's name of the number, e.g. "cudaErrorStreamCaptureInvalidated".
std::string_view name(Code code) noexcept;

// One sentence on what the number means and what to do about it.
std::string_view explain(Code code) noexcept;

inline bool ok(Code code) noexcept {
  return code == Code::kSuccess;
}

// Throws OutOfMemory for kMemoryAllocation, CaptureError for 900 to 908, else DeviceError;
// `verb` says what was being done, e.g. "launch graph of 'decode'".
[[noreturn]] void throw_code(Code code, std::string_view verb,
                             std::source_location where = std::source_location::current());

// What throw_code() reported with 900 to 908 on this thread since the last clear, the first: so
// that a capture that failed can be told from the call that broke it, also when the exception was
// swallowed. Empty if there is none.
const std::string& first_capture_failure() noexcept;
void clear_capture_failure() noexcept;

inline void check(Code code, std::string_view verb,
                  std::source_location where = std::source_location::current()) {
  if (!ok(code)) [[unlikely]] {
    throw_code(code, verb, where);
  }
}

}  // namespace cgtree
