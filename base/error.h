// The exceptions cgtree throws: one type per kind of failure, each naming where it was thrown.
//
// Expected outcomes (a mismatch, a skip) are values, never exceptions; bugs of ours abort
// (check.h). `what()` reads `file:line: message`; a message that compares shows both sides.
#pragma once

#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/memory_report.h"

namespace cgtree {

// The root of everything cgtree throws.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string_view message,
                 std::source_location where = std::source_location::current());

  // The message without its `file:line: ` prefix.
  std::string_view message() const noexcept;

 private:
  std::size_t prefix_;  // bytes of what() before the message
};

// An argument the caller can correct: wrong shape, type, device, stride, alignment, null pointer.
class InvalidArgument : public Error {
 public:
  explicit InvalidArgument(std::string_view message,
                           std::source_location where = std::source_location::current())
      : Error(message, where) {}
};

// The device has no room, or a budget forbids taking more. Nothing was taken.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(std::string_view message,
                       std::source_location where = std::source_location::current())
      : Error(message, where) {}
  OutOfMemory(std::string_view message, MemoryReport report,
              std::source_location where = std::source_location::current());

  // Null unless a pool was asked.
  const MemoryReport* report() const noexcept { return report_.get(); }

 private:
  std::shared_ptr<const MemoryReport> report_;  // shared: copies of an exception must not throw
};

// A handle was touched whose memory `mark_step()` has given up.
class StaleTensor : public Error {
 public:
  explicit StaleTensor(std::string_view message,
                       std::source_location where = std::source_location::current())
      : Error(message, where) {}
};

// A second thread called into a context that is busy.
class ConcurrentUse : public Error {
 public:
  explicit ConcurrentUse(std::string_view message,
                         std::source_location where = std::source_location::current())
      : Error(message, where) {}
};

// A device verb answered with an error. `code()` is the CUDA runtime's number, on every device.
class DeviceError : public Error {
 public:
  DeviceError(int code, std::string_view message,
              std::source_location where = std::source_location::current())
      : Error(message, where), code_(code) {}

  int code() const noexcept { return code_; }

 private:
  int code_;
};

// A step function could not be captured. The tree, the pool and the stream are as before the call.
class CaptureError : public DeviceError {
 public:
  CaptureError(int code, std::string_view message,
               std::source_location where = std::source_location::current())
      : DeviceError(code, message, where) {}
};

}  // namespace cgtree
