// StreamIdentity: tells which stream a handle refers to.
//
// A device may reuse the handle of a destroyed stream for the next one, at once, while the work of
// the destroyed stream still runs. A handle is therefore only for immediate calls of the device. To
// remember a stream, keep its identity: two streams with one handle, one after the other, have two
// identities.
//
//   Stream a(device);   identity_of(a) == 7
//   a is destroyed      find_stream(7) is null from now on
//   Stream b(device);   has the handle that a had; identity_of(b) == 8
//
// retire_stream() reports the end of a stream. A stream that was destroyed without it is
// distinguished from its handle's present stream by the device's own number, if the device may be
// queried: see DeviceAPI::stream_number().
//
// The per-thread default stream has a different identity on each thread. The null handle and the
// legacy stream have one identity.
//
// Thread safety: all functions may be called from any thread.
#pragma once

#include <cstdint>

#include "interop/device/stream.h"

namespace cgtree {

// Returns the identity of a stream that exists; kNone for null. Queries the device for the number
// of the stream, unless it captures or is the legacy stream. Throws DeviceError, std::bad_alloc.
StreamIdentity identity_of(StreamRef stream);

// The same for a frequent path: does not query the device if this thread has named the stream
// before and no stream has been retired since.
StreamIdentity recent_identity_of(StreamRef stream);

// Returns the stream; null if it was retired or is known to be gone, and for per-thread streams.
StreamRef find_stream(StreamIdentity identity) noexcept;

// Returns the last identity of the handle, without querying the device; kNone if the stream was not
// named yet. Not for per-thread streams.
StreamIdentity known_identity_of(StreamRef stream) noexcept;

// For retire_stream(): from now on the handle refers to no named stream.
void forget_stream(StreamRef stream) noexcept;

}  // namespace cgtree
