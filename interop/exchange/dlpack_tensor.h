// from_dlpack(): tensors of other libraries through DLPack; no data moves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "interop/exchange/dlpack.h"
#include "interop/exchange/stream_synchronization.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

struct DlpackImportOptions {
  // Where the tensor will be used first. By default the thread's current stream, else the legacy
  // stream of its device. The producer was told of this stream when it was asked for the tensor,
  // and has ordered its work before it: so nobody waits here, unless `producer` names a stream.
  StreamRef consumer = {};
  // Where the producer's work is enqueued, if it was not told of ours (the exchange API); then as
  // with the CUDA Array Interface both directions are ordered.
  StreamRef producer = {};
  SyncPolicy sync = SyncPolicy::kEventWait;
};

// Takes `stolen`, which must not be null, also when it throws: its deleter is called once, on the
// thread of the last release; before that, work enqueued on the consumer's stream that uses the
// memory must be done, unless `producer` named a stream. Pageable and pinned memory of the host
// becomes a tensor of the host.
//
// Throws BoundaryError: another major version (then nothing but the deleter is touched), no strides
// from 1.2 on, no shape, null data, element types, devices and layouts that tensors have not,
// memory that is out of the device's reach or not aligned. InvalidArgument where no such device is
// there; CaptureError, DeviceError as order_import().
Tensor from_dlpack(dlpack::ManagedVersioned* stolen, const DlpackImportOptions& options = {});
Tensor from_dlpack(dlpack::Managed* stolen, const DlpackImportOptions& options = {});

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
