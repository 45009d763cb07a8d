// Code: the result of a function of a device. Every device uses the CUDA runtime's error numbers.
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
    kNoKernelImage = 209,
    kInvalidPtx = 218,
    kUnsupportedPtxVersion = 222,
    kInvalidResourceHandle = 400,
    kIllegalState = 401,
    kNotReady = 600,
    kIllegalAddress = 700,
    kContextIsDestroyed = 709,
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
    kUnknown = 999,
};

// Returns CUDA's name of the number, e.g. "cudaErrorStreamCaptureInvalidated".
std::string_view name(Code code) noexcept;

// Returns one sentence on the meaning of the number and the remedy.
std::string_view explain(Code code) noexcept;

inline bool ok(Code code) noexcept {
  return code == Code::kSuccess;
}

// Throws OutOfMemory for kMemoryAllocation, CaptureError for 900 to 908, which is noted as a
// refusal (refusal.h), else DeviceError. `action` describes the failed action, e.g. "launch graph
// of 'decode'".
[[noreturn]] void throw_code(Code code, std::string_view action,
                             std::source_location where = std::source_location::current());

inline void check(Code code, std::string_view action,
                  std::source_location where = std::source_location::current()) {
  if (!ok(code)) [[unlikely]] {
    throw_code(code, action, where);
  }
}

}  // namespace cgtree
