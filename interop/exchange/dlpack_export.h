// to_dlpack(): tensors for other libraries through DLPack.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "interop/exchange/dlpack_abi.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Source of the names and rules: the Python array API standard, __dlpack__.
struct DlpackExportOptions {
  // The stream the consumer will use: -1 none, do not wait; 1 legacy; 2 per thread; else a
  // cudaStream_t. None: legacy. The host's memory has no streams: None, and the host waits.
  std::optional<std::intptr_t> stream = {};
  // Where the consumer wants it: the tensor's device, or the host.
  std::optional<Device> device = {};
  // True: always copy; false: never; none: where another device is wanted.
  std::optional<bool> copy = {};
};

struct DlpackDeleter {
  void operator()(dlpack::ManagedVersioned* tensor) const noexcept { tensor->deleter(tensor); }
  void operator()(dlpack::Managed* tensor) const noexcept { tensor->deleter(tensor); }
};
// release() what was consumed: whoever has it then calls the deleter once, on any thread.
using DlpackTensor = std::unique_ptr<dlpack::ManagedVersioned, DlpackDeleter>;
using UnversionedDlpackTensor = std::unique_ptr<dlpack::Managed, DlpackDeleter>;

// Whether a consumer that understands up to `max_version` gets a versioned struct; one that does
// not say gets the other.
constexpr bool wants_versioned(std::optional<dlpack::Version> max_version) noexcept {
  return max_version && max_version->major >= dlpack::kVersion.major;
}

// Keeps the memory until its deleter is called. What is pending on the stream that orders the
// tensor's contents, and on the thread's current one, comes before what the consumer enqueues on
// its stream from now on. A copy is flagged as such; it is made on the consumer's stream, or, for
// the host, is there when this returns.
//
// While one of those streams captures, nothing is enqueued: -1, None and the capturing stream
// itself are taken, another stream throws CaptureError, and so does a copy.
//
// Throws StaleTensor; BoundaryError: stream 0 or another negative number, a stream for the host's
// memory, a device that is neither, copy=false where one is needed, a read-only tensor for a
// consumer that cannot be told (unversioned); OutOfMemory, DeviceError.
DlpackTensor to_dlpack(const Tensor& tensor, const DlpackExportOptions& options = {});
UnversionedDlpackTensor to_unversioned_dlpack(const Tensor& tensor,
                                              const DlpackExportOptions& options = {});

}  // namespace cgtree
