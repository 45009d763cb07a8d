// Tensors from and to the CUDA Array Interface; no data is copied.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "interop/exchange/cuda_array_interface.h"
#include "interop/tensor/stream_synchronization.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// The options of an import.
struct ImportOptions {
  // The stream on which the tensor is used first. The default is the thread's current stream, else
  // the legacy stream of the device that the memory lies on.
  StreamRef consumer = {};
  // The default is kEventWait, or kIgnore if CGTREE_CUDA_ARRAY_INTERFACE_SYNC=0 is in the
  // environment.
  std::optional<SyncPolicy> sync = {};
  // How to read elements without a DType: kind 'V' ("<V2" is what bfloat16 looks like), and times,
  // of which only the numbers are kept. The type must have as many bytes.
  std::optional<DType> dtype = {};
  // The memory may lie on another device than the consumer's stream.
  bool on_any_device = false;
};

// The tensor keeps `owner` until its last reference is released. Work enqueued on the consumer's
// stream from now on waits for what the producer has pending on `array.stream`. When the last
// reference is released, the producer's stream waits for our work (foreign_memory.h). If the tensor
// is used on other streams than the consumer's, note_use() must be called for them.
//
// Throws BoundaryError without an owner; for an element type, strides or a number of dimensions
// that tensors do not support; for memory that the device does not reach, memory of another device
// than the consumer's stream, and memory that is not aligned. Throws CaptureError, DeviceError: see
// order_import().
Tensor as_tensor(std::shared_ptr<void> owner, const CudaArrayInterface& array,
                 const ImportOptions& options = {});

// As as_tensor(), but the owner may be null. Then the caller must keep the memory as long as the
// tensor, and any work that uses it.
Tensor from_cuda_array_interface(const CudaArrayInterface& array,
                                 std::shared_ptr<void> owner = nullptr,
                                 const ImportOptions& options = {});

// The options of an export.
struct ExportOptions {
  // Streams on which work on the tensor may be pending, besides the one that orders its contents
  // (Storage::stream()) and the thread's current one.
  std::span<const StreamRef> pending = {};
  // The caller knows that nothing is pending on any stream: 'stream' becomes None.
  bool is_idle = false;
  // The default is 3, or CGTREE_CUDA_ARRAY_INTERFACE_EXPORT_VERSION of the environment. Below 3
  // there is no 'stream', and the importer must know by other means that the work is done.
  std::optional<int> version = {};
};

// Describes a tensor for other libraries. The exported stream is the one that orders the tensor's
// contents; it is made to wait for the other streams on which work is pending. The host waits for
// nothing. While any of them captures, 'stream' is None and nothing is enqueued: the work is then
// recorded, not pending.
//
// The interface keeps neither the memory nor the stream alive. A stream of the caller lives as long
// as the tensor if the tensor comes from on_stream().
//
// Throws StaleTensor; InvalidArgument for an undefined tensor, a pending stream of another device,
// a version that is not 0 to 3; DeviceError.
CudaArrayInterface to_cuda_array_interface(const Tensor& tensor, const ExportOptions& options = {});

// Returns a tensor of the same memory whose contents `stream` orders; `stream` lives as long as the
// new tensor's storage. `stream` waits for the stream that ordered the contents so far, and that
// one waits for `stream` when the last reference is released. Throws InvalidArgument for a stream
// of another device, and for a tensor of a context, which may invalidate the memory.
Tensor on_stream(const Tensor& tensor, std::shared_ptr<const Stream> stream);

}  // namespace cgtree
