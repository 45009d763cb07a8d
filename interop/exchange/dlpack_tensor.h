// Tensors from and to DLPack. An import copies no data; an export copies only where it must.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "interop/exchange/dlpack.h"
#include "interop/exchange/foreign_array.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Reads the memory and the layout. Memory that moves to its user is on the device of `consumer`,
// which may be null. Throws BoundaryError for missing strides where they are needed, a missing
// shape, and unsupported element types, devices and layouts.
ForeignArray read_view(const dlpack::TensorView& view, bool needs_strides, StreamRef consumer);

// Takes `stolen`, which must not be null, even if it throws: its deleter is called once, on the
// thread of the last release. Without a `producer`, work enqueued on the consumer's stream that
// uses the memory must have ended before that. Pageable and pinned host memory becomes a tensor of
// the host.
//
// Throws BoundaryError for another major version (then only the deleter is called); otherwise as
// read_view(), which needs strides from 1.2 on, and as import_array().
Tensor from_dlpack(dlpack::ManagedVersioned* stolen, const ImportOptions& options = {});
Tensor from_dlpack(dlpack::Managed* stolen, const ImportOptions& options = {});

// Source of the names and rules: the Python array API standard, __dlpack__.
struct DlpackExportOptions {
  // The stream that the consumer will use: -1 for no synchronization, 1 legacy, 2 per thread, else
  // a cudaStream_t; by default legacy. Host memory has no streams: this must then be empty, and the
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
// The next two own an export until a consumer takes it: then call release(), and the consumer calls
// the deleter once, on any thread.
using DlpackTensor = std::unique_ptr<dlpack::ManagedVersioned, DlpackDeleter>;
using UnversionedDlpackTensor = std::unique_ptr<dlpack::Managed, DlpackDeleter>;

// Returns whether a consumer that supports up to `max_version` gets a versioned struct. A consumer
// that states no version gets the unversioned one.
constexpr bool wants_versioned(std::optional<dlpack::Version> max_version) noexcept {
  return max_version && max_version->major >= dlpack::kVersion.major;
}

// The next two return structs that keep the memory until their deleter is called. Work that the
// consumer enqueues on its stream from now on waits for pending work on the stream that orders the
// tensor's contents, and on the thread's current one. A copy is marked as a copy; it is made on the
// consumer's stream, or, for the host, is complete when this returns.
//
// If one of those streams captures, nothing is enqueued: -1, an empty stream and the capturing
// stream itself are accepted; another stream throws CaptureError, and so does a copy.
//
// Throws StaleTensor; BoundaryError for stream 0 or another negative number, a stream for host
// memory, a device that is neither, copy=false if a copy is needed, and a read-only tensor for an
// unversioned struct, which has no flag for it; OutOfMemory, DeviceError.
DlpackTensor to_dlpack(const Tensor& tensor, const DlpackExportOptions& options = {});
UnversionedDlpackTensor to_unversioned_dlpack(const Tensor& tensor,
                                              const DlpackExportOptions& options = {});

// Exports without stream synchronization, for a consumer that orders its own work.
DlpackTensor to_unordered_dlpack(const Tensor& tensor);

// Describes a tensor, without an owner. The view is valid as long as the tensor and its storage.
dlpack::TensorView view_of(const Tensor& tensor);

}  // namespace cgtree
