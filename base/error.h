// The exceptions that cgtree throws: one type per kind of failure.
//
// Expected outcomes (a mismatch, a skip) are values, never exceptions, and bugs of the library
// abort (check.h). what() reads `file:line: message`; the message of a comparison shows both sides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace cgtree {

// An Error is the root of all exceptions that cgtree throws.
class Error : public std::runtime_error {
 public:
  // `where` is the place that throws: the default is the caller.
  explicit Error(std::string_view message,
                 std::source_location where = std::source_location::current());

  // Returns the message without its `file:line: ` prefix.
  std::string_view message() const noexcept;

 private:
  std::size_t prefix_;  // bytes of what() before the message
};

// InvalidArgument reports an argument that the caller can correct: a wrong shape, type, device,
// stride, alignment, or a null pointer.
class InvalidArgument : public Error {
 public:
  // `where` is that of Error.
  explicit InvalidArgument(std::string_view message,
                           std::source_location where = std::source_location::current())
      : Error(message, where) {}
};

// The reason why a tensor of another library cannot be imported, or one of ours cannot be exported.
// Each fault has an exception in Python: KeyError, TypeError, ValueError, BufferError.
enum class BoundaryFault {
  kMissing,       // a required field is missing
  kWrongType,     // a field is of another kind than the protocol says
  kWrongValue,    // a field has a value that the protocol forbids, or that contradicts another
  kNotSupported,  // the protocol allows it, cgtree does not
};

// A tensor of another library cannot be imported, or one of ours cannot be exported.
class BoundaryError : public InvalidArgument {
 public:
  // `where` is that of Error.
  BoundaryError(BoundaryFault fault, std::string_view message,
                std::source_location where = std::source_location::current())
      : InvalidArgument(message, where), fault_(fault) {}

  // Selects the exception in Python, and the status in C.
  BoundaryFault fault() const noexcept { return fault_; }

 private:
  BoundaryFault fault_;
};

// The memory of one pool when memory ran out, in bytes.
struct PoolUse {
  std::string name;
  std::size_t reserved = 0;            // in segments
  std::size_t live = 0;                // in live blocks
  std::size_t largest_free_block = 0;  // the largest request that the pool could still serve

  friend bool operator==(const PoolUse&, const PoolUse&) = default;
};

// The memory of all pools when memory ran out.
struct MemoryReport {
  std::size_t requested = 0;           // bytes that the pool was asked for
  std::size_t largest_free_block = 0;  // of that pool, in bytes
  std::vector<PoolUse> pools;          // all pools of the source, the one that was asked first
  bool capture_open = false;           // then no memory could be returned to the device
};

// OutOfMemory says that the device has no room, or that a budget forbids a larger reservation.
// Nothing was allocated.
class OutOfMemory : public Error {
 public:
  // Has a report only if a pool was asked.
  explicit OutOfMemory(std::string_view message,
                       std::source_location where = std::source_location::current())
      : Error(message, where) {}
  OutOfMemory(std::string_view message, MemoryReport report,
              std::source_location where = std::source_location::current());

  // Returns null unless a pool was asked.
  const MemoryReport* report() const noexcept { return report_.get(); }

 private:
  std::shared_ptr<const MemoryReport> report_;  // shared: copies of an exception must not throw
};

// StaleTensor reports the use of a handle whose memory mark_step() has released.
class StaleTensor : public Error {
 public:
  // `where` is that of Error.
  explicit StaleTensor(std::string_view message,
                       std::source_location where = std::source_location::current())
      : Error(message, where) {}
};

// ConcurrentUse reports a call by a second thread into a busy context.
class ConcurrentUse : public Error {
 public:
  // `where` is that of Error.
  explicit ConcurrentUse(std::string_view message,
                         std::source_location where = std::source_location::current())
      : Error(message, where) {}
};

// A DeviceError is an error returned by a function of a device. code() is the CUDA runtime's
// number, on every device.
class DeviceError : public Error {
 public:
  // `code` is that of cudaError_t.
  DeviceError(int code, std::string_view message,
              std::source_location where = std::source_location::current())
      : Error(message, where), code_(code) {}

  // The number of cudaError_t, also on devices without CUDA.
  int code() const noexcept { return code_; }

 private:
  int code_;
};

// A CaptureError says that a step function could not be captured. The tree, the pool and the stream
// are as before the call.
class CaptureError : public DeviceError {
 public:
  // `code` is the error of the capture, a cudaError_t.
  CaptureError(int code, std::string_view message,
               std::source_location where = std::source_location::current())
      : DeviceError(code, message, where) {}
};

// The first difference between a replay and an eager run of the same call. Values are texts,
// because the element type may be any.
struct Divergence {
  // The kind of the result that differs.
  enum class Of {
    kOutput,  // an output of the step function
    kInput,   // an input that the step function writes
    kDraws,   // the distance by which a random generator moves
    kStep,    // the step function itself: it threw, or had another number of outputs
  };

  Of of = Of::kStep;
  std::string function;
  std::string key;          // "" for none
  std::uint32_t node = 0;   // the recording, by its number in snapshots and events
  std::uint32_t index = 0;  // of the output, the input, or the generator in the order of draws
  std::string what;         // "output 0 'logits'"
  // The first element that differs, by its number in row-major order; kOutput and kInput only.
  std::uint64_t element = 0;
  std::vector<std::int64_t> position = {};  // the same, by axis
  std::string replayed;
  std::string eager;
  std::uint64_t differing = 0;  // elements
  std::uint64_t elements = 0;   // number of compared elements
  double largest = 0;           // difference between two elements
  double tolerance = 0;         // the allowed difference; 0: none, bit for bit
  // Possible faults of the recording, one sentence each.
  std::vector<std::string> suspects = {};
};

// Returns the text of a VerifyError.
std::string to_string(const Divergence& divergence);

// A VerifyError says that a verified replay differs from an eager run (docs/verify.md). Tensors
// that the call writes, and generators, are as the replay has left them.
class VerifyError : public Error {
 public:
  // Its message is to_string() of the divergence.
  explicit VerifyError(Divergence divergence,
                       std::source_location where = std::source_location::current());

  // Valid while a copy of the exception lives.
  const Divergence& divergence() const noexcept { return *divergence_; }

 private:
  std::shared_ptr<const Divergence> divergence_;  // shared: copies of an exception must not throw
};

// A GroupError says that the ranks of a group do not do the same, or that one of them cannot be
// reached. No work was done, except by a replay that another rank verified and refused.
class GroupError : public Error {
 public:
  // `where` is that of Error.
  explicit GroupError(std::string_view message,
                      std::source_location where = std::source_location::current())
      : Error(message, where) {}
};

}  // namespace cgtree
