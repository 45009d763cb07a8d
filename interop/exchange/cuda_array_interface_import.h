// as_tensor(), from_cuda_array_interface(): arrays of other libraries as tensors; no data moves.
#pragma once

#include <memory>
#include <optional>

#include "interop/exchange/cuda_array_interface.h"
#include "interop/exchange/import_order.h"
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

}  // namespace cgtree
