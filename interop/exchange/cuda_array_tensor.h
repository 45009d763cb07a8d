// as_tensor(), from_cuda_array_interface(): arrays of other libraries as tensors; no data moves.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "interop/exchange/cuda_array_interface.h"
#include "interop/exchange/stream_synchronization.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

struct ImportOptions {
  // Where the tensor will be used first. By default the thread's current stream, else the legacy
  // stream of the device the memory lies on.
  StreamRef consumer = {};
  // By default kEventWait, or kIgnore where the environment has
  // CGTREE_CUDA_ARRAY_INTERFACE_SYNC=0.
  std::optional<SyncPolicy> sync = {};
  // What elements of kind 'V' are, which has no DType of its own ("<V2" is what bfloat16 looks
  // like), or times, of which only the numbers are kept. Must have as many bytes.
  std::optional<DType> dtype = {};
};

// The tensor keeps `owner` until its last reference goes. Work that the producer has pending on
// `array.stream` comes before what is enqueued on the consumer's stream from now on; when the last
// reference goes, the producer's stream waits for our work (imported_storage.h). Where the tensor
// is used on other streams than the consumer's, note_use() says so.
//
// Throws BoundaryError: no owner; an element type, strides or a number of dimensions that tensors
// have not; memory that is out of the device's reach, of another device than the consumer's stream,
// or not aligned. CaptureError, DeviceError: see order_import().
Tensor as_tensor(std::shared_ptr<void> owner, const CudaArrayInterface& array,
                 const ImportOptions& options = {});

// As as_tensor(); but without an owner, the caller keeps the memory as long as the tensor, or any
// work that uses it, may.
Tensor from_cuda_array_interface(const CudaArrayInterface& array,
                                 std::shared_ptr<void> owner = nullptr,
                                 const ImportOptions& options = {});

struct ExportOptions {
  // Streams on which work on the tensor may be pending, besides the one that orders its contents
  // (Storage::stream()) and the thread's current one.
  std::span<const StreamRef> pending = {};
  // Nothing is pending on any stream, as the caller knows: 'stream' becomes None.
  bool is_idle = false;
  // By default 3, or what the environment's CGTREE_CUDA_ARRAY_INTERFACE_EXPORT_VERSION says. Below
  // 3 there is no 'stream', and whoever imports must know by other means that the work is done.
  std::optional<int> version = {};
};

// The exported stream is the one that orders the tensor's contents, and is made to wait for the
// others on which work is pending; the host waits for nothing. While any of them captures, 'stream'
// is None and nothing is enqueued: the work is then recorded, not pending.
//
// The interface keeps neither the memory nor the stream. A stream that the caller owns stays until
// the tensor goes if it comes from on_stream().
//
// Throws StaleTensor; InvalidArgument for a tensor that holds nothing, a pending stream of another
// device, another version than 0 to 3; DeviceError.
CudaArrayInterface to_cuda_array_interface(const Tensor& tensor, const ExportOptions& options = {});

// The same memory; but `stream` orders the contents, and lives as long as the new tensor's storage.
// `stream` waits for the one that ordered them so far, and that one for `stream` when the last
// reference goes. Throws InvalidArgument for a stream of another device, and for a tensor of a
// context, which may give the memory up.
Tensor on_stream(const Tensor& tensor, std::shared_ptr<const Stream> stream);

}  // namespace cgtree
