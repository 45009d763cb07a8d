// Tensors from and to DLPack. An import copies no data; an export copies only where it must.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "interop/exchange/dlpack.h"
#include "interop/tensor/stream_synchronization.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// The options of an import.
struct DlpackImportOptions {
  // The stream on which the tensor is used first. The default is the thread's current stream, else
  // the legacy stream of its device. The producer was told of this stream when it was asked for the
  // tensor, and has ordered its work before it. So nothing waits here, unless there is a
  // `producer`.
  StreamRef consumer = {};
  // The stream of the producer's work, if it was not told of ours (the exchange API). Then both
  // directions are synchronized, as with the CUDA Array Interface.
  StreamRef producer = {};
  SyncPolicy sync = SyncPolicy::kEventWait;
  // The memory may lie on another device than the consumer's stream.
  bool on_any_device = false;
};

// Takes `stolen`, which must not be null, even if it throws: its deleter is called once, on the
// thread of the last release. Without a `producer`, work enqueued on the consumer's stream that
// uses the memory must be done before that. Pageable and pinned memory of the host becomes a tensor
// of the host.
//
// Throws BoundaryError for another major version (then only the deleter is called), missing strides
// from 1.2 on, a missing shape, null data, unsupported element types, devices and layouts, and
// memory that the device does not reach or that is not aligned. Throws InvalidArgument if the
// device does not exist; CaptureError, DeviceError as order_import().
Tensor from_dlpack(dlpack::ManagedVersioned* stolen, const DlpackImportOptions& options = {});
Tensor from_dlpack(dlpack::Managed* stolen, const DlpackImportOptions& options = {});

// Source of the names and rules: the Python array API standard, __dlpack__.
struct DlpackExportOptions {
  // The stream that the consumer will use: -1 for no synchronization, 1 legacy, 2 per thread, else
  // a cudaStream_t; by default legacy. Host memory has no streams: then it must be empty, and the
  // host waits.
  std::optional<std::intptr_t> stream = {};
  // The device that the consumer wants: the tensor's device, or the host.
  std::optional<Device> device = {};
  // True: always copy; false: never copy; empty: copy if another device is wanted.
  std::optional<bool> copy = {};
};

// Calls the deleter of a struct. Requires: it has one.
struct DlpackDeleter {
  // Requires: the tensor was not taken by a consumer.
  void operator()(dlpack::ManagedVersioned* tensor) const noexcept { tensor->deleter(tensor); }
  void operator()(dlpack::Managed* tensor) const noexcept { tensor->deleter(tensor); }
};
// The next two own an export until a consumer takes it: call release() then, and the consumer calls
// the deleter once, on any thread.
using DlpackTensor = std::unique_ptr<dlpack::ManagedVersioned, DlpackDeleter>;
using UnversionedDlpackTensor = std::unique_ptr<dlpack::Managed, DlpackDeleter>;

// Returns whether a consumer that supports up to `max_version` gets a versioned struct. A consumer
// that states no version gets the unversioned one.
constexpr bool wants_versioned(std::optional<dlpack::Version> max_version) noexcept {
  return max_version && max_version->major >= dlpack::kVersion.major;
}

// The next two return structs that keep the memory until their deleter is called. Work that the
// consumer enqueues on its stream from now on waits for what is pending on the stream that orders
// the tensor's contents, and on the thread's current one. A copy is marked as a copy; it is made on
// the consumer's stream, or, for the host, is complete when this returns.
//
// While one of those streams captures, nothing is enqueued: -1, an empty stream and the capturing
// stream itself are accepted; another stream throws CaptureError, and so does a copy.
//
// Throws StaleTensor; BoundaryError for stream 0 or another negative number, a stream for host
// memory, a device that is neither, copy=false where a copy is needed, and a read-only tensor for
// an unversioned struct, which cannot say so; OutOfMemory, DeviceError.
DlpackTensor to_dlpack(const Tensor& tensor, const DlpackExportOptions& options = {});
UnversionedDlpackTensor to_unversioned_dlpack(const Tensor& tensor,
                                              const DlpackExportOptions& options = {});

}  // namespace cgtree
