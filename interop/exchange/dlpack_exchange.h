// The C exchange API of DLPack, from both sides: conversions that neither call Python nor wait.
#pragma once

#include "interop/exchange/dlpack.h"
#include "interop/exchange/stream_synchronization.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// The table of the major version this library speaks, or null: newer ones may name older ones.
const dlpack::Exchange* find_exchange(const dlpack::ExchangeHeader* newest) noexcept;

struct ExchangeOptions {
  StreamRef consumer = {};  // as in DlpackImportOptions
  SyncPolicy sync = SyncPolicy::kEventWait;
};

// A tensor of `object`, which is of the type that `exchange` belongs to. Its library is asked for
// its current stream, and our work is ordered behind that stream; when the last reference goes,
// that stream waits for our work. Throws BoundaryError where the library refuses (its own error is
// then set, and is the caller's to fetch); else as from_dlpack().
Tensor from_exchange(const dlpack::Exchange& exchange, void* object,
                     const ExchangeOptions& options = {});

// What a table's allocator makes: as empty(). Throws BoundaryError without a shape, and as empty().
Tensor empty_like(const dlpack::TensorView& prototype);

// Our own table, but for what has to know Python's objects; `view_of_object` may be null. Its
// allocator gives what empty() gives, so inside a step function memory of the context's pool; its
// current stream is the thread's, null where there is none.
dlpack::Exchange make_exchange(dlpack::FromObject from_object, dlpack::ToObject to_object,
                               dlpack::ViewOfObject view_of_object) noexcept;

}  // namespace cgtree
