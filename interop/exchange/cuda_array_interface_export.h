// to_cuda_array_interface(): a tensor as other libraries see it; no data moves.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "interop/exchange/cuda_array_interface.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

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
