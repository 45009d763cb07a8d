// from_dlpack(): tensors of other libraries through DLPack; no data moves.
#pragma once

#include "interop/exchange/dlpack_abi.h"
#include "interop/exchange/import_order.h"
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

}  // namespace cgtree
