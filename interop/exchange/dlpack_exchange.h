// The C exchange API of DLPack, in both directions: conversions that neither call Python nor wait.
#pragma once

#include "interop/exchange/dlpack.h"
#include "interop/exchange/foreign_array.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Returns the table of the major version that this library supports, or null. Newer tables may link
// to older ones.
const dlpack::Exchange* find_exchange(const dlpack::ExchangeHeader* newest) noexcept;

// Makes a tensor of `object`, whose type `exchange` belongs to. The library is asked for its
// current stream, and our work waits for that stream; when the last reference is released, that
// stream waits for our work. Throws BoundaryError if the library refuses (its own error is then
// set, and the caller must fetch it); otherwise as from_dlpack().
Tensor from_exchange(const dlpack::Exchange& exchange, void* object, ImportOptions options = {});

// Returns the stream on which the library works on a device now; null for host memory. Throws
// BoundaryError if the library refuses, as from_exchange().
StreamRef current_stream_of(const dlpack::Exchange& exchange, dlpack::DeviceRef device);

// Makes a tensor like the prototype, as empty() does; tables use it as their allocator. Throws
// BoundaryError without a shape, and as empty().
Tensor empty_like(const dlpack::TensorView& prototype);

// Makes our own table from the functions that know Python's objects; `view_of_object` may be null.
// Its allocator calls empty(), so inside a step function the memory comes from the context's pool.
// Its current stream is the thread's, or null if there is none.
dlpack::Exchange make_exchange(dlpack::FromObject from_object, dlpack::ToObject to_object,
                               dlpack::ViewOfObject view_of_object) noexcept;

}  // namespace cgtree
