// StreamIdentity: which stream it is that a handle stands for.
//
// A device may give the handle of a destroyed stream to the next one, at once, while the work of
// the destroyed stream still runs. So a handle is for calling the device now. What is remembered of
// a stream is its identity: of two streams with one handle, one after the other, each has its own.
//
//   Stream a(device);   identity_of(a) == 7
//   a is destroyed      find_stream(7) is null from now on
//   Stream b(device);   has the handle that a had; identity_of(b) == 8
//
// That a stream has ended is known from retire_stream(). A stream that was destroyed without it is
// told from the one that has its handle now by the device's own number of it, where the device
// may be asked: see DeviceAPI::stream_number().
//
// The per-thread default stream has an identity of its own on each thread. The null handle and the
// legacy stream are one.
//
// Thread safety: all functions may be called from any thread.
#pragma once

#include <cstdint>

#include "interop/device/stream.h"

namespace cgtree {

// Returns the identity of a stream that exists; kNone for null. Asks the device for the number of
// the stream, unless it captures or is the legacy stream. Throws DeviceError, std::bad_alloc.
StreamIdentity identity_of(StreamRef stream);

// The same for a path that is taken often: asks the device nothing where this thread has named the
// stream before, and no stream has been retired since.
StreamIdentity recent_identity_of(StreamRef stream);

// Returns the stream; null if it was retired, or was found to be gone, and for per-thread streams.
StreamRef find_stream(StreamIdentity identity) noexcept;

// Returns the identity that the handle is known by, without asking the device; kNone if the stream
// was not named yet. Not for per-thread streams.
StreamIdentity known_identity_of(StreamRef stream) noexcept;

// For retire_stream(): from now on the handle stands for no stream that has been named.
void forget_stream(StreamRef stream) noexcept;

}  // namespace cgtree
